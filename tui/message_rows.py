"""All rows of one message at one width: who, reasoning, text, state, footer.

Keeps the rows of closed blocks, so that a repaint while a reply streams lays out what is new and
nothing else. What grows with the reply is a list of references, which is copied. Pure but for the
cache that it is.
"""

from __future__ import annotations

from dataclasses import replace

from hobnob.tui import rows, words
from hobnob.tui.clean import clean, one_line
from hobnob.tui.inline import Span
from hobnob.tui.rows import EMPTY, Row, Tail
from hobnob.tui.transcript import ASSISTANT, REASONING, USER, Entry, Part
from hobnob.tui.wrap import shorten

REASONING_LEAD = "│ "
LONG_ROWS = 40
"""A user's text of more rows (a paste, a file) shows its beginning until it is opened."""
BEGINNING_ROWS = 20


class PartRows:
    """The rows of one content block."""

    def __init__(self, part: Part, width: int) -> None:
        self.part = part
        self.laid_out = 0
        """Closed blocks laid out so far, each once: for tests of what a chunk costs."""
        self._width = width
        self._tail = Tail(width)
        self._closed: list[Row] = []
        self.rows: list[Row] = []
        self.starts: list[int] = []
        """The row at which each closed block begins."""

    @property
    def work(self) -> int:
        """Characters of open blocks laid out so far."""
        return self._tail.work

    def update(self) -> int:
        """Lay out what is new. Returns how many rows at the front are as they were."""
        kept = len(self._closed)
        for block in self.part.closed[self.laid_out :]:
            self.starts.append(len(self._closed))
            if block.gap:
                self._closed.append(EMPTY)
            self._closed += rows.render(block, self._width)
            self.laid_out += 1
        open_rows: list[Row] = []
        for block, drawn in self._tail.rows(self.laid_out, self.part.open()):
            if block.gap:
                open_rows.append(EMPTY)
            open_rows += drawn
        self.rows = self._closed + open_rows
        return kept


class ReasoningRows(PartRows):
    """The rows of the thoughts, and the same as they are drawn."""

    def __init__(self, part: Part, width: int) -> None:
        super().__init__(part, max(width - len(REASONING_LEAD), 1))
        self.drawn: list[Row] = []
        self._counted = (0, 0)  # characters, and the words in them

    def update(self) -> int:
        kept = super().update()
        self.drawn[kept:] = [_within_reasoning(row) for row in self.rows[kept:]]
        return kept

    @property
    def words(self) -> int:
        if self._counted[0] != self.part.chars:
            self._counted = (self.part.chars, len(self.part.text.split()))
        return self._counted[1]


class UserRows:
    """A user's text, exactly as it was typed."""

    def __init__(self, part: Part, width: int) -> None:
        self.part = part
        self.starts: list[int] = [0]
        self._width = width
        self.rows: list[Row] = []

    def update(self) -> int:
        if not self.rows:
            text = clean(self.part.text.replace("\r\n", "\n"))
            self.rows = rows.plain(text, self._width)
        return len(self.rows)


