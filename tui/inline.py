"""The inline part of Markdown: one paragraph's text to styled spans.

A span is (text, style); a style is a space-separated set of names that the view maps to looks.
Formulas, tags and generics stay as they are written, line breaks stay line breaks, and a link
shows where it really leads. Work per paragraph is linear: a long one is read in pieces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from hobnob.tui.clean import clean

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

Span = tuple[str, str]

PIECE_CHARS = 2048
"""Emphasis does not reach over the end of a piece; shorter paragraphs are one piece."""

_SPECIAL = re.compile(r"[\\`*_\[\]<&$~]")
_MATH = re.compile(
    r"\\\((?:.|\n)+?\\\)|\\\[(?:.|\n)+?\\\]|\$\$[^$]+\$\$|\$(?=\S)[^$\n]*?\S\$(?!\d)"
)
_STYLES = {"strong": "strong", "em": "em", "s": "strike", "link": "link"}


def spans(text: str, style: str = "") -> list[Span]:
    """The styled spans of a whole paragraph."""
    out: list[Span] = []
    for start, end in pieces(text):
        out.extend(piece_spans(text[start:end], style))
    return out


def pieces(text: str, start: int = 0, *, final: bool = True) -> Iterator[tuple[int, int]]:
    """Where a text is cut, from `start` on. Without `final` only cuts that more text can't move."""
    while len(text) - start > PIECE_CHARS:
        window = text[start : start + PIECE_CHARS]
        cut = max(window.rfind("\n"), window.rfind(" ")) + 1
        cut = cut if cut > PIECE_CHARS // 2 else PIECE_CHARS
        yield start, start + cut
        start += cut
    if final and start < len(text):
        yield start, len(text)


def piece_spans(text: str, style: str = "") -> list[Span]:
    """The spans of one piece. A tab is a space, as it is for Markdown between words."""
    text = text.replace("\t", " ")
    if not _SPECIAL.search(text):
        return [(text, style)]
    root = _parser().parseInline(text)[0]
    return list(_walk(root.children or [], style))


def _walk(tokens: list[Token], base: str) -> Iterator[Span]:
    styles: list[str] = [base] if base else []
    links: list[tuple[str, list[str]]] = []

    def put(text: str, style: str = "") -> Span:
        for _, words in links:
            words.append(text)
        return clean(text), " ".join(filter(None, [*styles, style]))

    for token in tokens:
        kind = token.type
        if kind.endswith("_open"):
            styles.append(_STYLES.get(kind[:-5], ""))
            if kind == "link_open":
                links.append((str(token.attrs.get("href", "")), []))
        elif kind.endswith("_close"):
            styles.pop()
            if kind == "link_close":
                href, words = links.pop()
                if href and not _same_place(href, "".join(words)):
                    yield put(f" ({href})", "url")
        elif kind in ("softbreak", "hardbreak"):
            yield put("\n")
        elif kind == "code_inline":
            yield put(token.content, "code")
        elif kind == "math":
            yield put(token.content, "math")
        elif kind == "image":
            yield put(f"[image: {token.content}]", "link")
            yield put(f" ({token.attrs.get('src', '')})", "url")
        elif token.content:
            yield put(token.content)


def _same_place(href: str, words: str) -> bool:
    """Whether the words of a link are its target, so that it need not be shown twice."""
    return href.rstrip("/") in (words.rstrip("/"), f"mailto:{words}")


def _math(state: StateInline, silent: bool) -> bool:
    """An inline rule: a formula is one token and none of its characters mean anything."""
    if state.src[state.pos] not in "\\$":
        return False
    found = _MATH.match(state.src, state.pos, state.posMax)
    if found is None:
        return False
    if not silent:
        state.push("math", "", 0).content = found[0]
    state.pos = found.end()
    return True


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # a tenth of a second that the first paint need not wait for

    parser = MarkdownIt("commonmark", {"html": False}).enable("strikethrough")
    parser.inline.ruler.before("escape", "math", _math)
    return parser
