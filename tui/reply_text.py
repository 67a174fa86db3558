"""Which of a reply's text is printed: all of it, or the code alone. Pure."""

from __future__ import annotations

from typing import Protocol

from hobnob.tui.blocks import CODE, Splitter


class Form(Protocol):
    """Fed with the reply piece by piece; what it gives back is printed at once."""

    def feed(self, text: str) -> str: ...

    def end(self) -> str: ...


class Whole:
    def feed(self, text: str) -> str:
        return text

    def end(self) -> str:
        return ""


class CodeOnly:
    """The contents of the code blocks, each when it is complete, an empty line between them."""

    def __init__(self) -> None:
        self._splitter = Splitter(show=str)
        self._taken = 0
        self.found = False

    def feed(self, text: str) -> str:
        self._splitter.feed(text)
        return self._new()

    def end(self) -> str:
        """What a reply that was cut left open is code too."""
        self._splitter.close()
        return self._new()

    def _new(self) -> str:
        new = self._splitter.blocks[self._taken :]
        self._taken += len(new)
        text = ""
        for block in new:
            if block.kind == CODE and block.lines:
                text += ("\n" if self.found else "") + block.text + "\n"
                self.found = True
        return text