class MessageRows:
    """Owned by one widget; made anew when the width changes."""

    def __init__(self, entry: Entry, width: int) -> None:
        self.entry = entry
        self.width = max(width, 1)
        self.rows: list[Row] = []
        self.folded: bool | None = None  # reasoning: None shows it only while it is written
        self.whole = False  # a long text of a user: all of it is shown
        self.left_out = False  # not in the last prompt, for lack of room
        self.texts: list[tuple[int, int]] = []
        """Where the rows of its words are: the first and the last but one of each stretch."""
        self._parts: list[PartRows | UserRows] = []

    def update(self) -> int:
        """Bring `rows` up to date. Returns the number of the first row that changed."""
        old = self.rows
        new = self.head()
        same = 0
        self.texts = []
        self._match_parts()
        for number, part in enumerate(self._parts):
            kept = part.update()
            if isinstance(part, ReasoningRows):
                drawn = self._reasoning(part, last=number == len(self._parts) - 1)
            else:
                drawn = self._opened(part) if isinstance(part, UserRows) else part.rows
                if number == 0:
                    same = len(new) + (kept if drawn is part.rows else 0)
            if new and drawn and number > 0:
                new.append(EMPTY)
            if part.part.kind != REASONING:
                self.texts.append((len(new), len(new) + len(drawn)))
            new += drawn
        new += self.foot()
        self.rows = new
        return _first_difference(old, new, same)

    def place(self, row: int) -> tuple[int, int]:
        """A row as (block, row within it): a place that a change of width does not move much."""
        starts = self._starts()
        at = max((n for n, start in enumerate(starts) if start <= row), default=0)
        return at, row - (starts[at] if starts else 0)

    def row_of(self, place: tuple[int, int]) -> int:
        starts = self._starts()
        if not starts:
            return 0
        block, offset = place
        start = starts[min(block, len(starts) - 1)]
        return min(start + offset, max(len(self.rows) - 1, 0))

    def _starts(self) -> list[int]:
        starts, at = [0], len(self.head())
        for part in self._parts:
            starts += [at + start for start in part.starts]
            at += len(part.rows)
        return starts

    def _match_parts(self) -> None:
        for number, part in enumerate(self.entry.parts):
            if number < len(self._parts) and self._parts[number].part is part:
                continue
            if self.entry.role == USER:
                self._parts[number:] = [UserRows(part, self.width)]
            elif part.kind == REASONING:
                self._parts[number:] = [ReasoningRows(part, self.width)]
            else:
                self._parts[number:] = [PartRows(part, self.width)]

    def head(self) -> list[Row]:
        """Who speaks, and which version of the message it is."""
        entry = self.entry
        who = {USER: "You", ASSISTANT: one_line(entry.model or "Assistant")}
        style = "you" if entry.role == USER else "who"
        spans: list[Span] = [
            (shorten(who.get(entry.role, one_line(entry.role)), self.width), style)
        ]
        extra = ""
        if len(entry.siblings) > 1 and entry.id in entry.siblings:
            extra += f"  ‹ {entry.siblings.index(entry.id) + 1} of {len(entry.siblings)} ›"
        if self.left_out:
            extra += "  not in the prompt: no room"
        if extra:
            spans.append((shorten(extra, self.width - len(spans[0][0])), "state"))
        return [Row(tuple(spans))]

    def _reasoning(self, part: ReasoningRows, *, last: bool) -> list[Row]:
        running = last and self.entry.live
        folded = not running if self.folded is None else self.folded
        mark = "▸" if folded else "▾"
        label = "thinking…" if running else f"thoughts, {part.words} words"
        head = Row(((shorten(f"{mark} {label}", self.width), "fold"),), action="fold")
        if folded:
            return [head]
        return [head, *part.drawn]

    def _opened(self, part: UserRows) -> list[Row]:
        if len(part.rows) <= LONG_ROWS:
            return part.rows
        if self.whole:
            label, shown = "▾ only the beginning", part.rows
        else:
            label = f"▸ {len(part.rows) - BEGINNING_ROWS} more lines"
            shown = part.rows[:BEGINNING_ROWS]
        return [*shown, Row(((shorten(label, self.width), "fold"),), action="fold")]

    def foot(self) -> list[Row]:
        """What is going on, or how it ended, below an empty row."""
        entry = self.entry
        foot: list[Row] = []
        if entry.role == USER:
            return foot
        for note in filter(None, [entry.not_saved and f"not saved: {entry.not_saved}"]):
            foot += rows.plain(clean(note), self.width, "failure")
        for note in entry.notes:
            foot += rows.plain(clean(note), self.width, "note")
        if entry.live:
            state = words.state(entry) or "writing…"
            foot += rows.plain(state, self.width, "state")
        else:
            foot += self._ended()
        return [EMPTY, *foot] if foot else foot

    def _ended(self) -> list[Row]:
        foot: list[Row] = []
        if failure := words.failure(self.entry):
            foot += rows.plain(failure, self.width, "failure")
        facts = words.footer(self.entry)
        if self.entry.cut:
            facts.append("/continue goes on")
        if facts:
            foot += rows.plain(words.SEPARATOR.join(facts), self.width, "footer")
        return foot


def _within_reasoning(row: Row) -> Row:
    spans = [(text, f"{style} reasoning".strip()) for text, style in row.spans]
    return replace(row, spans=((REASONING_LEAD, "marker"), *spans))


def _first_difference(old: list[Row], new: list[Row], start: int) -> int:
    """`start` rows are known to be the same in both."""
    at = min(start, len(old), len(new))
    if at and old[:1] != new[:1]:
        return 0
    for before, after in zip(old[at:], new[at:], strict=False):
        if before is not after and before != after:
            return at
        at += 1
    return at
