"""The last line of every chat: the command that comes back to the conversation."""

from __future__ import annotations

import sys

from hobnob.tui.clean import one_line


def say_how_to_come_back(conversation: str, *options: str) -> None:
    words = " ".join(["hobnob", *options, "--conversation", one_line(conversation[:8])])
    try:
        sys.stdout.write(f"To go on with this: {words}\n")
        sys.stdout.flush()
    except OSError:
        return  # the terminal is gone
