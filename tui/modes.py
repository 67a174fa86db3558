"""Which of the three chats opens: full screen, inline, or plain. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

_NO = frozenset({"", "0", "no", "false"})


class Mode(Enum):
    FULL = "full"  # the whole screen
    INLINE = "inline"  # finished text in the terminal's own scrollback, the rest below it
    PLAIN = "plain"  # line after line, for screen readers and terminals that can do no more


def choose(environ: Mapping[str, str], *, plain: bool = False, inline: bool = False) -> Mode:
    """As it was asked for; a terminal that cannot move its cursor always gets the plain one."""
    if plain or is_accessible(environ) or environ.get("TERM", "dumb") in ("", "dumb"):
        return Mode.PLAIN
    return Mode.INLINE if inline else Mode.FULL


def is_accessible(environ: Mapping[str, str]) -> bool:
    """Whether the user wants nothing that a screen reader cannot follow (ACCESSIBLE=1)."""
    return environ.get("ACCESSIBLE", "").lower() not in _NO
