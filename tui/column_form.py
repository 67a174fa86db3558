"""The settings of one column: sampling options as they are typed, and a system prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static, TextArea

from hobnob.tui.clean import clean
from hobnob.tui.compare import Column, read_settings, settings_line
from hobnob.tui.composer import tame


@dataclass(frozen=True, slots=True)
class ColumnSettings:
    instructions: str | None
    options: dict[str, Any]


class ColumnForm(ModalScreen[ColumnSettings | None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Leave it", id="settings.close"),
        Binding("ctrl+j", "save", "Take it", id="settings.save", priority=True),
    ]

    def __init__(self, letter: str, column: Column, usual: str | None) -> None:
        """`usual`: the conversation's system prompt."""
        super().__init__()
        self._letter = letter
        self._line = settings_line(column.options)
        self._usual = tame(usual or "")
        own = column.instructions
        self._prompt = self._usual if own is None else tame(own)

    def compose(self) -> ComposeResult:
        with Vertical(id="column-form"):
            yield Static(f"Column {self._letter}", classes="form-title", markup=False)
            yield Static("Parameters, name=value", classes="form-label", markup=False)
            yield Input(
                self._line,
                placeholder="temperature=0.2 top_p=0.9 seed=7",
                id="column-options",
                select_on_focus=False,
            )
            yield Static("System prompt", classes="form-label", markup=False)
            yield TextArea(self._prompt, id="column-prompt", soft_wrap=True, tab_behavior="focus")
            yield Static(classes="form-trouble", markup=False)
            yield Static("Enter or Ctrl+J takes it   Tab moves   Esc leaves it", markup=False)

    @on(Input.Submitted)
    def _enter(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_save()

    def action_save(self) -> None:
        try:
            options = read_settings(self.query_one(Input).value)
        except ValueError as error:
            self.query_one(".form-trouble", Static).update(Content(clean(str(error))))
            return
        prompt = self.query_one(TextArea).text
        instructions = None if prompt == self._usual else prompt
        self.dismiss(ColumnSettings(instructions, options))
