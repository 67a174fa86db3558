"""The settings of one column of the playground."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hobnob.tui.compare import Column, settings_line
from hobnob.tui.composer import tame
from hobnob.tui.settings_form import SettingsForm


@dataclass(frozen=True, slots=True)
class ColumnSettings:
    instructions: str | None
    options: dict[str, Any]


class ColumnForm(SettingsForm[ColumnSettings | None]):
    def __init__(self, letter: str, column: Column, usual: str | None) -> None:
        """`usual`: the conversation's system prompt."""
        self._usual = tame(usual or "")
        own = column.instructions
        prompt = self._usual if own is None else tame(own)
        super().__init__(f"Column {letter}", settings_line(column.options), prompt)

    def take(self, prompt: str, options: dict[str, Any]) -> None:
        instructions = None if prompt == self._usual else prompt
        self.dismiss(ColumnSettings(instructions, options))
