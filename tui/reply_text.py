"""Which of a reply's text is printed: all of it, or the code alone. Pure."""

from __future__ import annotations

from typing import Protocol

from hobnob.tui.blocks import CODE, Block, Splitter


class Form(Protocol):
    """Fed with the reply piece by piece; what it gives back is printed at once."""

    def feed(self, text: str) -> str: ...

    def end(self) -> str: ...


class Whole:
    def feed(self, text: str) -> str:
        return text

    def end(self) -> str:
        return ""


class Complete:
    """The blocks of a reply that is fed piece by piece, each once, when it is complete."""

    def __init__(self, splitter: Splitter) -> None:
        self._splitter = splitter
        self._taken = 0

    def feed(self, text: str) -> list[Block]:
        self._splitter.feed(text)
        return self._new()

    def end(self) -> list[Block]:
        """What a reply that was cut left open is all there is of it."""
        self._splitter.close()
        return self._new()

    def _new(self) -> list[Block]:
        new = self._splitter.blocks[self._taken :]
        self._taken += len(new)
        return new


class CodeOnly:
    """The contents of the code blocks, each when it is complete, an empty line between them."""

    def __init__(self) -> None:
        self._complete = Complete(Splitter(show=str))
        self.found = False

    def feed(self, text: str) -> str:
        return self._text(self._complete.feed(text))

    def end(self) -> str:
        return self._text(self._complete.end())

    def _text(self, blocks: list[Block]) -> str:
        text = ""
        for block in blocks:
            if block.kind == CODE and block.lines:
                text += ("\n" if self.found else "") + block.text + "\n"
                self.found = True
        return text
