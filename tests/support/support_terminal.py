"""The app on a real terminal (a pty), as a process of its own that a test can kill.

Run as a script it is that process: `python support_terminal.py FOLDER [raise]`.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

READY = b"Enter send"  # the last row that the first paint draws
PATIENCE_SECONDS = 30.0


class Terminal:
    """A pty of 100 by 30 with the app on it, and everything that the app wrote."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.master, self._slave = pty.openpty()
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.before = termios.tcgetattr(self._slave)
        self.output = b""
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(folder), *arguments],
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "", "LINES": ""},
        )

    def read_until(self, wanted: bytes) -> None:
        """Read what comes until it holds some bytes. Raises when it never does."""
        end = time.monotonic() + PATIENCE_SECONDS
        while wanted not in self.output:
            if not self._read() and self.process.poll() is not None:
                raise AssertionError(f"ended without {wanted!r}: {self.output[-2000:]!r}")
            if time.monotonic() > end:
                raise AssertionError(f"no {wanted!r} in {self.output[-2000:]!r}")

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

    def _read(self) -> bool:
        if not select.select([self.master], [], [], 0.1)[0]:
            return False
        self.output += os.read(self.master, 65536)
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

    client = FakeClient()
    app = HobnobApp(lambda hear: client, Path(sys.argv[1]))
    if "raise" in sys.argv:

        def fail() -> None:
            raise RuntimeError("a handler broke")

        app.action_new = fail  # type: ignore[method-assign]
    return asyncio.run(run_app(app))


if __name__ == "__main__":
    sys.exit(main())
