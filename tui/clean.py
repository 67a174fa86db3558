"""Text that came from a model, a file or another program, made harmless for a terminal. Pure.

Control characters become visible stand-ins, letter for letter, so that nothing in a reply can
move the cursor, set a title or write the clipboard. Pipes and files get the text as it is.
"""

from __future__ import annotations

import re

_KEPT = "\n\t"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_STAND_INS = {chr(code): chr(0x2400 + code) for code in range(0x20)} | {"\x7f": "\u2421"}
_UNSHOWABLE = "\ufffd"
"""For what has no picture of its own: C1 controls, separators of lines and paragraphs,
overrides of the direction of writing (they reorder what stands around them), lone surrogates."""


def clean(text: str) -> str:
    """Lines and tabs stay, CRLF becomes a line end, every other control is shown, not sent."""
    return _CONTROL.sub(_stand_in, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """For titles, names and error messages: line ends and tabs become spaces too."""
    return clean(" ".join(text.split("\n"))).replace("\t", " ")


class Cleaner:
    """clean over pieces: a CR at the end of one waits for what the next begins with."""

    def __init__(self) -> None:
        self._held = ""

    def push(self, text: str) -> str:
        whole = self._held + text
        self._held = "\r" if whole.endswith("\r") else ""
        return clean(whole.removesuffix("\r"))

    def flush(self) -> str:
        held, self._held = self._held, ""
        return clean(held)


def _stand_in(match: re.Match[str]) -> str:
    char = match.group()
    return char if char in _KEPT else _STAND_INS.get(char, _UNSHOWABLE)
