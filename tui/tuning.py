"""What a conversation is asked with besides its messages: system prompt and options. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hobnob.tui import compare

AS_USUAL = "no system prompt, all parameters as usual"


@dataclass(frozen=True, slots=True)
class Tuning:
    system: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """What differs from the default, in one line; empty where nothing does."""
        facts = ["system prompt"] if self.system else []
        return compare.facts_line([*facts, *compare.facts(self.settings)])

    @property
    def line(self) -> str:
        """The options as they are typed."""
        return compare.settings_line(self.settings)
