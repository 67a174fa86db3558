"""The / commands of the input. Only a line that is exactly one of them runs; the rest is text."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

COMMANDS = {
    "/new": "start a new conversation",
    "/list": "your conversations",
    "/search": "search all conversations",
    "/find": "find in this conversation",
    "/regenerate": "a new reply to the last message",
    "/copy": "copy the last reply",
    "/code": "copy the last code block",
    "/rename": "rename this conversation",
    "/theme": "choose the colours",
    "/help": "show the keys",
    "/quit": "leave; a reply that is being written goes on",
}
MOST_OFFERED = 6


def matching(text: str) -> list[str]:
    """The commands that a text may become."""
    if not text.startswith("/") or len(text.split()) != 1 or "\n" in text:
        return []
    return [name for name in COMMANDS if name.startswith(text)]


def completed(text: str) -> str | None:
    """The longest text that all matching commands share; None if that is no more than `text`."""
    names = matching(text)
    if not names:
        return None
    common = names[0]
    for name in names[1:]:
        while not name.startswith(common):
            common = common[:-1]
    return common if len(common) > len(text) else None


class CommandList(Static):
    """The commands that fit what is typed, above the input."""

    def __init__(self) -> None:
        super().__init__(id="commands", markup=False)
        self.display = False

    def offer(self, text: str) -> None:
        names = matching(text)[:MOST_OFFERED]
        width = max(map(len, names), default=0) + 2
        rows = [Content.assemble((name.ljust(width), "bold"), COMMANDS[name]) for name in names]
        self.update(Content("\n").join(rows))
        self.display = bool(names)
