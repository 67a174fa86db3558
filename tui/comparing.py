"""An app with the playground: how it is entered, and what becomes of the chat when it is left."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from textual import work
from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen

from hobnob.tui.chat import Chat
from hobnob.tui.comparisons import ComparisonsScreen
from hobnob.tui.copying import CopyingApp
from hobnob.tui.line import Line
from hobnob.tui.message import MessageView
from hobnob.tui.notice import ClientError
from hobnob.tui.playground import Playground
from hobnob.tui.prompts import Prompts
from hobnob.tui.shell_notation import literal
from hobnob.tui.talk import Talk
from hobnob.tui.transcript import USER, Entry
from hobnob.tui.trial import Trial

OF_THE_CHAT = frozenset(
    {"new", "list", "search", "reconnect", "compare", "comparisons", "panel", "model"}
)
"""What would change the chat behind the playground."""


class ComparingApp(CopyingApp):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+l", "compare", "Playground", id="app.compare"),
    ]
    line: Line
    talk: Talk
    prompts: Prompts
    _begins: Trial | None = None
    """What the playground over a new conversation asks: it may have made it by now."""

    @property
    def left_in(self) -> str | None:
        """The stored conversation that somebody who leaves now comes back to."""
        if self.talk.temporary:
            return None
        if self._begins is not None and self._begins.conversation is not None:
            return self._begins.conversation.id
        return self.talk.id

    @property
    def chat(self) -> Chat:
        return self.query_one(Chat)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in OF_THE_CHAT and any(isinstance(one, Playground) for one in self.screen_stack):
            return False
        return super().check_action(action, parameters)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """In the palette: those of the playground, or else of the chat."""
        if not isinstance(screen, Playground):
            yield from self.chat_commands()
            return
        yield SystemCommand("Export", "write all to a Markdown file", screen.export)
        yield SystemCommand("Back to the chat", "Ctrl+L", screen.action_leave)
        yield SystemCommand("Colours", "choose a theme", self.action_change_theme)
        yield SystemCommand("Quit", "Ctrl+Q; running replies go on", self.action_quit)

    def chat_commands(self) -> Iterable[SystemCommand]:
        """What acts on the chat, and on what stands around it."""
        return ()

    def action_compare(self) -> None:
        """What is in the input, against columns; with nothing there, or from a message, the
        replies to a message that was sent."""
        if self.chat.busy:
            self.chat.say_busy()
            return
        draft = self.chat.composer.message
        focused, entries = self.focused, self.talk.entries
        if isinstance(focused, MessageView):
            self._compare_replies(_question(focused.entry))
        elif entries and not draft.strip():
            self._compare_replies(_question(entries[-1]))
        else:
            self._compare_draft(draft)

    @work(exclusive=True, group="compare")
    async def _compare_draft(self, draft: str) -> None:
        entries = self.talk.entries
        trial = Trial(
            self.line,
            self.talk.conversation,
            parent=entries[-1].id if entries else None,
            system=self.talk.system,
            settings=self.talk.settings,
            options=self.talk.options,
            temporary=self.talk.temporary,
            begun=self.talk.mind,
        )
        await self._visit(trial, draft)

    @work(exclusive=True, group="compare")
    async def _compare_replies(self, message: str | None) -> None:
        if message is not None and self.talk.id is not None:
            await self._open(self.talk.id, message)

    @work(exclusive=True, group="compare")
    async def action_comparisons(self) -> None:
        """Those that were made, to be opened again."""
        chosen = await self.push_screen_wait(ComparisonsScreen(self.line))
        if chosen is not None:
            await self._open(chosen.conversation, chosen.message)

    async def _open(self, conversation: str, message: str) -> None:
        trial = Trial(self.line, system=self.talk.system, options=self.talk.options)
        try:
            await trial.open(conversation, message)
        except ClientError as error:
            self.notify(error.message, severity="error", markup=False)
            return
        await self._visit(trial, trial.text)

    async def _visit(self, trial: Trial, prompt: str) -> None:
        """The playground, and after it the conversation in which something was kept or begun."""
        fresh = trial.conversation is None
        draft = self.chat.composer.message
        hear = self._draft_changed if draft in ("", prompt) else _not_heard
        self._begins = trial if fresh else None
        kept = await self.push_screen_wait(Playground(trial, self.prompts, prompt, hear))
        self._begins = None  # not where the app ends meanwhile
        if kept is None and fresh and trial.conversation is not None:
            kept = trial.conversation.id
        if kept is not None:
            self.chat.open(kept)
        self.chat.composer.focus()

    def _draft_changed(self, text: str) -> None:
        """What is typed in the playground is the chat's draft until it was asked."""
        composer = self.chat.composer
        if composer.message != text:
            composer.put(literal(text))


def _not_heard(_: str) -> None:
    """The chat has a draft of its own, which stays."""


def _question(entry: Entry) -> str | None:
    """The id of the message whose replies are meant: this one, or the one it answers."""
    return entry.id if entry.role == USER else entry.parent
