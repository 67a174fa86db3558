"""Where the user types: Enter sends, Ctrl+J makes a new line, ↑ recalls what was sent.

Owns the text in hand and the big pastes that are folded in it. Sending, drafts and commands are
the chat's: the composer only tells.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip
from textual.widgets import TextArea

from hobnob.tui.clean import clean
from hobnob.tui.commands import completed
from hobnob.tui.prompts import Prompts

FOLD_LINES = 40
FOLD_CHARS = 4_000
PLACEHOLDER = "Ask anything. Enter sends, Ctrl+J starts a new line."

_FOLDED = re.compile(r"\[pasted [^\]\n]* #(\d+)\]")


class Composer(TextArea):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+j,shift+enter,alt+enter", "newline", "New line", id="composer.newline"),
        Binding("up", "older", "Prompt before", id="composer.older", show=False),
        Binding("down", "newer", "Prompt after", id="composer.newer", show=False),
        Binding("ctrl+d", "delete_or_quit", "Quit when empty", id="composer.quit", show=False),
        Binding("ctrl+underscore,super+z", "undo", "Undo", id="composer.undo"),
        Binding("ctrl+g", "edit_outside", "Open in $EDITOR", id="composer.editor"),
    ]
    HELP = "The input. Text is sent as typed; a line that begins with / is a command."

    @dataclass
    class Submitted(Message):
        """Enter was pressed. `text` has the folded pastes in full."""

        text: str

    @dataclass
    class EditOutside(Message):
        """The user wants to write in $EDITOR."""

        composer: Composer

    class Leave(Message):
        """Ctrl+D on an empty input."""

    def __init__(self, prompts: Prompts) -> None:
        super().__init__(
            soft_wrap=True, show_line_numbers=False, placeholder=PLACEHOLDER, id="composer"
        )
        self._prompts = prompts
        self._pastes: dict[str, str] = {}

    @property
    def full_text(self) -> str:
        """The text with every folded paste in its place."""
        return _FOLDED.sub(lambda found: self._pastes.get(found[1], found[0]), self.text)

    def put(self, text: str) -> None:
        """Replace everything, as one step that can be undone; the cursor goes to the end."""
        self._pastes.clear()
        text = self._folded(tame(text))
        self.replace(text, (0, 0), self.document.end)
        self.move_cursor(self.document.end)

    def take(self) -> str:
        """Empty the input; what it held, in full."""
        text = self.full_text
        self._pastes.clear()
        self.load_text("")
        return text

    def render_line(self, y: int) -> Strip:
        if self.content_size.width < 1:  # TextArea's placeholder cannot be wrapped into nothing
            return Strip.blank(self.size.width)
        return super().render_line(y)

    def on_resize(self) -> None:
        """TextArea wraps anew, but draws the old rows while their number stays the same."""
        self.refresh()

    # ---- keys ---------------------------------------------------------------------------------

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "enter":
            event.stop()
            event.prevent_default()
            self._enter()
            return
        if event.key == "tab" and (word := completed(self.text)) is not None:
            event.stop()
            event.prevent_default()
            self.put(word)
            return
        if event.is_printable or event.key in ("backspace", "delete"):
            self._prompts.leave()
        await super()._on_key(event)

    def _enter(self) -> None:
        row, column = self.cursor_location
        if self.document.get_line(row)[:column].endswith("\\"):  # the way of shells
            self.action_delete_left()
            self.action_newline()
            return
        self.post_message(self.Submitted(self.full_text))

    def action_newline(self) -> None:
        self._prompts.leave()
        self.replace("\n", *self.selection, maintain_selection_offset=False)

    def action_older(self) -> None:
        if self.cursor_at_first_line and (text := self._prompts.older(self.full_text)) is not None:
            self.put(text)
        else:
            self.action_cursor_up()

    def action_newer(self) -> None:
        if self.cursor_at_last_line and (text := self._prompts.newer()) is not None:
            self.put(text)
        else:
            self.action_cursor_down()

    def action_delete_or_quit(self) -> None:
        if self.text:
            self.action_delete_right()
        else:
            self.post_message(self.Leave())

    def action_edit_outside(self) -> None:
        self.post_message(self.EditOutside(self))

    # ---- pasting ------------------------------------------------------------------------------

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self._prompts.leave()
        self.replace(
            self._folded(tame(event.text)), *self.selection, maintain_selection_offset=False
        )

    def _folded(self, text: str) -> str:
        """A short name for a text too long to show; the text itself when it is not."""
        lines = text.count("\n") + 1
        if lines <= FOLD_LINES and len(text) <= FOLD_CHARS:
            return text
        number = str(len(self._pastes) + 1)
        self._pastes[number] = text
        size = f"{lines} lines" if lines > 1 else f"{len(text)} characters"
        return f"[pasted {size} #{number}]"


def tame(text: str) -> str:
    """Pasted text as it may stand in the input: one kind of line end, nothing that acts."""
    return clean(text.replace("\r\n", "\n").replace("\r", "\n"))
