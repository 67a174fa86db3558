"""The transcript of the inline chat: finished rows are printed, the open end is drawn below them.

Takes the place of the scrolling transcript: what it is told is the same, but where that one
scrolls, this one leaves it to the terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

from rich.segment import Segment
from textual.app import ComposeResult
from textual.geometry import Size
from textual.strip import Strip

from hobnob.tui import inline_driver
from hobnob.tui.message import MessageView
from hobnob.tui.rows import EMPTY, Row
from hobnob.tui.scrollback import Scrolled
from hobnob.tui.transcript import ASSISTANT, Entry
from hobnob.tui.view import TranscriptView
from hobnob.tui.window import FIRST_MESSAGES

MOST_COLUMNS = 104
"""Rows longer than this are hard to read."""
ROWS_LEFT = 10
"""For the input and what stands around it, on the smallest screens too."""


class Printer(Protocol):
    """The app that it is in."""

    def print_above(self, rows: Sequence[Strip]) -> None: ...


class TailView(MessageView, can_focus=False):
    """The last rows of what is not printed yet."""

    def __init__(self) -> None:
        super().__init__(Entry("", ASSISTANT))
        self._shown: list[Row] = []

    @property
    def rows(self) -> list[Row]:
        return self._shown

    def draw(self, rows: list[Row]) -> None:
        if rows == self._shown:
            return
        taller = len(rows) != len(self._shown)
        self._shown = rows
        self._strips.clear()
        self.display = bool(rows)
        self.refresh(layout=taller)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._shown)

    def strip(self, row: Row) -> Strip:
        """A row as it is printed: on the terminal's own background and no longer than its text,
        so that it is copied and wrapped as text. There is nothing to click on."""
        spans = [span for span in row.spans if "code-copy" not in span[1]]
        strip = Strip([Segment(text, self._style(style)) for text, style in spans if text])
        for line_filter in self.app.get_line_filters():
            strip = strip.apply_filter(line_filter, self.app.screen.styles.background)
        return inline_driver.bare(strip)

    @property
    def columns(self) -> int:
        """Of the text. The last column stays free, so that no terminal wraps a full row."""
        return max(1, min(self.app.size.width - 1, MOST_COLUMNS))


class PrintedView(TranscriptView):
    def __init__(self) -> None:
        super().__init__()
        self._scrolled: list[Scrolled] = []
        self._ids: list[str] = []  # of the messages that are shown, in their order
        self._printed: set[str] = set()  # of all that are in the scrollback by now
        self._tail = TailView()

    def compose(self) -> ComposeResult:
        yield self._tail

    def _say_edges(self) -> None:
        """There are none: all of it is printed, or asked for."""

    def anchor(self, anchor: bool = True) -> None:
        """All that is drawn is in sight, and stays where it is while more comes below it."""

    @property
    def views(self) -> Sequence[MessageView]:
        return ()

    @property
    def following(self) -> bool:
        return True

    # ---- what is shown ------------------------------------------------------------------------

    async def show(self, entries: list[Entry], at: int | None = None, *, beyond: int = 0) -> None:
        """Print a conversation's end, or what follows message `at`; of the one that is printed
        already only what is new."""
        known = 0
        first_id = entries[0].id if entries else ""
        start = self._ids.index(first_id) if first_id in self._ids else 0
        for entry, id in zip(entries, self._ids[start:], strict=False):
            if entry.id != id:
                break
            known += 1
        self._entries = entries
        first = known
        if at is not None and at < known:
            first = at
        elif not known:
            first = max(0, len(entries) - FIRST_MESSAGES if at is None else at)
            earlier = first + beyond
            self._say(f"{earlier} earlier messages" if earlier else "", rule=bool(self._ids))
        self._scrolled = [Scrolled(entry) for entry in entries[first:]]
        if not entries and self._ids:
            self._say("a new conversation", rule=True)
        self._ids = [entry.id for entry in entries]
        self._printed.update(self._ids)
        self._print()

    async def add(self, entry: Entry) -> None:
        if entry.id in self._printed and not entry.live:
            # It was taken away for a while, and is still in the scrollback.
            self._ids.append(entry.id)
            return
        self._scrolled.append(Scrolled(entry))
        self._print()

    async def drop_from(self, number: int) -> None:
        del self._ids[number:]
        self._scrolled = [one for one in self._scrolled if one.entry in self._entries]
        self._print()

    def sync(self, entry: Entry) -> None:
        self._print()
        self.post_message(self.Moved())

    def view_of(self, entry: Entry) -> MessageView | None:
        return None

    async def go_to(self, at: int) -> None:
        """Print a message once more."""
        self._put(Scrolled(self._entries[at]).take(self._tail.columns))

    async def to_end(self) -> None:
        """It is always there."""

    async def earlier(self) -> None:
        """The terminal scrolls."""

    def on_resize(self) -> None:
        self._print()

    def leave(self) -> None:
        """Before another conversation is shown, and at the end: print what there is of a reply."""
        for one in self._scrolled:
            if not one.done:
                self._put([*one.rest(self._tail.columns), EMPTY])
        self._scrolled.clear()
        self._tail.draw([])

    def _print(self) -> None:
        """Print what is final, in the order of the messages; draw the rest."""
        if not self.is_attached:
            return
        width = self._tail.columns
        rest: list[Row] = []
        waiting: list[Scrolled] = []
        for one in self._scrolled:
            if not waiting:
                self._put(one.take(width))
            if not one.done:
                waiting.append(one)
                rest += one.rest(width)
            elif one.entry.id not in self._printed:
                self._printed.add(one.entry.id)
                self._ids.append(one.entry.id)
        self._scrolled = waiting
        room = max(1, self.app.size.height - ROWS_LEFT)
        self._tail.draw(rest[-room:])

    def _put(self, rows: Sequence[Row]) -> None:
        if rows:
            printer = cast(Printer, self.app)
            printer.print_above([self._tail.strip(row) for row in rows])

    def _say(self, words: str, *, rule: bool = False) -> None:
        width = self._tail.columns
        made = [Row((("─" * width, "rule"),)), EMPTY] if rule else []
        if words:
            made += [Row(((words[:width], "note"),)), EMPTY]
        self._put(made)
