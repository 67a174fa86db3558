"""The commands: typed with a / into the input, or chosen from the palette.

Only a line that is exactly one of them runs, with a word after it where it takes one; any other
text that begins with / is text. Pure: what runs them and what offers them is elsewhere.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple


class Command(NamedTuple):
    title: str  # in the palette
    about: str
    key: str = ""
    on_screen: bool = False  # of no use where there are only lines of text
    takes: bool = False  # a word after it, if one is given
    counts: bool = False  # a number after it, if one is given


COMMANDS = {
    "/new": Command("New conversation", "start a new conversation", "Ctrl+N"),
    "/temporary": Command(
        "Temporary conversation", "start one of which nothing is kept when you leave it"
    ),
    "/list": Command("Conversations", "your conversations", "Ctrl+S"),
    "/search": Command("Search everything", "search all conversations", "F3"),
    "/find": Command("Find", "find in this conversation", "Ctrl+F"),
    "/regenerate": Command("New reply", "a new reply to the last message"),
    "/continue": Command("Go on", "more of the last reply, where it was cut"),
    "/compact": Command("Compact", "sum up what is older and go on with the summary"),
    "/edit": Command("Edit", "change your last message and send it anew"),
    "/compare": Command(
        "Playground", "one prompt against several columns, side by side", "Ctrl+L", on_screen=True
    ),
    "/comparisons": Command("Comparisons", "the comparisons that were made", on_screen=True),
    "/copy": Command("Copy the last reply", "copy the last reply"),
    "/code": Command("Copy code", "copy the last code block, or /code 1 the first", counts=True),
    "/rename": Command("Rename", "rename this conversation"),
    "/title": Command("Find a title", "have the model find a name for this conversation"),
    "/pin": Command("Pin", "keep this conversation at the top of the list, or no longer"),
    "/system": Command("System prompt", "what the model is told first, in this conversation"),
    "/role": Command("Role", "answer in a role of yours: /role NAME", takes=True),
    "/settings": Command("Parameters", "sampling options of this conversation: temperature=0.2"),
    "/theme": Command("Colours", "choose the colours", on_screen=True),
    "/model": Command("Model", "choose the model that answers", on_screen=True),
    "/status": Command("Status", "what the server does at this moment", "F2", on_screen=True),
    "/help": Command("Keys", "show the keys", "F1"),
    "/quit": Command("Quit", "leave; a reply that is being written goes on", "Ctrl+Q"),
}


def command_of(text: str, known: Container[str] = COMMANDS) -> tuple[str, str] | None:
    """The command that a text is, and the word after it or nothing; None for any other text."""
    name, _, rest = text.strip().partition(" ")
    words = rest.split()
    if name not in known or len(words) > 1 or "\n" in rest:
        return None
    command = COMMANDS.get(name)
    if words and (command is None or not _takes(command, words[0])):
        return None
    return name, "".join(words)


def _takes(command: Command, word: str) -> bool:
    return command.takes or (command.counts and word.isdecimal())


def matching(text: str) -> list[str]:
    """The commands that a text may become."""
    if not text.startswith("/") or len(text.split()) != 1 or "\n" in text:
        return []
    return [name for name in COMMANDS if name.startswith(text)]
