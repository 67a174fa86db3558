"""A line of the input that begins with `!` is for the user's shell: what is one. Pure.

One line: what has several is a message, whatever it begins with. `!!` begins a message with a
single `!`; a space before it does as well.
"""

from __future__ import annotations

MARK = "!"


def command_in(text: str) -> str:
    """What is to be run; empty for a message."""
    line = text.rstrip()
    if not line.startswith(MARK) or line.startswith(2 * MARK) or "\n" in line:
        return ""
    return line.removeprefix(MARK).strip()


def literal(message: str) -> str:
    """A message as it is written into the input: so that it is one."""
    return MARK + message if message.startswith(MARK) else message


def unmarked(text: str) -> str:
    """What a text of the input says: the reverse of `literal`."""
    return text.removeprefix(MARK) if text.startswith(2 * MARK) else text
