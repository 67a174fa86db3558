"""An app that copies by every way there is, and says by which."""

from __future__ import annotations

from textual import work

from hobnob.tui import clipboard
from hobnob.tui.drawing import DrawingApp


class CopyingApp(DrawingApp):
    def copy_to_clipboard(self, text: str) -> None:
        """Textual's own way in (mouse selection, Ctrl+C) takes ours."""
        self._clipboard = text
        self.copy(text)

    def copy_code(self, blocks: list[str], number: int) -> None:
        """One of some code blocks; negative numbers count from the last."""
        if -len(blocks) <= number < len(blocks):
            self.copy(blocks[number])
        else:
            self.notify("There is no code block.", markup=False)

    @work(exclusive=True, group="copy")
    async def copy(self, text: str) -> None:
        words = await clipboard.copy_and_say(text, self._write_to_terminal)
        self.notify(words, timeout=2, markup=False)

    def _write_to_terminal(self, data: str) -> None:
        if self._driver is not None and not self.is_headless:
            self._driver.write(data)
