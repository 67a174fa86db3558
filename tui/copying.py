"""An app that copies by every way there is, and says by which."""

from __future__ import annotations

from typing import Any

from textual import work

from hobnob.tui import clipboard, code_blocks
from hobnob.tui.drawing import DrawingApp
from hobnob.tui.transcript import Entry

AGAIN = " Again: the one before."


class CopyingApp(DrawingApp):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._coded: tuple[Entry, int] | None = None  # what the key for code copied last

    def copy_to_clipboard(self, text: str) -> None:
        """Textual's own way in (mouse selection, Ctrl+C) takes ours."""
        self._clipboard = text
        self.copy(text)

    def copy_code(self, blocks: list[str], number: int | None = None) -> None:
        """One of some code blocks, counted from 1; the last where none is named."""
        self._copy_code(code_blocks.choose(blocks, number))

    def copy_code_of(self, entry: Entry) -> None:
        """The last code block of a message; once more, the one before, and so round."""
        blocks = entry.code_blocks()
        last, number = self._coded or (None, 0)
        number = number - 1 if last is entry and 1 < number <= len(blocks) else len(blocks)
        self._copy_code(code_blocks.choose(blocks, number), AGAIN if number > 1 else "")
        self._coded = (entry, number)

    def _copy_code(self, choice: code_blocks.Choice, more: str = "") -> None:
        if choice.code is None:
            self.notify(choice.words, markup=False)
        else:
            self.copy(choice.code, choice.words, more)

    def copy(self, text: str, which: str = "", more: str = "") -> None:
        """`which` and `more` are said before and after that it was copied."""
        self._coded = None
        self._copy(text, which, more)

    @work(exclusive=True, group="copy")
    async def _copy(self, text: str, which: str, more: str) -> None:
        words = await clipboard.copy_and_say(text, self._write_to_terminal)
        self.notify(f"{which}{words}{more}", timeout=4 if which else 2, markup=False)

    def _write_to_terminal(self, data: str) -> None:
        if self._driver is not None and not self.is_headless:
            self._driver.write(data)
