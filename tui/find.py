"""Find in the open conversation: a line of input, the count, and the way from match to match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static

from hobnob.tui.transcript import Entry


class FindBar(Horizontal):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "Close", id="find.close"),
        Binding("up,shift+enter", "step(-1)", "Match before", id="find.earlier"),
        Binding("down,enter", "step(1)", "Match after", id="find.later"),
    ]

    @dataclass
    class Found(Message):
        number: int

    class Closed(Message):
        def __init__(self, number: int | None) -> None:
            """`number`: the match that was shown last."""
            super().__init__()
            self.number = number

    def __init__(self) -> None:
        super().__init__(id="find")
        self.display = False
        self._entries: Sequence[Entry] = ()
        self._matches: list[int] = []
        self._at = 0

    def compose(self) -> ComposeResult:
        yield Input(placeholder="Find in this conversation", id="find-text", select_on_focus=True)
        yield Static(id="find-count", markup=False)

    def open(self, entries: Sequence[Entry]) -> None:
        self._entries = entries
        self.display = True
        self.take_focus()
        self._search(self.query_one(Input).value)

    def again(self, entries: Sequence[Entry], step: int) -> None:
        """Another match of what was looked for last, among the messages as they are now."""
        self._entries = entries
        self._matches = matches(entries, self.query_one(Input).value)
        self.action_step(step)

    def take_focus(self) -> None:
        if self.display:
            self.query_one(Input).focus()

    def action_close(self) -> None:
        self.display = False
        self.post_message(self.Closed(self._matches[self._at] if self._matches else None))

    def action_step(self, step: int) -> None:
        if self._matches:
            self._at = (self._at + step) % len(self._matches)
            self._show()

    @on(Input.Submitted)
    def _enter(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_step(-1)  # the newest match was shown first; Enter goes back in time

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        self._search(event.value)

    def _search(self, text: str) -> None:
        self._matches = matches(self._entries, text)
        self._at = len(self._matches) - 1
        self._show()

    def _show(self) -> None:
        words = ""
        if self._matches:
            words = f"{self._at + 1} of {len(self._matches)}"
            self.post_message(self.Found(self._matches[self._at]))
        elif self.query_one(Input).value:
            words = "no match"
        self.query_one("#find-count", Static).update(Content(words))


def matches(entries: Sequence[Entry], text: str) -> list[int]:
    """The messages that contain a text, whatever its case."""
    wanted = text.casefold()
    if not wanted:
        return []
    return [n for n, entry in enumerate(entries) if wanted in entry.text.casefold()]
