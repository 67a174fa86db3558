"""Styled spans to rows of at most so many terminal cells.

Breaks between words, keeps the spaces that were typed, and never cuts a joined character.
Greedy, so more text only ever changes the last row: see `wrap(…)` over (last row + new text).
Widths are those that Textual's own screen uses (rich.cells).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.cells import cell_len, split_graphemes

from hobnob.tui.inline import Span

# Scripts that break between any two characters, but not before what closes a sentence.
_WIDE = (
    "\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6"
    "\U00020000-\U0003fffd"
)
_CLOSING = "\u3001\u3002\uff0c\uff01\uff1f\uff1a\uff1b\u0300-\u036f\ufe0f"
_PIECE = re.compile(rf"[{_WIDE}][{_CLOSING}]*[ ]*|[^ {_WIDE}]+ *| +")

Row = tuple[list[Span], str | None]
"""Spans of one row, and what joins it to the row before: None for a line break of the text."""


def wrap(spans: Iterable[Span], width: int, *, fold: bool = False) -> list[Row]:
    """The rows of a text. With `fold` rows are filled to the last cell, as code is."""
    width = max(width, 1)
    rows: list[Row] = []
    for line in _hard_lines(spans):
        text = "".join(text for text, _ in line)
        if _fits(text, width):
            rows.append((line, None))
            continue
        cuts = _folds(text, width) if fold else _breaks(text, width)
        rows.extend(_cut(line, text, cuts))
    return rows


def fold_text(text: str, width: int) -> list[str]:
    """A line of code in rows filled to the last cell."""
    if _fits(text, width):
        return [text]
    cuts = [0, *_folds(text, max(width, 1)), len(text)]
    return [text[start:end] for start, end in zip(cuts, cuts[1:], strict=False)]


def shorten(text: str, width: int) -> str:
    """At most so many cells, with an ellipsis in place of what does not fit."""
    if _fits(text, width):
        return text
    if width < 1:
        return ""
    head = text[: width * 4 + 8]
    cuts = _folds(head, width - 1) if width > 1 else [0]
    return head[: cuts[0] if cuts else len(head)].rstrip() + "…"


def _fits(text: str, width: int) -> bool:
    if text.isascii():
        return len(text) <= width
    return len(text) <= width * 8 and cell_len(text) <= width


def _hard_lines(spans: Iterable[Span]) -> list[list[Span]]:
    lines: list[list[Span]] = [[]]
    for text, style in spans:
        first, *more = text.replace("\t", " ").split("\n")
        if first:
            lines[-1].append((first, style))
        for part in more:
            lines.append([(part, style)] if part else [])
    return lines


def _breaks(text: str, width: int) -> list[int]:
    """Where new rows start, between words."""
    cuts: list[int] = []
    used = 0
    for found in _PIECE.finditer(text):
        piece = found[0]
        word = piece.rstrip(" ")
        size = _cells(word)
        if used + size > width and word:
            if used:
                cuts.append(found.start())
            used = 0
            if size > width:
                inner = _folds(word, width)
                cuts.extend(found.start() + cut for cut in inner)
                size = _cells(word[inner[-1] :] if inner else word)
        elif not word and not used:  # a line of spaces, or indentation wider than the row
            size = min(len(piece), width)
            used = size
            continue
        used += size + len(piece) - len(word)
    return cuts


def _folds(text: str, width: int) -> list[int]:
    """Where new rows start when every row is filled."""
    if text.isascii():
        return list(range(width, len(text), width))
    cuts: list[int] = []
    used = 0
    for start, end, size in split_graphemes(text)[0]:
        if not size:  # Rich takes a character after a stray joiner for nothing, but shows it
            size = cell_len(text[start:end])
        if used + size > width and used:
            cuts.append(start)
            used = 0
        used += size
    return cuts


def _cells(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)


def _cut(line: list[Span], text: str, cuts: list[int]) -> list[Row]:
    """Slice a line's spans at the cuts; spaces at the end of a row are left out."""
    bounds = [0, *cuts, len(text)]
    rows: list[Row] = []
    at = 0  # position of the span in hand
    index = 0
    for start, end in zip(bounds, bounds[1:], strict=False):
        row: list[Span] = []
        while index < len(line):
            part, style = line[index]
            piece = part[max(start - at, 0) : end - at]
            if piece:
                row.append((piece, style))
            if at + len(part) > end:
                break
            at += len(part)
            index += 1
        join = None if start == 0 else " " if text[start - 1] == " " else ""
        rows.append((_strip_end(row) if end < len(text) else row, join))
    return rows


def _strip_end(row: list[Span]) -> list[Span]:
    while row and row[-1][0].endswith(" "):
        text, style = row.pop()
        if text := text.rstrip(" "):
            row.append((text, style))
    return row
