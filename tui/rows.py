"""Blocks to the rows of a screen of a given width.

A row is styled text and what a click on it does; colours are the view's. Pure and the same for
a block that was streamed and one that was loaded. `Tail` draws the open end of a stream with
work that does not grow with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from hobnob.tui import blocks, inline, table
from hobnob.tui.blocks import Block
from hobnob.tui.highlight import highlight, language
from hobnob.tui.inline import Span
from hobnob.tui.wrap import fold_text, shorten, wrap

COPY_LABEL = "copy"
CODE_PAD = "  "
MIN_TEXT_CELLS = 8  # a lead (quotes, lists in lists) never leaves less than this for the text


@dataclass(frozen=True, slots=True)
class Row:
    spans: tuple[Span, ...]
    join: str | None = None
    """What joins it to the row above when copied; None for a line break of the text."""
    fill: str = ""
    """Style of the cells after the text."""
    action: str = ""
    """What a click does: copy-code, fold, or nothing."""

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.spans)


EMPTY = Row(())


def render(block: Block, width: int, *, colours: bool = True) -> list[Row]:
    """All rows of a block. `colours` is for code that is finished."""
    first, rest, room = _leads(block, width)
    if block.kind == blocks.CODE:
        rows = [_code_label(block, room)]
        rows += _code_rows(block, room) if colours else code_rows(block.lines, room)
    elif block.kind == blocks.TABLE:
        rows = [Row(tuple(spans)) for spans in table.render(block.lines, room)]
    elif block.kind == blocks.RULE:
        rows = [Row((("─" * room, "rule"),))]
    elif block.kind == blocks.MATH:
        rows = _wrapped([(block.text, "math")], room)
    else:
        rows = _wrapped(inline.spans(block.text, _base(block)), room)
    return _lead(rows, first, rest)


def plain(text: str, width: int, style: str = "") -> list[Row]:
    """Text as it was typed: every line break, every space."""
    return _wrapped([(text.expandtabs(4) if "\t" in text else text, style)], width)


def code_rows(lines: Iterable[str], room: int) -> list[Row]:
    """Rows of code without colours."""
    rows: list[Row] = []
    for line in lines:
        for at, part in enumerate(fold_text(line.expandtabs(4), room - 2 * len(CODE_PAD))):
            rows.append(_code_row(((part, "codeblock"),), None if at == 0 else ""))
    return rows


def _code_rows(block: Block, room: int) -> list[Row]:
    lines = tuple(line.expandtabs(4) for line in block.lines)
    rows: list[Row] = []
    for spans in highlight(lines, language(block.info)):
        for part, join in wrap(spans, room - 2 * len(CODE_PAD), fold=True):
            rows.append(_code_row(tuple(part), join))
    return rows


def _code_row(spans: tuple[Span, ...], join: str | None) -> Row:
    return Row(((CODE_PAD, "codeblock"), *spans), join, "codeblock")


def _code_label(block: Block, room: int) -> Row:
    inner = max(room - 2 * len(CODE_PAD), 0)
    copy = COPY_LABEL if inner >= len(COPY_LABEL) else ""
    name = shorten(language(block.info), inner - len(copy) - 1)
    space = " " * (inner - len(name) - len(copy))
    spans = ((CODE_PAD + name + space, "codeblock code-label"), (copy, "codeblock code-copy"))
    return Row(spans, None, "codeblock", "copy-code")


def _base(block: Block) -> str:
    if block.kind == blocks.HEADING:
        return f"heading{min(block.level, 3)}"
    return "quote" if block.quoted else ""


def _wrapped(spans: Iterable[Span], room: int) -> list[Row]:
    return [Row(tuple(part), join) for part, join in wrap(spans, room)]


def _leads(block: Block, width: int) -> tuple[str, str, int]:
    """What stands before the first row and the others, and the cells left for the text."""
    most = max(width - MIN_TEXT_CELLS, 0)
    first, rest = block.first, block.rest
    if len(rest) > most:
        first, rest = first[len(first) - most :], rest[len(rest) - most :]
    return first, rest, max(width - len(rest), 1)


def _lead(rows: list[Row], first: str, rest: str) -> list[Row]:
    if not first:
        return rows
    led = [replace(row, spans=((rest, "marker"), *row.spans)) for row in rows]
    led[0] = replace(rows[0], spans=((first, "marker"), *rows[0].spans))
    return led


class Tail:
    """The rows of the blocks that are still open. One for each stream and width."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._parts: dict[int, _Part] = {}
        self.work = 0
        """Characters laid out so far, for tests of what a chunk costs."""

    def rows(self, first: int, tail: list[Block]) -> list[tuple[Block, list[Row]]]:
        """Each open block with its rows; `first` is the number of the first of them."""
        parts: dict[int, _Part] = {}
        out = []
        for number, block in enumerate(tail, first):
            part = self._parts.get(number)
            if part is None or not part.grows_into(block):
                part = _part(block, self._width)
            parts[number] = part
            if part.block is not block and (part.block != block or not part.rows):
                self.work += part.update(block)
            out.append((block, part.rows))
        self._parts = parts
        return out


