"""The / commands that fit what is typed, above the input."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from hobnob.tui.commands import COMMANDS, matching

MOST_OFFERED = 6


class CommandList(Static):
    def __init__(self) -> None:
        super().__init__(id="commands", markup=False)
        self.display = False

    def offer(self, text: str) -> None:
        """Show what a text may become."""
        names = matching(text)[:MOST_OFFERED]
        width = max(map(len, names), default=0) + 2
        rows = [Content.assemble((name.ljust(width), "bold"), COMMANDS[name]) for name in names]
        self.update(Content("\n").join(rows))
        self.display = bool(names)
