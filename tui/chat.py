"""The chat's half for writing: transcript, input and what stands around them.

Owns the order of things (send, follow, stop, switch); the talk asks the server, the view shows.
Nothing here waits for the network: that happens in workers, and each turns what went wrong into
words on the screen.
"""

from __future__ import annotations

from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Static

from hobnob.tui.clean import clean
from hobnob.tui.commands import COMMANDS, matching
from hobnob.tui.completions import Completions
from hobnob.tui.composer import Composer
from hobnob.tui.drafts import Draft, Drafts
from hobnob.tui.drawing import DrawingApp
from hobnob.tui.early import EarlyKeys
from hobnob.tui.elsewhere import DELETED, Elsewhere
from hobnob.tui.folds import Typed
from hobnob.tui.message import MessageView
from hobnob.tui.notice import ClientError
from hobnob.tui.outlook import Outlook
from hobnob.tui.painter import Painter
from hobnob.tui.prompts import Prompts
from hobnob.tui.records import Conversation
from hobnob.tui.talk import Outgoing, Talk
from hobnob.tui.title_bar import TitleBar
from hobnob.tui.transcript import USER, Entry
from hobnob.tui.versions import Asked, Versions
from hobnob.tui.view import TranscriptView
from hobnob.tui.waiting import Waiting
from hobnob.tui.welcome import STARTER, WELCOME

DRAFT_PAUSE_SECONDS = 0.7


