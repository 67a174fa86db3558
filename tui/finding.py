"""Finding a text in messages as they are shown: how often, and where in their rows. Pure.

Whatever the case, and whatever stands between the words: a line that was wrapped is one line.
What is found is what one reads, so Markdown's own signs neither hide a match nor are one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hobnob.tui import blocks, inline
from hobnob.tui.blocks import Block
from hobnob.tui.clean import clean
from hobnob.tui.rows import CODE_PAD, Row
from hobnob.tui.transcript import REASONING, USER, Entry

Wanted = re.Pattern[str]

_SIGNS = str.maketrans("", "", "\\`*_[]<>~#|$")
"""What Markdown takes away, mostly: a text that has no match without them has none shown."""
_REWRITES = ("](", "&")
"""Where these stand, what is shown has characters of its own."""


def pattern(text: str) -> Wanted | None:
    """What is looked for when this was typed; None for nothing."""
    words = clean(text).split()
    return re.compile(r"\s+".join(map(re.escape, words)), re.IGNORECASE) if words else None


@dataclass(frozen=True, slots=True)
class Match:
    """One of the matches in a message, counted from 0."""

    entry: Entry
    nth: int


class Finder:
    """Counts the matches of one text. Keeps what messages look like for the next one."""

    def __init__(self) -> None:
        self._shown: dict[Entry, tuple[int, str]] = {}
        self._wanted: Wanted | None = None
        self._rough: Wanted | None = None

    def want(self, text: str) -> Wanted | None:
        self._wanted, self._rough = pattern(text), pattern(clean(text).translate(_SIGNS))
        return self._wanted

    def matches(self, entry: Entry) -> list[Match]:
        """Those in a message, the first one first."""
        if self._wanted is None or not self._may_match(entry.text):
            return []
        found = self._wanted.finditer(self._text(entry))
        return [Match(entry, nth) for nth, _ in enumerate(found)]

    def _may_match(self, source: str) -> bool:
        if self._rough is None or any(sign in source for sign in _REWRITES):
            return True
        return self._rough.search(clean(source).translate(_SIGNS)) is not None

    def _text(self, entry: Entry) -> str:
        known = self._shown.get(entry)
        if known is None or known[0] != entry.chars:
            known = self._shown[entry] = (entry.chars, shown_text(entry))
        return known[1]


def shown_text(entry: Entry) -> str:
    """A message as it is read, without its thoughts."""
    parts = [part for part in entry.parts if part.kind != REASONING]
    if entry.role == USER:
        return "\n".join(clean(part.text.replace("\r\n", "\n")) for part in parts)
    return "\n".join(_shown(block) for part in parts for block in (*part.closed, *part.open()))


def _shown(block: Block) -> str:
    if block.kind == blocks.RULE:
        return ""
    if block.kind in (blocks.CODE, blocks.MATH):
        return block.text.expandtabs(blocks.TAB_COLUMNS)
    if block.kind == blocks.TABLE:
        lines = (line for number, line in enumerate(block.lines) if number != 1)
        return "\n\n".join(_plain(cell) for line in lines for cell in blocks.cells(line))
    return _plain(block.text)


def _plain(text: str) -> str:
    return "".join(text for text, _ in inline.spans(text))


# ---- in rows ----------------------------------------------------------------------------------

Place = tuple[int, int, int]
"""Row, and the first and last column but one, of a match or of its part in that row."""


def places(rows: Sequence[Row], first: int, wanted: Wanted) -> list[list[Place]]:
    """Each match in some rows, the first of which is number `first`; wrapped ones in parts."""
    text, pieces = _joined(rows)
    found: list[list[Place]] = []
    at = 0
    for match in wanted.finditer(text):
        start, end = match.span()
        while at < len(pieces) - 1 and pieces[at].end <= start:
            at += 1
        parts: list[Place] = []
        for piece in pieces[at:]:
            if piece.start >= end:
                break
            low, high = max(start, piece.start), min(end, piece.end)
            if low < high:
                shift = piece.column - piece.start
                parts.append((first + piece.row, low + shift, high + shift))
        if parts:
            found.append(parts)
    return found


@dataclass(frozen=True, slots=True)
class _Piece:
    """A stretch of a row within the joined text."""

    start: int
    end: int
    row: int
    column: int


def _joined(rows: Sequence[Row]) -> tuple[str, list[_Piece]]:
    """The text that was wrapped into the rows, without what only decorates it."""
    texts: list[str] = []
    pieces: list[_Piece] = []
    length = 0

    def add(text: str) -> None:
        nonlocal length
        texts.append(text)
        length += len(text)

    for number, row in enumerate(rows):
        if row.action:
            add("\n")
            continue
        if number:
            add("\n" if row.join is None else row.join)
        column = 0
        for at, (text, style) in enumerate(row.spans):
            if _is_text(at, text, style):
                pieces.append(_Piece(length, length + len(text), number, column))
                add(text)
            elif style == "rule":
                add("\n\n")  # between two cells of a table
            column += len(text)
    return "".join(texts), pieces


def _is_text(at: int, text: str, style: str) -> bool:
    if style in ("marker", "rule"):
        return False
    return not (style == "codeblock" and text == CODE_PAD and at <= 1)
