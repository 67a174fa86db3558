"""Reading the open conversation: scrolling, going from message to message, thoughts, older
messages when they come into sight, and finding.

The part of the chat that writes nothing and asks the server for nothing but older messages.
"""

from __future__ import annotations

from typing import ClassVar

from textual import on, work
from textual.binding import Binding, BindingType
from textual.containers import Vertical

from hobnob.tui.composer import Composer
from hobnob.tui.find import FindBar
from hobnob.tui.message import MessageView
from hobnob.tui.notice import ClientError
from hobnob.tui.talk import LARGEST_PAGE, Talk
from hobnob.tui.view import TranscriptView


class Reading(Vertical):
    VIEW: ClassVar[type[TranscriptView]] = TranscriptView
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("pageup", "scroll_page(-1)", "Scroll up", id="chat.page_up", priority=True),
        Binding("pagedown", "scroll_page(1)", "Scroll down", id="chat.page_down", priority=True),
        Binding("shift+up", "scroll_rows(-3)", "Scroll up a little", id="chat.up", priority=True),
        Binding("shift+down", "scroll_rows(3)", "Scroll down", id="chat.down", priority=True),
        Binding("ctrl+end", "to_end", "To the newest text", id="chat.end", priority=True),
        Binding("alt+up", "to_message(-1)", "Message above", id="chat.message_up", priority=True),
        Binding(
            "alt+down", "to_message(1)", "Message below", id="chat.message_down", priority=True
        ),
        Binding("ctrl+f", "find", "Find in this conversation", id="chat.find", priority=True),
        Binding("ctrl+o", "fold", "Show or hide thoughts", id="chat.fold", priority=True),
    ]

    def __init__(self, talk: Talk) -> None:
        super().__init__(id="chat")
        self.talk = talk
        self._view = self.VIEW()
        self.find_bar = FindBar(talk, self._read_for_finding)
        self._finding_from_message = False
        self._unread = False  # older messages were wanted, and it was said that they did not come

    @property
    def view(self) -> TranscriptView:
        return self._view

    @property
    def composer(self) -> Composer:
        return self.query_one(Composer)

    def say_trouble(self, words: str) -> None:
        """A sentence above the transcript; empty to take it away."""
        raise NotImplementedError

    # ---- older messages -----------------------------------------------------------------------

    @on(TranscriptView.EarlierWanted)
    def _earlier_wanted(self, event: TranscriptView.EarlierWanted) -> None:
        event.stop()
        self._read_earlier()

    @work(exclusive=True, group="earlier")
    async def _read_earlier(self) -> None:
        try:
            count = await self.talk.read_earlier()
        except ClientError as error:
            self._unread = True
            self.say_trouble(f"Older messages could not be read: {error.message}")
            return
        if self._unread:
            self._unread = False
            self.say_trouble("")
        if count:
            self.view.put_before(count, self.talk.earlier)
            self.view.call_next(self.view.earlier)  # not here: this may be cancelled midway

    @work(exclusive=True, group="earlier")
    async def to_first(self) -> None:
        """To the first message of all, which may have to be read."""
        try:
            while self.talk.earlier and await self._read_for_finding():
                pass
        except ClientError as error:
            self.say_trouble(f"Older messages could not be read: {error.message}")
        if self.talk.entries:
            await self.view.go_to(0)
            self.view.focus_message(self.talk.entries[0])

    async def _read_for_finding(self) -> int:
        count = await self.talk.read_earlier(LARGEST_PAGE)
        if count:
            self.view.put_before(count, self.talk.earlier)
        return count

    # ---- scrolling ----------------------------------------------------------------------------

    def action_scroll_page(self, direction: int) -> None:
        view = self.view
        if direction < 0 and not view.scroll_y:
            view.call_next(view.earlier)
        elif direction < 0:
            view.scroll_page_up(animate=False)
        else:
            view.scroll_page_down(animate=False)

    def action_scroll_rows(self, rows: int) -> None:
        self.view.scroll_relative(y=rows, animate=False)

    async def action_to_end(self) -> None:
        await self.view.to_end()

    async def action_to_message(self, direction: int) -> None:
        """Move the focus from message to message; below the last one is the input."""
        views = list(self.view.views)
        focused = self.screen.focused
        at = views.index(focused) if focused in views else len(views)
        at += direction
        if at >= len(views):
            self.composer.focus()
        elif at >= 0:
            views[at].focus()
        else:
            await self.view.earlier()

    def action_fold(self) -> None:
        views = self.view.views
        focused = self.screen.focused
        if isinstance(focused, MessageView):
            focused.action_fold()
        elif views:
            views[-1].action_fold()

    # ---- finding ------------------------------------------------------------------------------

    def action_find(self) -> None:
        self._finding_from_message = isinstance(self.screen.focused, MessageView)
        self.find_bar.open()

    @on(FindBar.Found)
    async def _found(self, event: FindBar.Found) -> None:
        event.stop()
        await self.view.find(event.wanted, event.match)
        if event.match is not None and not self.find_bar.display:
            self.view.focus_message(event.match.entry)

    @on(FindBar.Closed)
    def _find_closed(self, event: FindBar.Closed) -> None:
        event.stop()
        if self._finding_from_message and event.match is not None:
            self.view.focus_message(event.match.entry)
        else:
            self.composer.focus()
