"""The scrolling transcript: message widgets for a window of the entries, and the follow.

Follows new text until the user scrolls away, and again from the end on. Keeps what is being
read where it is when older messages come in above or the width changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Static

from hobnob.tui import words
from hobnob.tui.finding import Match, Wanted
from hobnob.tui.growing import Growing
from hobnob.tui.message import MessageView
from hobnob.tui.transcript import Entry
from hobnob.tui.window import Window

NEAR_EDGE_ROWS = 2


class Edge(Static):
    """How many messages there are beyond the window; a click brings some in."""

    def __init__(self, id: str) -> None:
        super().__init__(id=id, markup=False)

    def say(self, words: str) -> None:
        self.update(Content(words))
        self.display = bool(words)


@dataclass(frozen=True, slots=True)
class Place:
    """What stands at the top of the view: a message, and where in it."""

    view: MessageView
    spot: tuple[int, int]


class Column(Growing, Vertical):
    """The messages. As high as the view at least: following the end needs that."""


class TranscriptView(Growing, VerticalScroll, can_focus=False):
    ALLOW_SELECT: ClassVar[bool] = True

    class Moved(Message):
        """The view scrolled, or what it shows has changed."""

    class EarlierWanted(Message):
        """The first of the entries is in sight, and there are messages before it."""

    def __init__(self) -> None:
        super().__init__(id="transcript")
        self._beyond = 0
        self._wanted: Wanted | None = None
        self._match: Match | None = None
        self._entries: list[Entry] = []
        self._window = Window(0, 0, 0)
        self._views: list[MessageView] = []
        self._place: Place | None = None
        self._moving = False
        self._settled = True
        self._aim: Callable[[], None] | None = None
        self._held = False

    def compose(self) -> ComposeResult:
        with Column(id="column"):
            yield Edge("earlier")
            yield Edge("later")

    def on_mount(self) -> None:
        self.anchor()
        self._say_edges()
        self.screen.screen_layout_refresh_signal.subscribe(self, self._laid_out, immediate=True)

    @property
    def _column(self) -> Column:
        return self.query_one(Column)

    # ---- what is shown ------------------------------------------------------------------------

    @property
    def views(self) -> Sequence[MessageView]:
        """The mounted messages, oldest first."""
        return self._views

    @property
    def following(self) -> bool:
        """Whether new text will be scrolled into view: until the user scrolls away."""
        return self._window.later == 0 and self.is_anchored and not self._anchor_released

    @property
    def at_end(self) -> bool:
        """Whether there is nothing below, followed or not."""
        return self._window.later == 0 and self.scroll_y >= self.max_scroll_y

    async def show(self, entries: list[Entry], at: int | None = None, *, beyond: int = 0) -> None:
        """Show other entries: the end of them, or message number `at`. `beyond`: how many
        messages there are before the entries."""
        self._entries, self._beyond = entries, beyond
        count = len(entries)
        self._window = Window.last(count) if at is None else Window.around(at, count)
        # The new ones are in their place before anything is waited for: a scroll or a message that
        # comes meanwhile finds what belongs to the window.
        with self.app.batch_update():
            removed = self.query(MessageView).remove()
            self._views = self._made(self._window.low, self._window.high)
            mounted = self._column.mount_all(self._views, before="#later")
            await removed
            await mounted
        self._say_edges()
        self._place = self._aim = None
        if at is None:
            self.anchor()
        else:
            self.release_anchor()
            self._aim = partial(self._to_message, entries[at])
        self._settle_when_laid_out()

    async def add(self, entry: Entry) -> None:
        """Show a message after the others; it has just been put at the end of the entries."""
        showed_end = self._window.later == 0
        self._window = self._window.grown()
        if showed_end:
            view = self._made_of(entry)
            self._views.append(view)
            await self._column.mount(view, before="#later")
            await self._trim()
        self._say_edges()

    async def drop_from(self, number: int) -> None:
        """Messages from a number on are no longer among the entries."""
        gone = [view for view in self._views if view.entry not in self._entries]
        self._views = [view for view in self._views if view.entry in self._entries]
        high = min(self._window.high, number)
        self._window = Window(min(self._window.low, high), high, number)
        for view in gone:
            await view.remove()
        self._say_edges()
        self._settle_when_laid_out()

    def sync(self, entry: Entry) -> None:
        """Draw what is new in an entry."""
        for view in reversed(self._views):
            if view.entry is entry:
                view.sync()
                self.post_message(self.Moved())
                return

    def view_of(self, entry: Entry) -> MessageView | None:
        return next((view for view in self._views if view.entry is entry), None)

    async def go_to(self, at: int) -> None:
        """Bring message number `at` into view, whether it is mounted or not."""
        entry = self._entries[at]
        if self.view_of(entry) is None:
            await self.show(self._entries, at, beyond=self._beyond)
        else:
            self.release_anchor()
            self._aim = partial(self._to_message, entry)
            self._settle_when_laid_out()

    async def find(self, wanted: Wanted | None, match: Match | None) -> None:
        """Mark what is looked for, and bring one match into view, mounted so far or not."""
        self._wanted, self._match = wanted, match
        if match is not None and match.entry in self._entries:
            if self.view_of(match.entry) is None:
                number = self._entries.index(match.entry)
                await self.show(self._entries, number, beyond=self._beyond)
            self.release_anchor()
            self._aim = self._to_match
            self._settle_when_laid_out()
        for view in self._views:
            self._mark(view)

    def _mark(self, view: MessageView) -> None:
        match = self._match
        mine = match is not None and match.entry is view.entry
        view.mark(self._wanted, match.nth if match is not None and mine else None)

    def focus_message(self, entry: Entry) -> None:
        view = self.view_of(entry)
        if view is not None:
            view.focus(scroll_visible=False)

    async def to_end(self) -> None:
        """Follow again."""
        if self._window.later:
            await self.show(self._entries, beyond=self._beyond)
        else:
            self._aim = None
            self.scroll_end(animate=False)

    def mark_left_out(self, ids: set[str]) -> None:
        for view in self._views:
            view.set_left_out(view.entry.id in ids)

    # ---- older and newer ones -----------------------------------------------------------------

    async def earlier(self) -> None:
        """Mount older messages above; what is being read stays where it is."""
        if self._window.earlier:
            await self._move(self._window.up())
        elif self._beyond:
            self.post_message(self.EarlierWanted())

    def put_before(self, count: int, beyond: int) -> None:
        """So many have just been put before the entries; they are mounted when they are wanted."""
        self._window = self._window.grown_before(count)
        self._beyond = beyond
        self._say_edges()

    async def later(self) -> None:
        await self._move(self._window.down())

    async def _move(self, window: Window) -> None:
        if self._moving or window == self._window:
            return
        self._moving = True
        old, self._window = self._window, window
        self._place = self._place or self._reading()
        above = self._made(window.low, min(old.low, window.high))
        below = self._made(max(old.high, window.low), window.high)
        with self.app.batch_update():
            self._views = above + self._views + below
            mounted = [
                self._column.mount_all(above, after="#earlier"),
                self._column.mount_all(below, before="#later"),
            ]
            for one in mounted:
                await one
            await self._trim()
        self._say_edges()
        self._settle_when_laid_out()

    async def _trim(self) -> None:
        """Unmount what the window has left behind."""
        kept = self._entries[self._window.low : self._window.high]
        inside = {id(entry) for entry in kept}
        gone = [view for view in self._views if id(view.entry) not in inside]
        self._views = [view for view in self._views if id(view.entry) in inside]
        for view in gone:
            await view.remove()

    def _fill(self) -> None:
        """A high screen has room for more than what is mounted at first."""
        if self._views and self.max_scroll_y <= NEAR_EDGE_ROWS:
            self.call_next(self.earlier)
        if self._window.later and self.scroll_y >= self.max_scroll_y - NEAR_EDGE_ROWS:
            self.call_next(self.later)

    def _made(self, low: int, high: int) -> list[MessageView]:
        return [self._made_of(entry) for entry in self._entries[low:high]]

    def _made_of(self, entry: Entry) -> MessageView:
        view = MessageView(entry)
        self._mark(view)
        return view

    def _settle_when_laid_out(self) -> None:
        """Scroll to where the view is to be as soon as the mounted messages have their rows.

        A refresh is not enough: behind a dialog, or while frames are held back, it lays out
        nothing, and every message would seem to be at the top.
        """
        self._settled = False
        self.call_after_refresh(self._settle)

    def _laid_out(self, _: Screen[Any]) -> None:
        if not self._settled:
            self.call_next(self._settle)

    def _settle(self) -> None:
        """Where somebody went last, however long that had to wait; else what was read before."""
        if self._settled or any(view.layout_rows is None for view in self._views):
            return
        self._settled, self._moving = True, False
        aim, self._aim = self._aim, None
        if aim is not None:
            aim()
        elif not self.following:
            self._restore()
        self._fill()

    def _say_edges(self) -> None:
        earlier, later = self._window.earlier + self._beyond, self._window.later
        self.query_one("#earlier", Edge).say(_counted("↑", earlier, "earlier"))
        self.query_one("#later", Edge).say(_counted("↓", later, "later"))

    async def on_click(self, event: events.Click) -> None:
        if event.widget is not None and event.widget.id == "earlier":
            await self.earlier()
        elif event.widget is not None and event.widget.id == "later":
            await self.later()

    # ---- place --------------------------------------------------------------------------------

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if not self._moving:
            if not self._held:
                self._place = self._reading()
            if new_value <= NEAR_EDGE_ROWS and new_value < old_value:
                self.call_next(self.earlier)
            elif self._window.later and new_value >= self.max_scroll_y - NEAR_EDGE_ROWS:
                self.call_next(self.later)
        self.post_message(self.Moved())

    def release_anchor(self) -> None:
        if self.is_anchored and not self._anchor_released:
            self._place = self._reading()
        super().release_anchor()

    def _check_anchor(self) -> None:
        """Only who scrolls to the end follows it, and not who is there as all has its place."""
        if not self._held:
            super()._check_anchor()

    def _size_updated(
        self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True
    ) -> bool:
        """In another size the rows are others: where this scrolls to is nobody's wish."""
        self._held = size != self._size
        try:
            return super()._size_updated(size, virtual_size, container_size, layout)
        finally:
            self._held = False

    def on_resize(self) -> None:
        if not self.following:
            self._settle_when_laid_out()

    def _reading(self) -> Place | None:
        """What is at the top of the view now."""
        top = round(self.scroll_y)
        for view in self._views:
            region = view.virtual_region
            if region.bottom > top and view.layout_rows is not None:
                return Place(view, view.layout_rows.place(max(top - region.y, 0)))
        return None

    def _restore(self) -> None:
        place = self._place
        if place is None or not place.view.is_attached or place.view.layout_rows is None:
            return
        row = place.view.layout_rows.row_of(place.spot)
        # The place stays the one that was read: of a row that is wider now it would be the start.
        self._held = True
        try:
            self.scroll_to(y=place.view.virtual_region.y + row, animate=False, immediate=True)
        finally:
            self._held = False

    def _to_match(self) -> None:
        view = None if self._match is None else self.view_of(self._match.entry)
        row = None if view is None or self._match is None else view.row_of_match(self._match.nth)
        if view is None or row is None:
            return
        y = view.virtual_region.y + row
        high = self.scrollable_content_region.height
        if not self.scroll_y <= y < self.scroll_y + high:
            self.scroll_to(y=max(y - high // 3, 0), animate=False, immediate=True)

    def _to_message(self, entry: Entry) -> None:
        view = self.view_of(entry)
        if view is not None:
            y = max(view.virtual_region.y - 1, 0)
            self.scroll_to(y=y, animate=False, immediate=True)
            self._check_anchor()  # it was there already


def _counted(arrow: str, number: int, which: str) -> str:
    if not number:
        return ""
    return f"{arrow} {words.count(number)} {which} message{'' if number == 1 else 's'}"
