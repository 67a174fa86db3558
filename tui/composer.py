"""Where the user types: Enter sends, Ctrl+J makes a new line, ↑ recalls what was sent.

Owns the text in hand and the big pastes that are folded in it. Sending, drafts and commands are
the chat's: the composer only tells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual import events, on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.strip import Strip
from textual.widgets import TextArea

from hobnob.tui.clean import clean
from hobnob.tui.completions import Completions
from hobnob.tui.folds import Fold, Typed, highest_number, is_long, label_before
from hobnob.tui.prompts import Prompts
from hobnob.tui.shell_notation import MARK, literal

PLACEHOLDER = "Ask anything. Ctrl+J: a new line · @: a file · !: the shell"


class Composer(TextArea):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+j,shift+enter,alt+enter", "newline", "New line", id="composer.newline"),
        Binding("up", "older", "Prompt before", id="composer.older", show=False),
        Binding("down", "newer", "Prompt after", id="composer.newer", show=False),
        Binding("ctrl+d", "delete_or_quit", "Quit when empty", id="composer.quit", show=False),
        Binding("ctrl+underscore,super+z", "undo", "Undo", id="composer.undo"),
        Binding("ctrl+g", "edit_outside", "Open in $EDITOR", id="composer.editor"),
    ]
    HELP = (
        "Text is sent as typed. / offers commands and @ files; ↑ ↓ choose, "
        "Tab or Enter takes, Esc closes. A line that begins with ! is run in your shell and its "
        "output put here, Esc stops it; !! or a space before the ! sends it instead."
    )

    @dataclass
    class Submitted(Message):
        """Enter was pressed. `text` has the folded pastes in full."""

        text: str

    @dataclass
    class Run(Message):
        """A line for the shell was entered, and is not in the input any more."""

        command: str

    @dataclass
    class EditOutside(Message):
        """The user wants to write in $EDITOR."""

        composer: Composer

    class Leave(Message):
        """Ctrl+D on an empty input."""

    def __init__(self, prompts: Prompts, completions: Completions, *, shell: bool = False) -> None:
        """`shell`: whether a line that begins with ! is for the shell."""
        super().__init__(
            soft_wrap=True, show_line_numbers=False, placeholder=PLACEHOLDER, id="composer"
        )
        self._prompts = prompts
        self._completions = completions
        self._folds: dict[str, Fold] = {}
        self._number = 0  # of the last fold; none is used twice
        self._shell = shell
        self._in_hand = Typed()  # while an earlier prompt is in its place

    @property
    def typed(self) -> Typed:
        return Typed(self.text, self._folds).in_use

    @property
    def full_text(self) -> str:
        """The text with all that is folded."""
        return Typed(self.text, self._folds).full

    @property
    def message(self) -> str:
        """What is sent."""
        return Typed(self.text, self._folds).message

    @property
    def before_cursor(self) -> str:
        """The part of the cursor's line that is before it."""
        row, column = self.cursor_location
        return self.document.get_line(row)[:column]

    def put(self, what: str | Typed) -> None:
        """Replace everything, as one step that can be undone; the cursor goes to the end."""
        self._folds.clear()
        if isinstance(what, Typed):
            self._folds.update(what.folds)
            self._number = max(self._number, highest_number(what.folds))
            text = tame(what.text)
        else:
            text = self._folded(tame(what))
        self.replace(text, (0, 0), self.document.end)
        self.move_cursor(self.document.end)
        self._completions.pass_over(self)

    def take(self) -> Typed:
        """Empty the input; what it held."""
        typed = self.typed
        self._folds.clear()
        self.load_text("")
        return typed

    def say_below(self, words: Content) -> None:
        """In the frame, under the text."""
        self.border_subtitle = words

    def replace_before_cursor(self, column: int, text: str) -> None:
        """From the column of the cursor's line up to the cursor."""
        row, end = self.cursor_location
        self.replace(text, (row, column), (row, end), maintain_selection_offset=False)

    def attach(self, row: int, column: int, mention: str, fold: Fold) -> None:
        """The file in the place of its mention, if that still stands there."""
        if row >= self.document.line_count:
            return
        line, end = self.document.get_line(row), column + len(mention)
        if line[column:end] != mention:
            return
        space = "" if line[end : end + 1].isspace() else " "
        self.replace(self._label(fold) + space, (row, column), (row, end))

    def put_before(self, fold: Fold) -> None:
        """What a command has put out, in front of what is typed, where the cursor stays."""
        place = self._line_begins
        self.insert(self._label(fold) + "\n", place, maintain_selection_offset=True)

    def render_line(self, y: int) -> Strip:
        if self.content_size.width < 1:  # TextArea's placeholder cannot be wrapped into nothing
            return Strip.blank(self.size.width)
        return super().render_line(y)

    def on_resize(self) -> None:
        """TextArea wraps anew, but draws the old rows while their number stays the same."""
        self.refresh()

    # ---- keys ---------------------------------------------------------------------------------

    async def _on_key(self, event: events.Key) -> None:
        if self._offered(event.key):
            event.stop()
            event.prevent_default()
            return
        if event.key == "enter":
            event.stop()
            event.prevent_default()
            self._enter()
            return
        if event.is_printable or event.key in ("backspace", "delete"):
            self._prompts.leave()
        if event.is_printable or not await self._acts(event):
            await super()._on_key(event)

    async def _acts(self, event: events.Key) -> bool:
        """Do what a key is bound to here. Textual does so only when the key has gone up to the app
        and nobody wanted it: letters that come with it (a slow line, a busy app) overtook it."""
        found = self.screen.active_bindings.get(event.key)
        if found is None or found.node is not self or not found.enabled:
            return False
        if not await self.app.run_action(found.binding.action, self):
            return False  # there was nothing to do, as for a copy of nothing: the app may know more
        event.stop()
        event.prevent_default()
        return True

    def _offered(self, key: str) -> bool:
        """Whether the key was meant for what is offered."""
        offers = self._completions
        if key in ("enter", "tab"):
            offers.look(self)
        if not offers.is_open:
            return False
        if key in ("up", "down"):
            offers.move(-1 if key == "up" else 1)
        elif key == "escape":
            offers.close()
        elif key == "tab" or (key == "enter" and not offers.is_typed(self.text)):
            offers.pick(self)
        else:
            return False
        return True

    @on(TextArea.Changed)
    @on(TextArea.SelectionChanged)
    def _look(self) -> None:
        if self.has_focus:
            self._completions.look(self)

    def _enter(self) -> None:
        if self.before_cursor.endswith("\\"):  # the way of shells
            self.action_delete_left()
            self.action_newline()
        elif self._completions.reading:
            words = f"{self._completions.reading} is still being read."
            self.app.notify(words, markup=False)
        elif self._shell and (command := self.typed.command):
            self._prompts.add(MARK + command)
            self.put(self.typed.outputs)
            self.post_message(self.Run(command))
        else:
            self.post_message(self.Submitted(self.message))

    def action_delete_left(self) -> None:
        """A label goes as a whole: half of one would stand for nothing."""
        label = label_before(self.before_cursor, self._folds) if self.selection.is_empty else ""
        if label:
            self.replace_before_cursor(self.cursor_location[1] - len(label), "")
        else:
            super().action_delete_left()

    def action_newline(self) -> None:
        self._prompts.leave()
        self.replace("\n", *self.selection, maintain_selection_offset=False)

    def action_older(self) -> None:
        if not self._prompts.browsing:
            self._in_hand = self.typed
        if self.cursor_at_first_line and (text := self._prompts.older(self.full_text)) is not None:
            self.put(text)
        else:
            self.action_cursor_up()

    def action_newer(self) -> None:
        if self.cursor_at_last_line and (text := self._prompts.newer()) is not None:
            self.put(text if self._prompts.browsing else self._in_hand)
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
        self._paste(event.text)

    def action_paste(self) -> None:
        """What was copied or cut in the app."""
        self._paste(self.app.clipboard)

    def _paste(self, pasted: str) -> None:
        self._prompts.leave()
        text = self._folded(tame(pasted))
        start, end = sorted(self.selection)
        if self._shell and start == self._line_begins:
            text = literal(text)  # nobody typed that mark
        self.replace(text, start, end, maintain_selection_offset=False)

    @property
    def _line_begins(self) -> tuple[int, int]:
        """Where a mark would make a command of what is typed."""
        before = self.typed.outputs.text
        return before.count("\n"), len(before.rpartition("\n")[2])

    def _folded(self, text: str) -> str:
        """A short name for a text too long to show; the text itself when it is not."""
        return self._label(Fold(text)) if is_long(text) else text

    def _label(self, fold: Fold) -> str:
        self._number += 1
        label = fold.label(self._number)
        self._folds[label] = fold
        return label


def tame(text: str) -> str:
    """Pasted text as it may stand in the input: one kind of line end, nothing that acts."""
    return clean(text.replace("\r\n", "\n").replace("\r", "\n"))
