"""Conversations as a page for a browser: what it must never do, and what it must show."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from support_exchange import tree

from hobnob.tui.web_page import POLICY, WebPage

HOSTILE = (
    "<script>alert(1)</script>",
    '<img src=x onerror="alert(1)">',
    "[x](javascript:alert(1))",
    "[x](data:text/html,<script>alert(1)</script>)",
    "![x](http://tracker.example/pixel.png)",
    "[![x](http://tracker.example/pixel.png)](http://other.example/)",
    "<http://tracker.example/a>",
    "```html\n</code></pre><script>alert(1)</script>\n```",
    '```"><script>alert(1)</script>\nx\n```',
    "</section></body><iframe src=//evil.example>",
    "&lt;script&gt; &#60;script&#62;",
    "\x00\x1b[31m\u202egnp.exe",
)


class Page(HTMLParser):
    """The elements of a page, its links and its text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.links: list[str] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "a":
            assert "a" not in self.open, "a link in a link"
            self.links.append(str(dict(attrs)["href"]))
        if tag not in ("meta", "br", "hr"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data


def page(*texts: str, every: bool = False, title: str = "", status: str = "completed") -> Page:
    writer = WebPage(every=every)
    whole = writer.begin() + writer.conversation(tree(*texts, title=title, status=status))
    return Page(whole + writer.end())


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_in_a_message_or_a_title_is_run_or_fetched(text: str) -> None:
    found = page(text, text, title=text)
    assert not {"script", "img", "iframe", "link", "object", "base"} & set(found.tags)
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    assert {name for name, _ in found.attributes} <= {
        "charset", "http-equiv", "content", "name", "class", "href", "rel", "start"
    }  # fmt: skip
    assert all(link.startswith(("http://", "https://")) for link in found.links)
    assert found.open == []
    assert ("content", POLICY) in found.attributes


def test_what_was_typed_is_shown_as_it_was_typed() -> None:
    typed = "  *not* bold\n\n\n# no heading <b>\ttab"
    assert typed in page(typed, "fine").text


def test_a_reply_is_read_as_markdown() -> None:
    reply = "# Head\n\n**bold** ~~gone~~ `x<y`\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n1. one\n2. two"
    found = page("q", reply)
    assert {"strong", "s", "code", "table", "th", "td", "ol", "li"} <= set(found.tags)
    assert "x<y" in found.text


def test_code_is_shown_to_the_last_character_whatever_its_language() -> None:
    for name in ("python", "no-such-language", ""):
        code = "def f(x):\n    return x < 1 & 2  # ü\n\n"
        assert code in page("q", f"```{name}\n{code}```").text


def test_a_picture_is_a_link_and_one_inside_of_a_link_its_words() -> None:
    found = page("q", "![a *cat*](http://x.example/cat.png) [![dog](http://x.example/d.png)](/y)")
    assert found.links == ["http://x.example/cat.png", "/y"]
    assert "a cat" in found.text and "dog" in found.text


def test_a_message_says_whose_it_is_and_how_it_ended() -> None:
    assert "Assistant (cancelled)" in page("q", "a", status="cancelled").text
    assert "Assistant · m1" in page("q", "a", every=True).text
