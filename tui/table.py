"""A Markdown table to rows: columns as wide as their words need, wrapped where they must be.

Where not even narrow columns fit, the lines are shown as they were written. No cell is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from rich.cells import cell_len

from hobnob.tui import blocks, inline
from hobnob.tui.inline import Span
from hobnob.tui.wrap import wrap

MIN_COLUMN_CELLS = 4
SEPARATOR = " │ "
Line = list[Span]


def render(lines: Sequence[str], width: int) -> list[Line]:
    """All rows of a table: header, rule, body."""
    widths = columns(lines, width)
    if not widths:
        return _as_written(lines, width)
    head = _row(lines[0], widths, lines[1], "table-head")
    rule = [("─┼─".join("─" * size for size in widths), "rule")]
    return [*head, rule, *body(lines[2:], widths, lines[1])]


def body(lines: Sequence[str], widths: list[int], delimiter: str) -> list[Line]:
    """The rows of some lines under columns that are settled."""
    if not widths:
        return [[(line.replace("\t", " "), "")] for line in lines]
    return [row for line in lines for row in _row(line, widths, delimiter, "")]


def columns(lines: Sequence[str], width: int) -> list[int]:
    """The width of each column; empty when the table does not fit."""
    table = [[_cells(cell) for cell in blocks.cells(line)] for line in _content(lines)]
    widths = [max(column) for column in zip_longest(*table, fillvalue=1)]
    room = width - len(SEPARATOR) * (len(widths) - 1)
    if room < MIN_COLUMN_CELLS * len(widths):
        return [] if sum(widths) > room else widths
    return _shrink(widths, room)


def _shrink(widths: list[int], room: int) -> list[int]:
    """Take from the widest columns, evenly, until they fit."""
    left, fair, open_ = room, 0, sorted(range(len(widths)), key=lambda at: widths[at])
    out = list(widths)
    for taken, at in enumerate(open_):
        fair = left // (len(open_) - taken)
        out[at] = min(widths[at], max(fair, 1))
        left -= out[at]
    return out


def _content(lines: Sequence[str]) -> list[str]:
    return [line for number, line in enumerate(lines) if number != 1]


def _cells(cell: str) -> int:
    return max(cell_len("".join(text for text, _ in inline.spans(cell))), 1)


def _row(line: str, widths: list[int], delimiter: str, style: str) -> list[Line]:
    aligns = blocks.alignments(delimiter)
    cells = blocks.cells(line)
    cells += [""] * (len(widths) - len(cells))
    wrapped = [
        [spans for spans, _ in wrap(inline.spans(cell, style), size)]
        for cell, size in zip(cells, widths, strict=False)
    ]
    rows = []
    for parts in zip_longest(*wrapped, fillvalue=[]):
        row: Line = []
        for at, part in enumerate(parts):
            if at:
                row.append((SEPARATOR, "rule"))
            row += _align(part, widths[at], aligns[at] if at < len(aligns) else "left")
        rows.append(row)
    return rows


def _align(part: Line, width: int, align: str) -> Line:
    space = max(width - cell_len("".join(text for text, _ in part)), 0)
    before = {"right": space, "center": space // 2}.get(align, 0)
    return [(" " * before, ""), *part, (" " * (space - before), "")]


def _as_written(lines: Sequence[str], width: int) -> list[Line]:
    return [spans for spans, _ in wrap([("\n".join(lines), "")], width)]
