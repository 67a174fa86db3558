"""The command line of the user's shell: what the model is told, and the command in its reply.
Pure.

What comes out goes onto the user's own command line, so it is one line with nothing in it that
cannot be seen; whatever else a reply is, it is refused rather than repaired.
"""

from __future__ import annotations

import re

from hobnob.exits import Exit, ExitError
from hobnob.tui.blocks import CODE, Block, Splitter
from hobnob.tui.clean import clean, one_line
from hobnob.tui.reply_text import Complete

SHOWN_CHARACTERS = 60
"""So much of a refused reply is shown."""

_CONTINUED = re.compile(r"(?<!\\)((?:\\\\)*)\\\n[ \t]*")
_IN_TICKS = re.compile(r"(`+)([^`\n]+)\1")


class NoCommandError(ExitError):
    """The reply is no command that could be put onto a line."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Exit.INTERNAL, "no_command")


def system_prompt(system: str, shell: str) -> str:
    """`system` is the operating system, as a person would call it."""
    return (
        f"You write commands for the shell {shell} on {system}. The user's message is what stands "
        "on the command line: a wish in words, or a command that is to be completed or corrected. "
        f"Reply with exactly one {shell} command on one line that does it, and with nothing else: "
        "no explanation, no comment, no Markdown. Join several steps with && or a pipe. Write what "
        "you cannot know as a clear name in capitals, such as FILE."
    )


def command(reply: str) -> str:
    """The one command of a reply. Raises NoCommandError, one sentence."""
    text = _code(reply.replace("\r\n", "\n")).strip()
    text = _CONTINUED.sub(r"\1 ", text)
    if ticked := _IN_TICKS.fullmatch(text):
        text = ticked[2].strip()
    text = text.removeprefix("$ ").strip()
    if not text:
        raise NoCommandError("The reply is empty: the line stays as it was.")
    if "\n" in text:
        raise NoCommandError(f"The reply is not one command on one line: {_beginning(text)}")
    if clean(text) != text:
        raise NoCommandError(f"The reply has control characters in it: {_beginning(text)}")
    return text


def _code(reply: str) -> str:
    """The first block of code that has any, or all of a reply that has no block."""
    blocks = Complete(Splitter(show=str))
    found: list[Block] = [*blocks.feed(reply), *blocks.end()]
    code = [one.text for one in found if one.kind == CODE]
    return next(filter(str.strip, code), "") if code else reply


def _beginning(text: str) -> str:
    shown = one_line(text)
    return shown if len(shown) <= SHOWN_CHARACTERS else f"{shown[: SHOWN_CHARACTERS - 1]}…"
