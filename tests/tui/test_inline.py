"""Inline Markdown: what is styled, what stays as written, where links lead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support_documents import HOSTILE, MARKDOWN

from hobnob.tui import inline
from hobnob.tui.inline import PIECE_CHARS, pieces, spans


def shown(text: str) -> str:
    return "".join(part for part, _ in spans(text))


def test_emphasis_and_code_are_styled_and_their_marks_are_gone() -> None:
    assert spans("a **b *c*** `d`") == [
        ("a ", ""), ("b ", "strong"), ("c", "strong em"), (" ", ""), ("d", "code"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["List<int>", "<b>x</b>", "$a_b*c*$", "\\(x_1 * y_2\\)", "\\[a\\]", "snake_case_name", "5 * 3"],
)
def test_formulas_tags_and_names_stay_as_written(text: str) -> None:
    assert shown(text) == text


def test_a_price_is_no_formula() -> None:
    assert [style for _, style in spans("costs $5 and $6 *now*")] == ["", "em"]


def test_line_breaks_stay() -> None:
    assert shown("Roses\nviolets") == "Roses\nviolets"


def test_a_link_shows_its_true_target() -> None:
    assert shown("[http://good.example](http://evil.example)") == (
        "http://good.example (http://evil.example)"
    )
    assert shown("[a](#x)") == "a (#x)"
    assert shown("<http://a.example>") == "http://a.example"


def test_a_link_that_could_run_something_is_only_text() -> None:
    assert shown("[x](javascript:alert(1))") == "[x](javascript:alert(1))"


def test_an_image_is_named_and_not_fetched() -> None:
    assert shown("![i](http://127.0.0.1:9/p.png)") == "[image: i] (http://127.0.0.1:9/p.png)"


def test_brackets_that_look_like_markup_are_text() -> None:
    text = "see [/etc/hosts] and [/] and [bold]x and [@click=app.quit]here[/]"
    assert shown(text) == text


def test_nothing_in_the_spans_can_drive_a_terminal() -> None:
    text = shown(HOSTILE + " &#27;[2J &#x9d; [a](http://x/\x1b[2J)")
    assert not any(c != "\n" and (ord(c) < 32 or 0x7F <= ord(c) < 0xA0) for c in text)


@given(MARKDOWN.filter(lambda t: "\n\n" not in t))
def test_letters_are_never_lost(text: str) -> None:
    left = iter(shown(text))
    assert all(c in left for c in text if c.isalpha())


@given(st.text("ab \n", max_size=9000), st.integers(0, 9000))
def test_pieces_that_are_cut_stay_cut_as_the_text_grows(text: str, at: int) -> None:
    before = list(pieces(text[:at], final=False))
    assert list(pieces(text, final=False))[: len(before)] == before


def test_pieces_cover_the_text_and_are_bounded() -> None:
    text = "x" * 10_000
    cuts = list(pieces(text))
    assert "".join(text[a:b] for a, b in cuts) == text
    assert max(b - a for a, b in cuts) <= PIECE_CHARS


def test_plain_text_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inline, "_parser", lambda: pytest.fail("parsed"))
    assert spans("only words, and more.") == [("only words, and more.", "")]
