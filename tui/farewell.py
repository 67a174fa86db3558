"""How every chat ends: the terminal remembers its conversation, and the last line is the command
that comes back to it."""

from __future__ import annotations

import os
import shlex
import shutil
import sys

from hobnob.launch import LaunchError, Target, normalise_url
from hobnob.tui.clean import one_line
from hobnob.tui.here import remember


def say_how_to_come_back(target: Target, conversation: str, *options: str) -> None:
    remember(target.paths.terminals_dir, conversation)
    id = one_line(conversation[:8])
    words = [_program(), *options, *_place(target), "--conversation", id]
    try:
        sys.stdout.write(f"To go on with this: {shlex.join(words)}\n")
        sys.stdout.flush()
    except OSError:
        return  # the terminal is gone


def _program() -> str:
    """As it was called, where `hobnob` alone is not found (`make chat`)."""
    called = sys.argv[0]
    hidden = os.path.basename(called) == "hobnob" and shutil.which("hobnob") is None
    return called if hidden else "hobnob"


def _place(target: Target) -> tuple[str, ...]:
    """What leads to the same server, unless the environment does."""
    if target.url is None:
        return ()
    try:
        known = normalise_url(os.environ.get("HOBNOB_URL") or "")
    except LaunchError:
        known = ""
    return () if known == target.url else ("--url", target.url)
