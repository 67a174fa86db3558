"""What the terminal shows, and the fewest bytes to what it should show.

Textual writes every cell of a widget that has changed, and a transcript that follows a reply
changes as a whole with each new row. Here rows that only moved up are moved by the terminal itself
(a scrolling region and line feeds), cells that are as they were are left alone, a style is named
where it changes, and blanks are erased where the terminal says that this keeps their colour. Over
SSH that is the difference between twice the text and twenty times.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, repeat, takewhile

from rich.cells import split_graphemes
from rich.color import ColorSystem
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual.strip import Strip

from hobnob.tui.ink import ground_of, ink_of, is_bare, turn

MOST_ROWS_SCROLLED = 60
FEWEST_BLANKS_ERASED = 10
"""Fewer take no more bytes than erasing and stepping over them."""
MOST_CELLS_REPEATED = 8
"""So many cells that are right already are written again rather than stepped over."""
ACTING = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal acts on or cannot take. Others have cleaned what they show; this is the gate."""

Cell = tuple[str, str] | None
"""How (an SGR parameter string) and what; "" right of a wide character; None: not known."""
Row = list[Cell]


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a terminal can do beyond showing text at a place."""

    scrolls: bool = False  # it moves the rows of a region
    erases: bool = False  # it erases cells to the background colour then in use


def abilities(terminal: str) -> Abilities:
    """What its description (terminfo) says; nothing is taken for granted of an unknown one."""
    try:
        import curses
    except ImportError:  # a Python that was built without it
        return Abilities()
    try:
        curses.setupterm(terminal, 1)
        scrolls = bool(curses.tigetstr("csr") and curses.tigetstr("ind"))
        erases = curses.tigetflag("bce") > 0 and bool(curses.tigetstr("ech"))
    except curses.error:
        return Abilities()
    return Abilities(scrolls, erases)


class Picture:
    """One for each terminal. Draws what Textual's compositor has put together."""

    def __init__(self, can: Abilities) -> None:
        self._can = can
        self._rows: list[Row] = []
        self.written = 0
        """Characters drawn so far."""

    def forget(self) -> None:
        """The terminal may show anything now."""
        self._rows = []

    def drawing(self, update: RenderableType | None) -> RenderableType | None:
        """The same update, to be written in fewer bytes."""
        return _Drawing(self, update) if isinstance(update, ChopsUpdate | LayoutUpdate) else update

    def draw(self, update: ChopsUpdate | LayoutUpdate, colours: ColorSystem) -> str:
        """What to write; from then on it counts as shown."""
        pen = _Pen(self._can.erases)
        if isinstance(update, LayoutUpdate):
            self._draw_all(update, pen, colours)
        else:
            self._draw_changes(update, pen, colours)
        drawn = pen.finish()
        self.written += len(drawn)
        return drawn

    def _draw_all(self, update: LayoutUpdate, pen: _Pen, colours: ColorSystem) -> None:
        """Every cell, whatever was there: it heals a screen that something else wrote on."""
        region = update.region
        self._fit(region.bottom, region.right)
        for y, strips in enumerate(update.strips, region.y):
            x = region.x
            for strip in strips:
                found = _cells(strip, strip.cell_length, colours)
                self._rows[y][x : x + len(found)] = found
                x += len(found)
            pen.put(y, region.x, self._rows[y][region.x : x])

    def _draw_changes(self, update: ChopsUpdate, pen: _Pen, colours: ColorSystem) -> None:
        ends = update.chop_ends
        self._fit(len(update.chops), max((line[-1] for line in ends if line), default=0))
        wanted: dict[int, Row] = {}
        for y, low, high in update.spans:
            row = wanted.setdefault(y, self._rows[y].copy())
            for end, (x, strip) in zip(ends[y], update.chops[y].items(), strict=False):
                if strip is not None and x < high and end > low:
                    end = min(end, high)
                    row[x:end] = _cells(strip, end - x, colours)
        if self._can.scrolls:
            self._scroll(wanted, pen)
        for y, row in wanted.items():
            for start, stop in _changes(self._rows[y], row):
                pen.put(y, start, row[start:stop])
            self._rows[y] = row

    def _fit(self, height: int, width: int) -> None:
        if len(self._rows) != height or len(self._rows[0]) != width:
            self._rows = [[None] * width for _ in range(height)]

    def _scroll(self, wanted: Mapping[int, Row], pen: _Pen) -> None:
        """Let the terminal move rows up where that saves writing them."""
        top, bottom = _longest_run(wanted)
        before = self._rows[top:bottom]
        after = [wanted[y] for y in range(top, bottom)]
        spans = _all_changes(before, after)
        by = _moved(before, after, spans)
        if not by:
            return
        ink = _ground_of(after[-by:]) if self._can.erases else None
        fresh: Cell = None if ink is None else (ink, " ")
        moved = before[by:] + [[fresh] * len(before[0]) for _ in range(by)]
        if _cost(_all_changes(moved, after)) < _cost(spans):
            pen.scroll(top, bottom, by, ink or "")
            self._rows[top:bottom] = moved


class _Drawing(CompositorUpdate):
    def __init__(self, picture: Picture, update: ChopsUpdate | LayoutUpdate) -> None:
        self._picture = picture
        self._update = update

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._update

    def render_segments(self, console: Console) -> str:
        return self._picture.draw(self._update, console._color_system or ColorSystem.TRUECOLOR)


