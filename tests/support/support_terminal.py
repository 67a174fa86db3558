"""The app on a real terminal (a pty), as a process of its own that a test can kill.

Run as a script it is that process: `python support_terminal.py FOLDER [raise] [FILE]`; to each
message it replies with the text of the file, piece by piece.
"""

from __future__ import annotations

import asyncio
import codecs
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support_picture import Shown

READY = "Enter send"  # the last row that the first paint draws
PATIENCE_SECONDS = 30.0
COLUMNS, LINES = 100, 30
PIECE_CHARACTERS = 20
PIECE_SECONDS = 0.005


class Terminal:
    """A pty with the app on it, everything that the app wrote, and what is seen of it."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.master, self._slave = pty.openpty()
        self.before = termios.tcgetattr(self._slave)
        self.output = b""
        self.seen = Shown(COLUMNS, LINES, coloured=True)
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.resize(COLUMNS)
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(folder), *arguments],
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "", "LINES": ""},
        )

    def resize(self, columns: int) -> None:
        """To another width, and the app is told."""
        size = struct.pack("HHHH", LINES, columns, 0, 0)
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, size)
        self.seen.resize(columns, LINES)

    def read_until(self, wanted: str) -> None:
        """Read what comes until some words are on the screen. Raises when they never are."""
        self._read_while(lambda: not any(wanted in row for row in self.seen.rows()), wanted)

    def settle(self) -> None:
        """Read until nothing has come for a while."""
        while self._read(0.5):
            continue

    def _read_while(self, missing: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while missing():
            if not self._read() and self.process.poll() is not None:
                raise AssertionError(f"ended without {what!r}: {self.output[-2000:]!r}")
            if time.monotonic() > end:
                raise AssertionError(f"no {what!r} in {self.seen.rows()}")

    def finish(self) -> int:
        """Read to the end; the exit code."""
        end = time.monotonic() + PATIENCE_SECONDS
        while self.process.poll() is None:
            self._read()
            if time.monotonic() > end:
                self.process.kill()
                raise AssertionError(f"it did not end: {self.output[-2000:]!r}")
        while self._read():
            continue
        return self.process.returncode

    def _read(self, seconds: float = 0.1) -> bool:
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        data = os.read(self.master, 65536)
        self.output += data
        self.seen.write(self._decoder.decode(data))
        return True

    @property
    def restored(self) -> bool:
        """Whether the modes are as before and every switch that was turned on is off again."""
        switches = [b"1049", b"1000", b"1003", b"1006", b"2004", b"1004"]
        off = all(
            self.output.rfind(b"\x1b[?" + n + b"l") > self.output.rfind(b"\x1b[?" + n + b"h")
            for n in switches
        )
        shown = self.output.rfind(b"\x1b[?25h") > self.output.rfind(b"\x1b[?25l")
        return off and shown and termios.tcgetattr(self._slave) == self.before

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self._slave)


def main() -> int:
    from fake_client import FakeClient

    from hobnob.tui.app import HobnobApp
    from hobnob.tui.start import run_app

    class Talking(FakeClient):
        async def send(self, *given: Any, **more: Any) -> Any:
            turn = await super().send(*given, **more)
            self._playing = asyncio.create_task(_play(self.script))
            return turn

    client = Talking()
    app = HobnobApp(lambda hear: client, Path(sys.argv[1]))
    if "raise" in sys.argv:

        def fail() -> None:
            raise RuntimeError("a handler broke")

        app.action_new = fail  # type: ignore[method-assign]
    return asyncio.run(run_app(app))


async def _play(script: Any) -> None:
    text = Path(sys.argv[-1]).read_text()
    script.start()
    for at in range(0, len(text), PIECE_CHARACTERS):
        script.text(text[at : at + PIECE_CHARACTERS])
        await asyncio.sleep(PIECE_SECONDS)
    script.finish()


if __name__ == "__main__":
    sys.exit(main())