class _Part:
    """An open block that is laid out anew each time, as short ones are."""

    def __init__(self, block: Block, width: int) -> None:
        self.block = replace(block, lines=())
        self.width = width
        self.rows: list[Row] = []

    def grows_into(self, block: Block) -> bool:
        """Whether the rows that are finished are the first rows of `block` too."""
        old = self.block
        same = old.kind == block.kind and old.first == block.first and old.rest == block.rest
        return same and self._keeps(block)

    def _keeps(self, block: Block) -> bool:
        return True

    def update(self, block: Block) -> int:
        """Lay out what is new; how many characters that were."""
        self.block = block
        self.rows = render(block, self.width, colours=False)
        return len(block.text)


class _Code(_Part):
    """Open code: rows are only added. The last line may still grow."""

    def __init__(self, block: Block, width: int) -> None:
        super().__init__(block, width)
        self._lead = _leads(block, width)
        self._done = _lead([_code_label(block, self._lead[2])], *self._lead[:2])
        self._line = 0  # the line in work
        self._used = 0  # its characters that are in finished rows

    def _keeps(self, block: Block) -> bool:
        old, at = self.block.lines, self._line
        if block.lines[:at] != old[:at] or block.info != self.block.info:
            return False
        if not self._used:
            return True
        return len(block.lines) > at and block.lines[at].startswith(old[at])

    def update(self, block: Block) -> int:
        self.block = block
        work = 0
        fresh: list[Row] = []
        for number in range(self._line, len(block.lines)):
            text = block.lines[number].expandtabs(4)[self._used :]
            work += len(text)
            rows = self._rows(text)
            done = rows if number < len(block.lines) - 1 else rows[:-1]
            self._done += done
            if number < len(block.lines) - 1:
                self._line, self._used = number + 1, 0
            else:
                self._used += sum(len(row.text) - self._inset for row in done)
                fresh = rows[len(done) :]
        self.rows = self._done + fresh
        return work

    @property
    def _inset(self) -> int:
        return len(self._lead[1]) + len(CODE_PAD)

    def _rows(self, text: str) -> list[Row]:
        join = "" if self._used else None
        rows = code_rows([text], self._lead[2])
        rows[0] = replace(rows[0], join=join)
        lead = self._lead[1]
        return _lead(rows, lead, lead)


class _Paragraph(_Part):
    """Open text: pieces that more text cannot change are laid out once."""

    def __init__(self, block: Block, width: int) -> None:
        super().__init__(block, width)
        self._first, self._rest, self._room = _leads(block, width)
        self._style = _base(block)
        self._done: list[Row] = []
        self._carry: list[Span] = []
        self._join: str | None = None
        self._at = 0
        self._kept = ""  # the text in finished pieces

    def _keeps(self, block: Block) -> bool:
        return block.text.startswith(self._kept)

    def update(self, block: Block) -> int:
        self.block = block
        text = block.text
        before = self._at
        for start, end in inline.pieces(text, self._at, final=False):
            rows = self._wrap(inline.piece_spans(text[start:end], self._style))
            self._done += self._led(rows[:-1])
            self._carry, self._join = list(rows[-1].spans), rows[-1].join
            self._at = end
        self._kept = text[: self._at]
        rest = self._wrap(inline.piece_spans(text[self._at :], self._style))
        self.rows = self._done + self._led(rest)
        return len(text) - before

    def _wrap(self, spans: list[Span]) -> list[Row]:
        rows = _wrapped([*self._carry, *spans], self._room)
        rows[0] = replace(rows[0], join=self._join)
        return rows

    def _led(self, rows: list[Row]) -> list[Row]:
        if not rows:
            return rows
        return _lead(rows, self._rest if self._done else self._first, self._rest)


class _Table(_Part):
    """An open table: after so many rows the columns keep their widths until it is finished."""

    SETTLED_LINES = 40

    def __init__(self, block: Block, width: int) -> None:
        super().__init__(block, width)
        self._done: list[Row] = []
        self._lines = 0
        self._columns: list[int] | None = None

    def _keeps(self, block: Block) -> bool:
        return block.lines[: self._lines] == self.block.lines[: self._lines]

    def update(self, block: Block) -> int:
        if len(block.lines) <= self.SETTLED_LINES:
            return super().update(block)
        self.block = block
        first, rest, room = _leads(block, self.width)
        if self._columns is None:
            head = block.lines[: self.SETTLED_LINES]
            self._columns = table.columns(head, room)
            self._done = render(replace(block, lines=head), self.width)
            self._lines = len(head)
        new = block.lines[self._lines : -1]
        self._done += self._rows(new, block, rest)
        self._lines += len(new)
        self.rows = self._done + self._rows(block.lines[self._lines :], block, rest)
        return sum(map(len, new)) + len(block.lines[-1])

    def _rows(self, lines: tuple[str, ...], block: Block, lead: str) -> list[Row]:
        drawn = table.body(lines, self._columns or [], block.lines[1])
        rows = [Row(tuple(spans)) for spans in drawn]
        return _lead(rows, lead, lead) if rows else rows


def _part(block: Block, width: int) -> _Part:
    kinds = {blocks.CODE: _Code, blocks.PARAGRAPH: _Paragraph, blocks.TABLE: _Table}
    return kinds.get(block.kind, _Part)(block, width)