class _Pen:
    """Collects what is written in one update. Begins and ends with the terminal's own style."""

    def __init__(self, erases: bool) -> None:
        self._erases = erases
        self._out: list[str] = []
        self._ink = ""

    def put(self, y: int, x: int, cells: Sequence[Cell]) -> None:
        """Write cells from a place on; the last one is not what is right of a wide one."""
        at, lost = x, True  # whether the cursor may be elsewhere
        for cell, same in groupby(cells):
            start, count = at, sum(1 for _ in same)
            at += count
            ink, char = cell or ("", " ")
            if not char:
                continue
            if lost:
                self._out.append(f"\x1b[{y + 1};{start + 1}H")
            lost = _is_doubtful(char)
            if char == " " and count >= FEWEST_BLANKS_ERASED and self._erases and is_bare(ink):
                self._dip(ink)
                self._out.append(f"\x1b[{count}X")
                lost = True
                continue
            if char != " " or ground_of(self._ink) != ink:
                self._dip(ink)
            if lost:  # blanks first: a terminal that takes it for narrower leaves something of them
                halves = takewhile(_is_right_half, cells[at - x :])
                width = count + sum(1 for _ in halves)
                self._out.append(" " * width + f"\x1b[{y + 1};{start + 1}H")
            self._out.append(char * count)

    def scroll(self, top: int, bottom: int, by: int, ink: str) -> None:
        """Move the rows top..bottom-1 up; those that come in at the end have the ink's ground."""
        self._dip(ink)
        feeds = "\n" * by
        self._out.append(f"\x1b[{top + 1};{bottom}r\x1b[{bottom};1H{feeds}\x1b[r")

    def finish(self) -> str:
        self._dip("")
        return "".join(self._out)

    def _dip(self, ink: str) -> None:
        self._out.append(turn(self._ink, ink))
        self._ink = ink


# ---- rows ---------------------------------------------------------------------------------------


def _cells(strip: Strip, width: int, colours: ColorSystem) -> Row:
    """The first `width` cells of a strip."""
    row: Row = []
    for text, style, control in strip:
        if control:
            continue
        text = ACTING.sub("\ufffd", text)
        ink = "" if style is None else ink_of(style, colours)
        ground = ground_of(ink)
        if text.isascii():
            if ink == ground:
                row.extend(zip(repeat(ink), text, strict=False))
            else:
                row.extend([(ground, char) if char == " " else (ink, char) for char in text])
        else:
            _add_graphemes(row, text, ink)
    row.extend(repeat(("", " "), width - len(row)))
    del row[width:]
    return row


def _add_graphemes(row: Row, text: str, ink: str) -> None:
    for start, end, size in split_graphemes(text)[0]:
        char = text[start:end]
        if size:
            row.append((ground_of(ink) if char == " " else ink, char))
            row.extend(repeat((ink, ""), size - 1))
        elif row and (last := row[-1]) is not None:
            row[-1] = (last[0], last[1] + char)


def _changes(before: Row, after: Row) -> Iterator[tuple[int, int]]:
    """From where to where a row has to be written."""
    if before == after:
        return
    start = stop = -1
    for x, (old, new) in enumerate(zip(before, after, strict=True)):
        if old == new:
            continue
        if start >= 0 and (x - stop > MOST_CELLS_REPEATED or None in after[stop:x]):
            yield _whole(after, start, stop)
            start = -1
        if start < 0:
            start = x
        stop = x + 1
    yield _whole(after, start, stop)


def _whole(row: Row, start: int, stop: int) -> tuple[int, int]:
    """With both halves of the wide characters at its ends."""
    while start > 0 and _is_right_half(row[start]):
        start -= 1
    while stop < len(row) and _is_right_half(row[stop]):
        stop += 1
    return start, stop


def _is_right_half(cell: Cell) -> bool:
    return cell is not None and cell[1] == ""


def _all_changes(before: Sequence[Row], after: Sequence[Row]) -> list[tuple[int, int]]:
    rows = zip(before, after, strict=True)
    return [span for old, new in rows for span in _changes(old, new)]


def _cost(spans: Sequence[tuple[int, int]]) -> int:
    """About how many bytes it takes to write them."""
    return sum(stop - start + 8 for start, stop in spans)


def _longest_run(rows: Mapping[int, Row]) -> tuple[int, int]:
    """The first row and the one after the last of the longest series without a gap."""
    best = start = stop = 0
    low = high = -1
    for y in sorted(rows):
        if y != high:
            low = y
        high = y + 1
        if high - low > best:
            best, start, stop = high - low, low, high
    return start, stop


def _moved(before: Sequence[Row], after: Sequence[Row], spans: Sequence[tuple[int, int]]) -> int:
    """By how many rows most of what changed in `after` stood further down; 0 if none did."""
    if not spans or any(None in row for row in before):
        return 0
    low, high = min(start for start, _ in spans), max(stop for _, stop in spans)
    old, new = ([row[low:high] for row in rows] for rows in (before, after))
    best, most = 0, 0
    for by in range(1, min(len(old), MOST_ROWS_SCROLLED + 1)):
        same = sum(a == b for a, b in zip(new, old[by:], strict=False))
        if same > most:
            best, most = by, same
    return best


def _ground_of(rows: Sequence[Row]) -> str | None:
    """What most blanks of some rows have behind them."""
    inks = Counter(cell[0] for row in rows for cell in row if cell is not None and cell[1] == " ")
    bare = [ink for ink, _ in inks.most_common() if is_bare(ink)]
    return bare[0] if bare else None


@lru_cache(maxsize=4096)
def _is_doubtful(char: str) -> bool:
    """Whether terminals disagree on how wide it is: what follows it is put in its place."""
    return (
        len(char) > 1
        or "\u231a" <= char <= "\u23ff"
        or "\u25fb" <= char <= "\u2bff"
        or (char >= "\U0001f000")
    )
