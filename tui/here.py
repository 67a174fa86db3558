"""Which conversation this terminal talked in last, for `-c`: before what others talked in since.

A terminal is known by the session of processes that its shell leads, and when that began: devices
such as /dev/pts/3 are given to one window after another. Outside of a terminal nothing is known.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hobnob.tui.drafts import write_atomically
from hobnob.tui.notice import ClientError

if TYPE_CHECKING:
    from hobnob.tui.client import Client

MAX_TERMINALS = 200
"""Remembered at most; the ones that were used longest ago are forgotten."""

_ID = re.compile(r"[A-Za-z0-9_-]{4,100}")


async def newest(client: Client, folder: Path) -> str:
    """The conversation that this terminal talked in last, if it is still there, or else the one
    that changed last. Raises ClientError: `not_found` where there is none."""
    id = recall(folder)
    if id is not None:
        try:
            return (await client.conversation(id)).id
        except ClientError as error:
            if error.code != "not_found":
                raise
    return (await client.newest()).id


def remember(folder: Path, conversation: str) -> None:
    """A full or read-only disk only costs the memory of it."""
    name = _terminal()
    if name is None:
        return
    with suppress(OSError):
        for one in (folder.parent, folder):
            one.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(folder / name, conversation)
        known = sorted(folder.iterdir(), key=lambda one: one.stat().st_mtime_ns)
        for old in known[:-MAX_TERMINALS]:
            old.unlink()


def recall(folder: Path) -> str | None:
    name = _terminal()
    if name is None:
        return None
    try:
        text = (folder / name).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    return text if _ID.fullmatch(text) else None


def _terminal() -> str | None:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return None  # no terminal is ours
    leader = os.getsid(0)
    return f"{leader}-{_began(leader)}"


def _began(pid: int) -> str:
    """When the process was started, in the system's own count; "0" where it does not tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "0"
    # proc(5): the name in parentheses may hold anything; the 22nd field is the 20th after it.
    return stat.rpartition(")")[2].split()[19]
