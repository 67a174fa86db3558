"""The / commands of the input. Only a line that is exactly one of them runs; the rest is text.

Pure: what runs them and what offers them is elsewhere.
"""

from __future__ import annotations

COMMANDS = {
    "/new": "start a new conversation",
    "/list": "your conversations",
    "/search": "search all conversations",
    "/find": "find in this conversation",
    "/regenerate": "a new reply to the last message",
    "/edit": "change your last message and send it anew",
    "/compare": "one prompt against several columns, side by side",
    "/comparisons": "the comparisons that were made",
    "/copy": "copy the last reply",
    "/code": "copy the last code block",
    "/rename": "rename this conversation",
    "/theme": "choose the colours",
    "/help": "show the keys",
    "/quit": "leave; a reply that is being written goes on",
}


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
