"""The chat's half for messages that are there: another reply to one, more of it, its versions.

One thing is on its way at a time: until it is there nothing else is sent or asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

from textual import on, work

from hobnob.tui import moves
from hobnob.tui.message import MessageView
from hobnob.tui.notice import ClientError
from hobnob.tui.reading import Reading
from hobnob.tui.talk import Outgoing, Talk
from hobnob.tui.transcript import Entry


@dataclass(slots=True, eq=False)
class Asked:
    """Another reply or version, until it is on the screen."""

    reply: bool
    """It is still to be written; else it is stored and is fetched."""
    cancelled: bool = False


class Versions(Reading):
    def __init__(self, talk: Talk) -> None:
        super().__init__(talk)
        self._asked: Asked | None = None

    @property
    def busy(self) -> bool:
        """Whether something is on its way to the server or from it, or a reply is being written."""
        return self.talk.live is not None or self.awaited

    @property
    def awaited(self) -> bool:
        """Whether something is on its way that is not on the screen yet."""
        return self._asked is not None

    @property
    def coming(self) -> Outgoing | Asked | None:
        """What will be a reply when the server has taken it."""
        return self._asked if self._asked is not None and self._asked.reply else None

    def say_busy(self) -> None:
        if self.coming is not None or self.talk.live is not None:  # else it is there in a moment
            self.app.notify("A reply is being written. Ctrl+C stops it.", markup=False)

    def edit(self, entry: Entry) -> None:
        """Into the input, to be sent in place of itself."""
        raise NotImplementedError

    async def _begin(self, reply: Entry) -> None:
        """A reply was accepted: show it and follow it."""
        raise NotImplementedError

    async def _show(self, at: str | None = None) -> None:
        """The entries are others: show them, at their end or at a message."""
        raise NotImplementedError

    def _leave_reply(self) -> None:
        """Another version is shown than the one that is being written, which goes on."""
        raise NotImplementedError

    def _stop(self, reply: Entry) -> object:
        raise NotImplementedError

    def _go_on(self) -> object:
        """Nothing is on its way any more: send what waits."""
        raise NotImplementedError

    @on(MessageView.Wish)
    async def _wish(self, event: MessageView.Wish) -> None:
        entry, what = event.view.entry, event.what
        if what in ("up", "down"):
            await self.action_to_message(-1 if what == "up" else 1)
        elif what == "leave":
            self.composer.focus()
        elif what in ("copy", "copy_code"):
            return  # the app has the clipboard
        elif what == "find":
            self.action_find()
        elif what in moves.NAMES:
            await moves.move(what, self)
        elif what in ("earlier", "later") and not self.awaited:
            self._asked = Asked(reply=False)
            self._switch(self._asked, entry, -1 if what == "earlier" else 1)
        elif self.busy:
            self.say_busy()
        elif what == "edit":
            self.edit(entry)
        elif what in ("regenerate", "go_on"):
            self._ask(entry, going_on=what == "go_on")
        event.stop()

    def regenerate_last(self, *, going_on: bool = False) -> None:
        if self.busy:
            self.say_busy()
        elif self.talk.entries:
            self._ask(self.talk.entries[-1], going_on=going_on)

    def _ask(self, entry: Entry, *, going_on: bool) -> None:
        old = self.talk.reply_at(entry)
        if old is not None:
            self._asked = Asked(reply=True)
            self._regenerate(self._asked, old, going_on=going_on)

    def _answered(self, asked: Asked) -> None:
        if self._asked is asked:
            self._asked = None

    @work(group="versions")
    async def _regenerate(self, asked: Asked, old: Entry, *, going_on: bool) -> None:
        try:
            reply = await (self.talk.go_on(old) if going_on else self.talk.regenerate(old))
        except ClientError as error:
            self.say_trouble(f"No new reply: {error.message}")
            self._go_on()
            return
        finally:
            self._answered(asked)
        reads = self._leave_messages()
        await self.view.drop_from(len(self.talk.entries) - 1)
        await self._begin(reply)
        if reads and self.composer.has_focus:
            self.view.focus_message(reply)
        if asked.cancelled:
            self._stop(reply)
        await self.view.to_end()

    @work(group="versions")
    async def _switch(self, asked: Asked, entry: Entry, step: int) -> None:
        live = self.talk.live
        try:
            shown = await self.talk.switch(entry, step)
            if shown is not None:
                if live is not None:
                    self._leave_reply()
                await self._show(shown.id)
        except ClientError as error:
            self.say_trouble(error.message)
        finally:
            self._answered(asked)
        self._go_on()

    def _leave_messages(self) -> bool:
        """A message that goes away must not take the focus to who knows where. True: one had it."""
        reads = isinstance(self.screen.focused, MessageView)
        if reads:
            self.composer.focus()
        return reads
