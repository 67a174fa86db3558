"""A text that is nearly a command: what to ask before it is sent as a message. Pure.

No chat sends what was meant for it to the model without asking; and asks once, since a text that
begins with / may be meant for the model.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from hobnob.tui.commands import COMMANDS, command_of

_WORD = re.compile(r"/[a-z]+")
LONG_NAME = 6
"""With the slash. In a shorter one two other letters make another word."""
CALLED = {"/exit": "/quit", "/bye": "/quit", "/clear": "/new", "/reset": "/new", "/keys": "/help"}
"""What other chats call a command."""


class Doubt:
    def __init__(self, known: Collection[str] = COMMANDS) -> None:
        self._known = known
        self._asked = ""

    def about(self, text: str) -> str:
        """What to say in place of sending a text; empty when it is to be sent, or is a command.
        A text that is entered again is meant as it is."""
        if text == self._asked:
            return ""
        found = nearest(text, self._known)
        self._asked = text if found else ""
        if not found:
            return ""
        word = text.split()[0]
        return f"There is no {word}; {found}? Enter again sends it as a message."


def nearest(text: str, known: Collection[str] = COMMANDS) -> str:
    """The command that a text is but for a slip or two of the hand; empty where there is none."""
    word, *rest = text.split()[:3] or [""]
    name = word.lower()
    if word in known or not _WORD.fullmatch(name) or "\n" in text.strip():
        return ""
    found = CALLED.get(name) or min(known, key=lambda one: distance(name, one))
    if name not in CALLED and distance(name, found) > (2 if len(found) >= LONG_NAME else 1):
        return ""
    return found if command_of(" ".join([found, *rest]), known) else ""


def distance(a: str, b: str) -> int:
    """How many letters are missing, too many, others or changed with their neighbour."""
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, one in enumerate(a, 1):
        further, before, row = before, row, [i]
        for j, other in enumerate(b, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (one != other)))
            if i > 1 and j > 1 and (one, a[i - 2]) == (b[j - 2], other):
                row[-1] = min(row[-1], further[j - 2] + 1)
    return row[-1]
