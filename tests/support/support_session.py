"""The real command on a real terminal (a pty that it controls), typed into and read by a test.

Started through a shell with job control where the test wants Ctrl+Z and `fg`.
"""

from __future__ import annotations

import asyncio
import codecs
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Mapping
from types import TracebackType

from support_cli import COMMAND, Cli
from support_picture import Shown

PATIENCE_SECONDS = 30.0

SHELL = ("/bin/bash", "--norc", "--noprofile", "-i")


class Session:
    """`async with Session(cli, "--plain") as session`; what was read stays in `output`."""

    def __init__(
        self,
        cli: Cli,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        command: tuple[str, ...] = COMMAND,
        size: tuple[int, int] = (100, 30),
    ) -> None:
        self._command = (*command, *arguments)
        self._env = {**cli.env, "TERM": "xterm-256color", **(env or {})}
        self.master, self._slave = pty.openpty()
        self._size = size
        self.resize(*size)
        self.before = termios.tcgetattr(self._slave)
        self.output = b""
        self._at = 0

    async def __aenter__(self) -> Session:
        os.set_blocking(self.master, False)
        asyncio.get_running_loop().add_reader(self.master, self._read)
        self._news = asyncio.Event()

        def take_terminal() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            self._command,
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env=self._env,
            start_new_session=True,
            preexec_fn=take_terminal,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.get_running_loop().remove_reader(self.master)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self._slave)

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def type(self, text: str | bytes) -> None:
        os.write(self.master, text.encode() if isinstance(text, str) else text)

    async def until(self, wanted: str | bytes) -> None:
        """Read until this comes, after what was waited for before."""
        sought = wanted.encode() if isinstance(wanted, str) else wanted
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while (found := self.output.find(sought, self._at)) < 0:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"no {wanted!r} in {self.output[self._at :]!r}") from None
        self._at = found + len(sought)

    async def plays(self, *steps: tuple[str, ...]) -> None:
        """Of each step all is waited for but its last words, which are typed then, if any."""
        for *awaited, typed in steps:
            for wanted in awaited:
                await self.until(wanted)
            self.type(typed)

    async def leaves(self) -> None:
        """By Ctrl+D, and all is as it should be."""
        self.type("\x04")
        assert await self.ends() == 0
        assert self.restored
        assert "Traceback" not in self.text

    async def sees(self, wanted: str) -> None:
        """Read until this is in a row of the screen: the app writes only what is new on it."""
        shown = Shown(*self._size, coloured=True)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        read = 0
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    self._news.clear()
                    shown.write(decoder.decode(self.output[read:]))
                    read = len(self.output)
                    if any(wanted in row for row in shown.rows()):
                        return
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"no {wanted!r} in {shown.rows()}") from None

    async def ends(self) -> int:
        """The exit code, with all of its output read."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.process.poll() is None:
                await asyncio.sleep(0.02)
        self._read()
        return self.process.returncode

    @property
    def text(self) -> str:
        """The output with one kind of line end."""
        return self.output.decode("utf-8", "replace").replace("\r\n", "\n")

    @property
    def restored(self) -> bool:
        """Whether the modes are as before, and every switch that was turned on is off again."""
        switches = re.findall(rb"\x1b\[\?(\d+)([hl])", self.output)
        state = {number: on for number, on in switches}
        usual = {state.pop(number, b"h") for number in (b"7", b"25")}  # wrapping, the cursor
        modes = termios.tcgetattr(self._slave)
        return modes == self.before and usual == {b"h"} and b"h" not in state.values()

    def _read(self) -> None:
        try:
            self.output += os.read(self.master, 65536)
        except (BlockingIOError, OSError):
            return
        self._news.set()
