"""A form for sampling options as they are typed, and a system prompt; and a conversation's own."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static, TextArea

from hobnob.tui.clean import clean
from hobnob.tui.compare import read_settings
from hobnob.tui.composer import tame
from hobnob.tui.key_bar import Hints, KeyBar
from hobnob.tui.notice import ClientError
from hobnob.tui.talk import Talk
from hobnob.tui.tuning import Tuning

T = TypeVar("T")


class SettingsForm(ModalScreen[T]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Leave it", id="settings.close"),
        Binding("ctrl+j", "save", "Take it", id="settings.save", priority=True),
    ]
    key_hints: ClassVar[Hints] = (
        "settings.save take it",
        "Tab next field",
        "settings.close leave it",
        "app.help keys",
    )

    def __init__(self, title: str, line: str, prompt: str) -> None:
        super().__init__()
        self._title = title
        self._line = line
        self._prompt = prompt

    def compose(self) -> ComposeResult:
        with Vertical(id="settings-form"):
            yield Static(self._title, classes="form-title", markup=False)
            yield Static("Parameters, name=value", classes="form-label", markup=False)
            yield Input(
                self._line,
                placeholder="temperature=0.2 top_p=0.9 seed=7",
                id="settings-options",
                select_on_focus=False,
            )
            yield Static("System prompt", classes="form-label", markup=False)
            yield TextArea(self._prompt, id="settings-prompt", soft_wrap=True, tab_behavior="focus")
            yield Static(classes="form-trouble", markup=False)
        yield KeyBar()

    @on(Input.Submitted)
    def _enter(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_save()

    def action_save(self) -> None:
        try:
            options = read_settings(self.query_one(Input).value)
        except ValueError as error:
            self.say_trouble(str(error))
            return
        self.take(self.query_one(TextArea).text, options)

    def take(self, prompt: str, options: dict[str, Any]) -> None:
        """What was typed, and can be read."""
        raise NotImplementedError

    def say_trouble(self, words: str) -> None:
        self.query_one(".form-trouble", Static).update(Content(clean(words)))


class ConversationForm(SettingsForm[bool | None]):
    """Of the open conversation, or of one that has no message yet. True: they are taken."""

    def __init__(self, talk: Talk, *, prompt_first: bool) -> None:
        self._talk = talk
        self._before = talk.tuning
        self._shown = tame(self._before.system or "")
        self._prompt_first = prompt_first
        super().__init__("This conversation", self._before.line, self._shown)

    def on_mount(self) -> None:
        if self._prompt_first:
            self.query_one(TextArea).focus()

    def take(self, prompt: str, options: dict[str, Any]) -> None:
        unchanged = prompt == self._shown
        self._tune(Tuning(self._before.system if unchanged else prompt, options))

    @work(exclusive=True)
    async def _tune(self, wanted: Tuning) -> None:
        try:
            await self._talk.tune(wanted)
        except ClientError as error:
            self.say_trouble(error.message)
        else:
            self.dismiss(True)
