"""Messages that were typed while a reply was being written, and wait to be sent after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from hobnob.tui.clean import one_line
from hobnob.tui.folds import Typed
from hobnob.tui.key_bar import Hints

SHOWN_CHARS = 200


class Waiting(OptionList):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e", "take_back", "Edit it", id="waiting.edit"),
        Binding("delete,x,backspace", "drop", "Do not send it", id="waiting.drop"),
        Binding("escape", "leave", "Back to the input", id="waiting.leave"),
    ]
    key_hints: ClassVar[Hints] = (
        "Enter edit",
        "waiting.drop do not send",
        "waiting.leave back",
        "app.help keys",
    )
    HELP = "Messages that are sent when the reply before them has ended. Enter edits one."

    @dataclass
    class Left(Message):
        """Nothing more to be done here."""

        typed: Typed = Typed()
        """What is to be edited, and in the list no more."""

    def __init__(self) -> None:
        super().__init__(id="waiting", markup=False)
        self._messages: list[Typed] = []
        self.display = False

    @property
    def messages(self) -> list[Typed]:
        """In the order in which they will be sent."""
        return list(self._messages)

    def put(self, typed: Typed) -> None:
        self._messages.append(typed)
        self._show()

    def take_first(self) -> Typed | None:
        """The one whose turn it is; None when nothing waits."""
        first = self._messages.pop(0) if self._messages else None
        self._show()
        return first

    def take_all(self) -> list[Typed]:
        taken, self._messages = self._messages, []
        self._show()
        return taken

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._take_back(event.option_index)

    def action_take_back(self) -> None:
        if self.highlighted is not None:
            self._take_back(self.highlighted)

    def action_drop(self) -> None:
        if self.highlighted is not None:
            del self._messages[self.highlighted]
            self._show()
            if not self._messages:
                self.post_message(self.Left())

    def action_leave(self) -> None:
        self.post_message(self.Left())

    def _take_back(self, at: int) -> None:
        typed = self._messages.pop(at)
        self._show()
        self.post_message(self.Left(typed))

    def _show(self) -> None:
        at = self.highlighted
        self.clear_options()
        self.add_options([Option(Content(_row(typed))) for typed in self._messages])
        if self._messages:
            self.highlighted = min(at or 0, len(self._messages) - 1)
        self.display = bool(self._messages)


def _row(typed: Typed) -> str:
    return one_line(typed.text[:SHOWN_CHARS])