class Chat(Versions):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "Stop", id="chat.stop"),
        Binding("alt+w", "waiting", "Messages that wait", id="chat.waiting", priority=True),
    ]

    class Changed(Message):
        """A turn was accepted or has ended: the list of conversations may look different."""

    class Command(Message):
        """A / command of the app was typed."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(
        self, talk: Talk, drafts: Drafts, prompts: Prompts, early: EarlyKeys, *, vi: bool = False
    ) -> None:
        super().__init__(talk)
        self._drafts = drafts
        self._prompts = prompts
        self._early = early
        self._vi = vi  # Esc in the input goes to the messages
        self._painter = Painter(self._view, self._written)
        self._elsewhere = Elsewhere(talk, self._view)
        self._outlook = Outlook(talk, lambda words: self.composer.say_below(words))
        self._waiting = Waiting()
        self._outgoing: Outgoing | None = None
        self._editing: Entry | None = None
        self._going = Typed()  # what is on its way
        self._retry = Draft("")
        self._opened = 0
        self._between = False  # what is typed belongs to a conversation that is being opened
        self._hint = ""
        self._draft_timer: Timer | None = None
        self._typing = False  # there is something in the input

    def compose(self) -> ComposeResult:
        yield TitleBar()
        yield Static(id="banner", markup=False)
        yield Static(WELCOME, id="welcome", markup=False)
        yield self._view
        yield self.find_bar
        yield Static(id="hint", markup=False)
        yield self._waiting
        completions = Completions()
        yield completions
        yield Composer(self._prompts, completions)

    async def on_mount(self) -> None:
        await self.view.show(self.talk.entries)
        self.show_title()
        self._show_welcome()
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
        self._open(id, at)

    def new(self) -> None:
        self.leave()
        self.talk.clear()
        self._show_fresh()

    @work(exclusive=True, group="show")
    async def _show_fresh(self) -> None:
        await self._show()
        self._load_draft()
        self.composer.focus()

    @work(exclusive=True, group="show")
    async def _open(self, id: str, at: str | None) -> None:
        try:
            await self.talk.open(id, at)
        except ClientError as error:
            self.say_trouble(error.message)
            self._load_draft()
            return
        await self._show(at)
        self._load_draft()
        self._warm()
        if at is None:
            self.composer.focus()

    @work(exclusive=True, group="warm")
    async def _warm(self) -> None:
        await self.talk.warm()

    def leave(self) -> None:
        """Before another conversation is shown, and at the end: keep what was typed."""
        self._opened += 1
        self.save_draft()
        self._between = True
        self.composer.take()
        for group in ("follow", "send", "versions", "go-on", "earlier"):
            self.workers.cancel_group(self, group)
        self._outgoing = self._editing = self._asked = None
        self._elsewhere.hint = ""
        self.find_bar.leave()
        self._painter.forget()
        self._waiting.take_all()
        self._retry = Draft("")

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
        text = event.text
        if text.strip() in COMMANDS:
            self.composer.take()
            self.post_message(self.Command(text.strip()))
        elif not text.strip():
            return
        elif self._editing is None and self.busy:
            self._waiting.put(self.composer.take())
            self._show_hint()
        elif self._asked is not None:
            self.say_busy()
        else:
            self._deliver(self.composer.take())

    def _deliver(self, typed: Typed) -> None:
        text = typed.full
        key = self._retry.key if self._retry.text == text else ""
        instead_of, self._editing = self._editing, None
        if instead_of is not None and instead_of not in self.talk.entries:
            instead_of = None
        out = self.talk.prepare(text, instead_of=instead_of, key=key)
        self._outgoing, self._going = out, typed
        self._prompts.add(text)
        self._drafts.save(self.talk.id, Draft(text, out.key, typed))
        self._send(out, self._opened, shortened=instead_of is not None)

    @work(group="send")
    async def _send(self, out: Outgoing, opened: int, *, shortened: bool) -> None:
        if shortened:
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
        self._outgoing, self._retry = None, Draft("")
        self._drafts.save(before, Draft(""))
        self.save_draft()
        self.view.sync(out.entry)
        await self._begin(reply)
        if out.cancelled:
            self._stop(reply)

    async def _not_sent(self, out: Outgoing, error: ClientError) -> None:
        """Nothing was lost: the text is back in the input, ready to be sent again."""
        self.talk.withdraw(out)
        self._outgoing = None
        self._retry = Draft(out.text, out.key)
        back = [self._going, *self._waiting.take_all(), self.composer.typed]
        self.composer.put(Typed.joined(back))
        await self.view.drop_from(len(self.talk.entries) - len(out.replaced))
        for entry in out.replaced:
            await self.view.add(entry)
        self._editing = out.replaced[0] if out.replaced else None
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
        try:
            await self.talk.follow(reply, self._painter.touch)
        except ClientError as error:  # no connection to begin with
            reply.trouble = error.message
            self._painter.touch(reply)
            return
        self._painter.flush()
        if not self.app.app_focus:
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
        self.say_trouble(DELETED)

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
        if wanted() and (waiting := self._waiting.take_first()) is not None:
            self._deliver(waiting)

    def _watches_the_end(self) -> bool:
        reads = isinstance(self.screen.focused, MessageView) or not self.view.following
        return not reads and self._editing is None

    def action_waiting(self) -> None:
        if self._waiting.messages:
            self._waiting.focus()

    @on(Waiting.Left)
    def _waiting_left(self, event: Waiting.Left) -> None:
        event.stop()
        if event.typed.text:
            self.composer.put(Typed.joined([event.typed, self.composer.typed]))
        self.composer.focus()
        self._show_hint()

    # ---- what stands around the transcript ----------------------------------------------------

    @on(TranscriptView.Moved)
    def _moved(self, event: TranscriptView.Moved) -> None:
        event.stop()
        self.call_after_refresh(self._show_hint)

    def _show_hint(self) -> None:
        hints = [self._elsewhere.hint] if self._elsewhere.hint else []
        if self._editing is not None:
            hints.append("editing an earlier message: Enter sends a new version, Esc leaves it")
        if self._coming is not None and self._coming.cancelled:
            hints.append("the reply will be stopped as soon as it begins")
        if waiting := len(self._waiting.messages):
            hints.append(f"{waiting} waiting to be sent: Alt+W to edit or take away")
        if self.talk.entries and not self.view.following:
            new = self.talk.live is not None and self.talk.live.chars > 0
            hints.append("↓ new text: Ctrl+End" if new else "↓ Ctrl+End")
        words = " · ".join(hints)
        if words != self._hint:  # an update lays the whole screen out again
            self._hint = words
            self.query_one("#hint", Static).update(Content(words))

    def show_title(self) -> None:
        self.query_one(TitleBar).show(self.talk)

    def tuned(self) -> None:
        """The conversation is asked with another system prompt, or other options."""
        self.show_title()
        self._ask_outlook()

    def _show_welcome(self) -> None:
        self.query_one("#welcome").display = not self.talk.entries
        self.view.display = bool(self.talk.entries)

    def say_model(self, words: str, *, failed: bool, starter: bool) -> None:
        self.query_one(TitleBar).say_model(words, failed=failed)
        self.query_one("#welcome", Static).update(Content(WELCOME + (STARTER if starter else "")))
        self._ask_outlook()

    def _ask_outlook(self) -> None:
        """What is typed, or where it would go, is another than it was."""
        typed = self.composer.full_text
        self._outlook.columns = self.composer.size.width
        self._outlook.ask("" if self._between or matching(typed) else typed, self._editing)

    def say_trouble(self, words: str) -> None:
        """A sentence above the transcript; empty to take it away."""
        banner = self.query_one("#banner", Static)
        banner.update(Content(clean(words).expandtabs(4)))
        banner.display = bool(words)

    # ---- stopping -----------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        return super().busy or self._outgoing is not None

    @property
    def _coming(self) -> Outgoing | Asked | None:
        """What will be a reply when the server has taken it."""
        asked = self._asked if self._asked is not None and self._asked.reply else None
        return self._outgoing or asked

    def action_stop(self) -> None:
        """Esc: leave editing, else stop the reply and take back what waits behind it."""
        if self._editing is not None:
            self._editing = None
            self.composer.take()
            self._show_hint()
        elif not self.stop() and self._vi and not self.busy and self.view.views:
            self.view.views[-1].focus()

    def stop(self) -> bool:
        """Stop the reply. False: there is none, or it will be stopped already."""
        coming, live = self._coming, self.talk.live
        if coming is not None and not coming.cancelled:
            coming.cancelled = True
        elif coming is None and live is not None:
            self._stop(live)
        else:
            return False
        if waiting := self._waiting.take_all():
            self.composer.put(Typed.joined([*waiting, self.composer.typed]))
        self._show_hint()
        return True

    @work(group="stop")
    async def _stop(self, reply: Entry) -> None:
        try:
            await self.talk.stop(reply)
        except ClientError as error:
            self.say_trouble(f"Not stopped: {error.message}")

    # ---- editing ------------------------------------------------------------------------------

    def edit(self, entry: Entry) -> None:
        if entry.role == USER:
            self._editing = entry
            self.composer.put(entry.text)
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
        typed = self.composer.typed if self._editing is None else Typed()
        out = self._outgoing
        whole = Typed.joined([self._going if out else Typed(), *self._waiting.messages, typed])
        text = whole.full
        key = out.key if out and text == out.text else self._retry.key
        self._drafts.save(self.talk.id, Draft(text, key, whole))

    def _load_draft(self) -> None:
        """What was typed here before, and after it what was typed while it was opened."""
        draft = self._drafts.load(self.talk.id)
        self._retry = draft
        self._between = False
        meanwhile = self.composer.typed
        self.composer.put(draft.shown)
        if meanwhile.text:
            self.composer.put(Typed.joined([self.composer.typed, meanwhile]))
        self._typing = bool(self.composer.text)
        self._ask_outlook()
