"""The chat's half for writing: what is typed, sent, followed and stopped.

Owns the order of things (send, follow, stop, switch); the talk asks the server, the view shows.
Nothing here waits for the network: that happens in workers, and each turns what went wrong into
words on the screen.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar

from textual import on, work
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.timer import Timer

from hobnob.tui.commands import command_of
from hobnob.tui.composer import Composer
from hobnob.tui.doubt import Doubt
from hobnob.tui.drafts import Drafts
from hobnob.tui.drawing import DrawingApp
from hobnob.tui.early import EarlyKeys
from hobnob.tui.elsewhere import DELETED
from hobnob.tui.folds import Typed
from hobnob.tui.key_bar import Hints
from hobnob.tui.message import MessageView
from hobnob.tui.notice import ClientError
from hobnob.tui.painter import Painter
from hobnob.tui.panel import Panel
from hobnob.tui.prompts import Prompts
from hobnob.tui.records import Conversation
from hobnob.tui.running import Running
from hobnob.tui.shell_notation import literal
from hobnob.tui.talk import Outgoing, Talk
from hobnob.tui.temporary import GONE
from hobnob.tui.transcript import USER, Entry
from hobnob.tui.versions import Asked
from hobnob.tui.waiting import Waiting

DRAFT_PAUSE_SECONDS = 0.7
LONG_SECONDS = 10.0
"""A reply that took less has come before one is deep in something else: it rings no bell."""
NOT_HERE = "The message that you are editing is in another version. Esc leaves the editing."
STRAYED = "The message that you were editing is not here. What you wrote is in the input."


class Chat(Running):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "Stop", id="chat.stop"),
        Binding("alt+w", "waiting", "Messages that wait", id="chat.waiting", priority=True),
    ]
    key_hints: ClassVar[Hints] = (
        "Enter send",
        "composer.newline new line",
        "chat.stop stop",
        "app.list list",
        "Ctrl+P commands",
        "app.help keys",
    )

    class Changed(Message):
        """A turn was accepted or has ended: the list of conversations may look different."""

    class Command(Message):
        """A / command of the app was typed, if need be with a word after it."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(
        self,
        talk: Talk,
        drafts: Drafts,
        prompts: Prompts,
        early: EarlyKeys,
        *,
        vi: bool = False,
        first: str | None = None,
    ) -> None:
        """`first`: a conversation that is going to be opened, see `open_first`."""
        super().__init__(talk, drafts, prompts, first)
        self._early = early
        self._vi = vi  # Esc in the input goes to the messages
        self._painter = Painter(self._view, self._written)
        self._doubt = Doubt()
        self._opened = 0
        self._first = first
        self._draft_timer: Timer | None = None
        self._typing = False  # there is something in the input

    async def on_mount(self) -> None:
        await self.view.show(self.talk.entries)
        self.show_title()
        self._show_welcome()
        if not self._between:
            self._load_draft()
        self.run_worker(self._outlook.run(), group="outlook")
        self._early.give(self.composer)
        self.composer.focus()

    def _written(self) -> int:
        return self.app.written if isinstance(self.app, DrawingApp) else 0

    # ---- opening ------------------------------------------------------------------------------

    def open(self, id: str, at: str | None = None) -> None:
        """Show a stored conversation, at its end or at a message."""
        self.leave()
        self._opening = id
        self.show_title()
        if at is None:
            self.composer.focus()  # now: when it is there somebody may be elsewhere already
        self._open(id, at)

    def open_first(self) -> bool:
        """Open what the app was started for. False: nothing, or it is not wanted any more."""
        first, self._first = self._first, None
        if first is not None:
            self._open(first, None)
        return first is not None

    def new(self, *, temporary: bool = False) -> None:
        self.leave()
        self.composer.focus()
        self.talk.clear(temporary=temporary)
        self._show_fresh()

    @work(exclusive=True, group="show")
    async def _show_fresh(self) -> None:
        await self._show()
        self._load_draft()
        self._go_on()

    @work(exclusive=True, group="show")
    async def _open(self, id: str, at: str | None) -> None:
        try:
            await self.talk.open(id, at)
        except ClientError as error:
            self.say_trouble(error.message)
            self._load_draft()
            self.show_title()
            self._take_back(self._waiting.take_all())
            self._show_hint()
            return
        await self._unsent.reach()
        await self._show(at)
        self._load_draft()
        self._warm()
        self._go_on()

    @work(exclusive=True, group="warm")
    async def _warm(self) -> None:
        await self.talk.warm()

    def leave(self) -> None:
        """Before another conversation is shown, and at the end: keep what was typed."""
        self._opened += 1
        self.leave_commands()
        self.save_draft()
        if self._between:
            self._unsent.keep(self._opening, [*self._waiting.messages, self.composer.typed])
        self._first = self._opening = None
        self._between = True
        self.composer.take()
        for group in ("follow", "send", "versions", "go-on", "earlier"):
            self.workers.cancel_group(self, group)
        self._asked = None
        self._unsent.leave()
        self._elsewhere.hint = ""
        self.find_bar.leave()
        self._painter.forget()
        self._waiting.take_all()

    async def _show(self, at: str | None = None) -> None:
        ids = [one.id for one in self.talk.entries]
        number = ids.index(at) if at in ids else None
        self._leave_messages()
        await self.view.show(self.talk.entries, number, beyond=self.talk.earlier)
        if number is not None:
            self.view.focus_message(self.talk.entries[number])
        self.show_title()
        self._show_welcome()
        self.say_trouble("")
        self.view.mark_left_out(self.talk.left_out)
        if self.talk.live is not None:
            self._follow(self.talk.live)
        self.post_message(self.Changed())

    # ---- sending ------------------------------------------------------------------------------

    @on(Composer.Submitted)
    def _submitted(self, event: Composer.Submitted) -> None:
        event.stop()
        text, edit = event.text, self._unsent.edit
        if asked := self._doubt.about(text):
            self.app.notify(asked, markup=False)
        elif command_of(text) is not None:
            if edit is None:
                self.composer.take()
            else:  # it goes on after the command
                self.composer.put(literal(edit.entry.text))
            self.post_message(self.Command(text.strip()))
        elif not text.strip():
            return
        elif edit is None and self.busy:
            self._waiting.put(self.composer.take())
            self._show_hint()
        elif self.busy and self.talk.live is None:
            self.say_busy()
        elif edit is not None and self._unsent.edited is None:
            self.say_trouble(NOT_HERE)
        else:
            self._deliver(self.composer.take())

    def _deliver(self, typed: Typed) -> None:
        out = self._unsent.prepare(typed)
        self._prompts.add(typed.full)
        if self._unsent.edit is not None:
            self.composer.put(self._unsent.end_edit())
        self.save_draft()
        self._send(out)

    @work(group="send")
    async def _send(self, out: Outgoing) -> None:
        if out.replaced:
            await self.view.drop_from(len(self.talk.entries) - 1)
        self._show_welcome()
        await self.view.add(out.entry)
        await self.view.to_end()
        before = self.talk.id
        try:
            reply = await self.talk.send(out)
        except ClientError as error:
            await self._not_sent(out, error)
            return
        self._unsent.accepted(before)
        self.save_draft()
        self.view.sync(out.entry)
        await self._begin(reply)
        if out.cancelled:
            self._stop(reply)

    async def _not_sent(self, out: Outgoing, error: ClientError) -> None:
        """Nothing was lost: the text is back in the input, ready to be sent again."""
        back = self._unsent.refused(self._waiting.take_all(), self.composer.typed)
        self.composer.put(back)
        await self.view.drop_from(len(self.talk.entries) - len(out.replaced))
        for entry in out.replaced:
            await self.view.add(entry)
        self._show_welcome()
        self.say_trouble(f"Not sent: {error.message}")
        self._show_hint()
        self.composer.focus()

    async def _begin(self, reply: Entry) -> None:
        """A reply was accepted: show it and follow it."""
        await self.view.add(reply)
        self.say_trouble("")
        self.show_title()
        self._show_hint()
        self.post_message(self.Changed())
        self._follow(reply)

    @work(exclusive=True, group="follow")
    async def _follow(self, reply: Entry) -> None:
        began = time.monotonic()
        try:
            await self.talk.follow(reply, self._painter.touch)
        except ClientError as error:  # no connection to begin with
            reply.trouble = error.message
            self._painter.touch(reply)
            return
        self._painter.flush()
        if not self.app.app_focus and time.monotonic() - began >= LONG_SECONDS:
            self.app.bell()
        self.view.mark_left_out(self.talk.left_out)
        self._show_hint()
        self._ask_outlook()
        self.post_message(self.Changed())
        self._go_on()

    # ---- what others write --------------------------------------------------------------------

    def changed_elsewhere(self, conversation: Conversation) -> bool:
        """What became of a conversation. False: it is not the open one, or nothing new."""
        if not self.talk.adopt(conversation):
            return False
        self.show_title()
        self._go_on()
        return True

    def deleted_elsewhere(self) -> None:
        self.say_trouble(f"{GONE} Ctrl+N begins a new one." if self.talk.temporary else DELETED)

    @work(group="go-on")
    async def _go_on(self) -> None:
        """Nothing is being written here: show what others wrote, then send what waits."""
        opened = self._opened

        def wanted() -> bool:
            return not self.busy and opened == self._opened

        if await self._elsewhere.bring(wanted=wanted, may_replace=self._watches_the_end):
            self._show_welcome()
            self._ask_outlook()
            if self.talk.live is not None:
                self._follow(self.talk.live)
        self._show_hint()
        if not wanted() or self._unsent.edit is not None:
            return
        if (waiting := self._waiting.take_first()) is not None:
            self._deliver(waiting)

    def _watches_the_end(self) -> bool:
        reads = isinstance(self.screen.focused, MessageView) or not self.view.following
        return not reads and self._unsent.edit is None

    def action_waiting(self) -> None:
        if self._waiting.messages:
            self._waiting.focus()

    @on(Waiting.Left)
    def _waiting_left(self, event: Waiting.Left) -> None:
        event.stop()
        if event.typed.text:
            self._take_back([event.typed])
        self.composer.focus()
        self._show_hint()

    def _take_back(self, typed: Sequence[Typed]) -> None:
        """What was to be sent is in the input again, above what is there."""
        if self._unsent.edit is not None:
            self._unsent.put_aside(typed)
        elif typed:
            self.composer.put(Typed.joined([*typed, self.composer.typed]))

    # ---- stopping -----------------------------------------------------------------------------

    @property
    def awaited(self) -> bool:
        return super().awaited or self._between or self._unsent.outgoing is not None

    @property
    def coming(self) -> Outgoing | Asked | None:
        return self._unsent.outgoing or super().coming

    def action_stop(self) -> None:
        """Esc: stop the command that runs, else close the panel, else leave editing, else stop the
        reply and take back what waits behind it."""
        if self.stop_commands():
            return
        if panels := [one for one in self.screen.query(Panel) if one.display]:
            panels[0].toggle()
        elif self._unsent.edit is not None:
            self.composer.put(self._unsent.end_edit())
            self.save_draft()
            self._go_on()
        elif not self.stop() and self._vi and not self.busy and self.view.views:
            self.view.views[-1].focus()

    def stop(self) -> bool:
        """Stop the command that runs, else the reply. False: there is none, or it will be stopped
        already."""
        if self.stop_commands():
            return True
        coming, live = self.coming, None if self._between else self.talk.live
        if coming is not None and not coming.cancelled:
            coming.cancelled = True
        elif coming is None and live is not None:
            self._stop(live)
        else:
            return False
        self._take_back(self._waiting.take_all())
        self._show_hint()
        return True

    @work(group="stop")
    async def _stop(self, reply: Entry) -> None:
        try:
            await self.talk.stop(reply)
        except ClientError as error:
            self.say_trouble(f"Not stopped: {error.message}")

    def _leave_reply(self) -> None:
        self.workers.cancel_group(self, "follow")
        self._painter.forget()
        self._take_back(self._waiting.take_all())
        self.app.notify("The reply goes on in the version that you left.", timeout=4, markup=False)

    # ---- editing ------------------------------------------------------------------------------

    def edit(self, entry: Entry) -> None:
        if entry.role != USER:
            return
        edit = self._unsent.edit
        if edit is not None and edit.entry.id == entry.id:
            self.composer.focus()
        elif edit is not None and self.composer.message != edit.entry.text:
            self.app.notify("You are editing another message. Esc leaves that.", markup=False)
        else:
            self._unsent.begin_edit(entry, self.composer.typed)
            self.composer.put(literal(entry.text))
            self.composer.focus()
            self._show_hint()

    # ---- drafts -------------------------------------------------------------------------------

    @on(Composer.Changed)
    def _typed(self, event: Composer.Changed) -> None:
        event.stop()
        self._ask_outlook()
        began, self._typing = not self._typing, bool(event.text_area.text)
        if began and self._typing and not self._between:
            self._warm()
        if self._draft_timer is None:
            self._draft_timer = self.set_timer(DRAFT_PAUSE_SECONDS, self.save_draft)

    def save_draft(self) -> None:
        """Write what is typed, and what is on its way or waits, to disk."""
        if self._draft_timer is not None:
            self._draft_timer.stop()
            self._draft_timer = None
        if self._between or not self.is_mounted:
            return
        self._unsent.save(self.composer.typed, self._waiting.messages)

    def _load_draft(self) -> None:
        """What was typed here before, and after it what was typed while it was opened."""
        self._between, self._opening = False, None
        meanwhile = self.composer.typed
        self.composer.put(self._unsent.load())
        if meanwhile.text:
            self.composer.put(Typed.joined([self.composer.typed, meanwhile]))
        self._typing = bool(self.composer.text)
        if self._unsent.strayed:
            self.say_trouble(STRAYED)
        self._show_hint()
        self._ask_outlook()
