"""Find in the open conversation: a line of input, the count, and the way from match to match.

Begins at the newest message and goes back, also to messages that were not read yet: it has them
read, and says what it has not seen so far. Does not keep a key waiting: it works in slices.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static

from hobnob.tui import words
from hobnob.tui.finding import Finder, Match, Wanted
from hobnob.tui.key_bar import Hints
from hobnob.tui.notice import ClientError
from hobnob.tui.talk import Talk
from hobnob.tui.transcript import Entry

SLICE_SECONDS = 0.01
MOST_MATCHES = 10_000
"""More are not counted: one letter is no search."""

ReadEarlier = Callable[[], Awaitable[int]]
"""Has older messages put before the entries; how many have come. Raises ClientError."""


class FindBar(Horizontal):
    key_hints: ClassVar[Hints] = (
        "find.earlier match before",
        "find.later after",
        "find.close close",
        "app.help keys",
    )
    HELP = "Enter and ↑ go to the match before, ↓ to the one after."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "Close", id="find.close"),
        Binding("up,enter", "step(1)", "Match before", id="find.earlier"),
        Binding("down,shift+enter", "step(-1)", "Match after", id="find.later"),
    ]

    @dataclass
    class Found(Message):
        """What is to be marked, and the match to be brought into sight."""

        wanted: Wanted | None
        match: Match | None

    @dataclass
    class Closed(Message):
        """`match`: the one that was shown last."""

        match: Match | None

    def __init__(self, talk: Talk, read_earlier: ReadEarlier) -> None:
        super().__init__(id="find")
        self.display = False
        self._talk = talk
        self._read_earlier = read_earlier
        self._finder = Finder()
        self._wanted: Wanted | None = None
        self._matches: list[Match] = []  # the newest one first
        self._at = 0
        self._seen: tuple[int, int] = (0, 0)  # what there was to search at the time
        self._searching = False
        self._state = ""  # what was not searched, in words

    def compose(self) -> ComposeResult:
        yield Input(placeholder="Find in this conversation", id="find-text", select_on_focus=True)
        yield Static(id="find-count", markup=False)

    def open(self) -> None:
        self.display = True
        self.take_focus()
        self._search(self.query_one(Input).value, None)

    def take_focus(self) -> None:
        if self.display:
            self.query_one(Input).focus()

    def again(self, step: int) -> None:
        """To another match of what was looked for last, among the messages as they are now."""
        self.action_step(step)

    def leave(self) -> None:
        """Another conversation is going to be shown."""
        if self.display:
            self._close()
        self._finder, self._matches, self._wanted = Finder(), [], None

    def action_close(self) -> None:
        match = self._match
        self._close()
        self.post_message(self.Closed(match))

    def _close(self) -> None:
        self.display = False
        self.workers.cancel_node(self)
        if self._searching:
            self._searching, self._seen = False, (0, 0)  # it was not finished
        self.post_message(self.Found(None, None))

    def action_step(self, step: int) -> None:
        """To another match; a positive step goes back in time."""
        if self._seen != self._there():  # new text has come
            self._search(self.query_one(Input).value, self._match, step)
        elif self._searching and not 0 <= self._at + step < len(self._matches):
            return  # what comes next is not known yet
        elif self._matches:
            self._at = (self._at + step) % len(self._matches)
            self._go()

    @on(Input.Submitted)
    def _enter(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_step(1)

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        self._search(event.value, None)

    # ---- searching ----------------------------------------------------------------------------

    @work(exclusive=True, group="find")
    async def _search(self, text: str, keep: Match | None, step: int = 0) -> None:
        """From the newest message back. `keep`: the match to be at, and to go on from."""
        self._wanted = self._finder.want(text)
        self._matches, self._at = [], 0
        self._seen, self._state, self._searching = self._there(), "", False
        if self._wanted is None:
            self._say()
            self.post_message(self.Found(None, None))
            return
        if self.display:
            self.post_message(self.Found(self._wanted, None))
        self._searching = True
        oldest = await self._search_above(None, keep)
        while self._talk.earlier and oldest is not None and len(self._matches) < MOST_MATCHES:
            self._state = f"searching {words.count(self._talk.earlier)} earlier messages…"
            self._say()
            try:
                await self._read_earlier()
            except ClientError:
                break
            before, oldest = oldest, await self._search_above(oldest, keep)
            if oldest is before:
                break  # there should be more, but nothing comes
        self._searching, left = False, self._talk.earlier
        self._state = f"{words.count(left)} earlier messages not searched" if left else ""
        if step and self._matches:
            self._at = (self._at + step) % len(self._matches)
            self._go()
        self._say()

    async def _search_above(self, below: Entry | None, keep: Match | None) -> Entry | None:
        """The entries above one, or all; the topmost one, None if they are not there any more."""
        entries = self._talk.entries
        if below is not None and below not in entries:
            return None
        number = len(entries) if below is None else entries.index(below)
        above = entries[:number]
        until = time.monotonic() + SLICE_SECONDS
        for entry in reversed(above):
            if len(self._matches) < MOST_MATCHES:
                self._add(self._finder.matches(entry), keep)
            if time.monotonic() > until:
                self._say()
                await asyncio.sleep(0)
                until = time.monotonic() + SLICE_SECONDS
        return above[0] if above else below

    def _add(self, found: list[Match], keep: Match | None) -> None:
        first = not self._matches
        self._matches += reversed(found)
        if keep in found:
            self._at = self._matches.index(keep)
        elif first and found and keep is None:
            self._go()

    def _there(self) -> tuple[int, int]:
        """What changes when there is more to search at the end."""
        entries = self._talk.entries
        return (len(entries) + self._talk.earlier, entries[-1].chars if entries else 0)

    # ---- showing ------------------------------------------------------------------------------

    @property
    def _match(self) -> Match | None:
        return self._matches[self._at] if self._matches else None

    def _go(self) -> None:
        self._say()
        self.post_message(self.Found(self._wanted if self.display else None, self._match))

    def _say(self) -> None:
        said = []
        count = len(self._matches)
        if count:
            more = "+" if count >= MOST_MATCHES else ""
            said.append(f"{words.count(count - self._at)} of {words.count(count)}{more}")
        elif self._wanted is not None and not self._searching:
            said.append("no match")
        if self._state:
            said.append(self._state)
        self.query_one("#find-count", Static).update(Content(words.SEPARATOR.join(said)))
