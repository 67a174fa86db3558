"""`!command` in the input: it runs in the user's shell, and its output comes back into the input.

Nothing is sent by that. Only one line that is seen as it is runs; `!!` and a space before it make
it text. What is kept of the output is bounded, and how long it runs is for the user to say.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress

from hobnob.tui.clean import clean
from hobnob.tui.folds import Fold

KEPT_BYTES = 64 * 1024
"""Of the output: a half from its beginning, a half from its end."""
READ_BYTES = 16 * 1024
KILL_SECONDS = 1.0
"""What a command that was asked to end has for that."""
LOOK_SECONDS = 0.02
LINGER_SECONDS = 0.5
"""How long is read on when the shell has ended, and something it started holds its output."""


def command_in(text: str) -> str:
    """What a text asks to be run; nothing for any other text."""
    if not text.startswith("!") or text.startswith("!!") or "\n" in text:
        return ""
    return text[1:].strip()


def as_text(typed: str) -> str:
    """What is sent for it: of `!!` one stays."""
    return typed[1:] if typed.startswith("!!") and "\n" not in typed else typed


def as_typed(text: str) -> str:
    """What has to be typed for a text to be sent."""
    return f"!{text}" if text.startswith("!!") or command_in(text) else text


class Kept:
    """The beginning and the end of what was written."""

    def __init__(self, most: int = KEPT_BYTES) -> None:
        self._half = most // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._left_out = 0

    def add(self, data: bytes) -> None:
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        over = max(0, len(self._tail) - self._half)
        del self._tail[:over]
        self._left_out += over

    @property
    def text(self) -> str:
        """Harmless, and whatever the bytes were."""
        if not self._left_out:
            return _shown(self._head + self._tail)
        note = f"\n[… {self._left_out} bytes of the output are left out here …]\n"
        return _shown(self._head) + note + _shown(self._tail)


def _shown(data: bytes | bytearray) -> str:
    return clean(data.decode("utf-8", "replace"))


class Job:
    """One command. It has a process group of its own, and no terminal to ask anything on."""

    def __init__(self, command: str, environ: Mapping[str, str]) -> None:
        self.command = command
        self._shell = environ.get("SHELL") or "/bin/sh"
        self._environ = {**environ, "NO_COLOR": "1", "TERM": "dumb"}
        self._process: asyncio.subprocess.Process | None = None
        self._stopped = False

    async def run(self) -> Fold:
        """Its output, under its name. Raises OSError where there is no such shell."""
        process = await asyncio.create_subprocess_exec(
            self._shell,
            "-c",
            self.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=self._environ,
            start_new_session=True,
        )
        self._process = process
        if self._stopped:
            self.stop()
        kept = Kept()
        reading = asyncio.ensure_future(_read(process, kept))
        ended = False
        try:
            while (code := process.returncode) is None:  # `wait` is for the end of its output too
                await asyncio.sleep(LOOK_SECONDS)
            ended = True
            await asyncio.wait([reading], timeout=LINGER_SECONDS)
        finally:
            if self._stopped or not ended:
                self._signal(signal.SIGKILL)
            reading.cancel()
            self._process = None
            process._transport.close()  # type: ignore[attr-defined]
        return Fold(kept.text or "(no output)\n", f"$ {self.command}", self._end(code))

    def stop(self) -> None:
        """Ask it to end, then end it; what it has written so far is kept."""
        self._stopped = True
        self._signal(signal.SIGTERM)
        if self._process is not None:
            asyncio.get_running_loop().call_later(KILL_SECONDS, self._signal, signal.SIGKILL)

    def _end(self, code: int) -> str:
        if self._stopped:
            return "stopped"
        return f"exit code {code}" if code >= 0 else f"ended by signal {-code}"

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)


async def _read(process: asyncio.subprocess.Process, kept: Kept) -> None:
    assert process.stdout is not None, "it was asked for"
    while data := await process.stdout.read(READ_BYTES):
        kept.add(data)
