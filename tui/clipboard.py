"""Copying that works at home, over SSH and inside tmux: OSC 52, and local tools as well.

OSC 52 asks the terminal in front of the user, so it is always sent; whether it listened cannot
be known. A local tool is tried as well when the session is not remote. Bounded in size and time.
"""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import sys
from collections.abc import Callable, Mapping

from hobnob.tui.clean import clean

OSC52_MAX_BYTES = 74_994  # what xterm and tmux take at most, before base64
TOOL_SECONDS = 2.0

_LINUX_TOOLS = (
    ("WAYLAND_DISPLAY", ["wl-copy"]),
    ("DISPLAY", ["xclip", "-selection", "clipboard"]),
    ("DISPLAY", ["xsel", "--clipboard", "--input"]),
)


def sequence(text: str, environ: Mapping[str, str]) -> str:
    """The escape sequence that puts the text on the terminal's clipboard; empty if too long."""
    data = text.encode("utf-8", "replace")
    if len(data) > OSC52_MAX_BYTES:
        return ""
    inner = f"\x1b]52;c;{base64.b64encode(data).decode('ascii')}\x07"
    if "TMUX" in environ:
        return "\x1bPtmux;" + inner.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    if environ.get("TERM", "").startswith("screen"):
        return f"\x1bP{inner}\x1b\\"
    return inner


def tool(environ: Mapping[str, str]) -> list[str] | None:
    """The local program to copy with; none in a remote session, where it copies elsewhere."""
    if "SSH_CONNECTION" in environ or "SSH_TTY" in environ:
        return None
    if sys.platform == "darwin":
        return ["pbcopy"] if shutil.which("pbcopy") else None
    for variable, command in _LINUX_TOOLS:
        if environ.get(variable) and shutil.which(command[0]):
            return command
    return None


async def copy(text: str, write: Callable[[str], None]) -> str:
    """Copy by every way there is; the names of the ways that took the text."""
    ways = []
    if asked := sequence(text, os.environ):
        write(asked)
        ways.append("the terminal")
    command = tool(os.environ)
    if command is not None and await _run(command, text):
        ways.append(command[0])
    return " and ".join(ways)


async def copy_and_say(text: str, write: Callable[[str], None]) -> str:
    """Copy the text as it is shown (what could act on a terminal does not get on the clipboard);
    a sentence about it."""
    text = clean(text)
    if ways := await copy(text, write):
        return f"Copied {len(text)} characters ({ways})."
    return "Too long for the terminal's clipboard, and no copying program was found."


async def _run(command: list[str], text: str) -> bool:
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return False
    try:
        await asyncio.wait_for(process.communicate(text.encode("utf-8", "replace")), TOOL_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()
        return False
    return process.returncode == 0
