"""Plain output: the answer to stdout, everything else to stderr. No cursor, no colour.

On a terminal, text is cleaned of control characters; in a pipe or a file its bytes are the
reply's own. What the locale cannot express is replaced, never an error. A closed reader and a
full disk are told apart.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import os
import select
import stat
import sys
from types import TracebackType
from typing import Any

from hobnob.exits import Exit, ExitError
from hobnob.tui.clean import Cleaner, one_line
from hobnob.tui.modes import is_accessible

PIECE_BYTES = select.PIPE_BUF
"""What a pipe or terminal that is ready takes without blocking."""


class OutputClosed(ExitError):
    """Nobody reads stdout any more (`| head`). Nothing is said about it."""

    def __init__(self) -> None:
        super().__init__("", Exit.CLOSED_OUTPUT, "closed_output")


class OutputFailed(ExitError):
    """Stdout cannot be written; the message says why."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Exit.OUTPUT, "output_failed")


class Output:
    """Where the answer goes. `skip` bytes of it have been printed before and are left out."""

    def __init__(
        self,
        descriptor: int,
        *,
        terminal: bool,
        encoding: str = "utf-8",
        skip: int = 0,
        harmless: bool = False,
    ):
        """`harmless`: what is written needs no cleaning, its control sequences are ours."""
        self._descriptor = descriptor
        self._cleaner = Cleaner() if terminal and not harmless else None
        self._encoder = codecs.getincrementalencoder(encoding)("replace")
        self._skip = skip
        self._last = "\n"
        self.terminal = terminal
        self.printed = 0
        """Bytes of the answer that are out, the skipped ones included."""

    @classmethod
    def stdout(cls, skip: int = 0, *, harmless: bool = False) -> Output:
        """Raises OutputClosed when the process was started without one (`>&-`)."""
        if sys.stdout is None:
            raise OutputClosed
        encoding = sys.stdout.encoding or "utf-8"
        terminal = os.isatty(1)
        return cls(1, terminal=terminal, encoding=encoding, skip=skip, harmless=harmless)

    async def write(self, text: str) -> None:
        """Waits while the reader is slow, without holding up the event loop."""
        for piece in self._pieces(text):
            await _writable(self._descriptor)
            self._write(piece)

    async def end(self) -> None:
        """The answer ends with a line end: one is added unless it has it."""
        await self.write(self._rest())

    def write_now(self, text: str) -> None:
        """The whole of a short answer, blocking; for code without an event loop."""
        for piece in self._pieces(text):
            self._write(piece)

    def end_now(self) -> None:
        self.write_now(self._rest())

    def _rest(self) -> str:
        held = self._cleaner.flush() if self._cleaner is not None else ""
        last = held[-1:] or self._last
        return held if last == "\n" else held + "\n"

    def _pieces(self, text: str) -> list[bytes]:
        shown = self._cleaner.push(text) if self._cleaner is not None else text
        self._last = shown[-1:] or self._last
        data = self._encoder.encode(_without_surrogates(shown))
        skipped = min(self._skip, len(data))
        self._skip -= skipped
        self.printed += skipped
        data = data[skipped:]
        return [data[i : i + PIECE_BYTES] for i in range(0, len(data), PIECE_BYTES)]

    def _write(self, piece: bytes) -> None:
        view = memoryview(piece)
        while view:
            try:
                written = os.write(self._descriptor, view)
            except BrokenPipeError:
                raise OutputClosed from None
            except OSError as error:
                reason = error.strerror or str(error)
                raise OutputFailed(f"The answer cannot be written: {reason}.") from None
            self.printed += written
            view = view[written:]


async def _writable(descriptor: int) -> None:
    """Until a write of one piece would not block. Files and odd devices always are ready."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    if poll.poll(0):
        return
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    try:
        loop.add_writer(descriptor, ready.set_result, None)
    except OSError:
        return  # epoll does not take it (a file): writing is the only way to know
    try:
        await ready
    finally:
        loop.remove_writer(descriptor)


def _without_surrogates(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class Notes:
    """What is said on stderr: whole lines, and on a terminal one line that comes and goes."""

    def __init__(self, *, quiet: bool = False):
        self._quiet = quiet
        self._stream = sys.stderr
        self._passing = False
        usable = self._stream is not None and self._stream.isatty()
        able = os.environ.get("TERM", "dumb") != "dumb" and not is_accessible(os.environ)
        self._terminal = usable and able

    def __enter__(self) -> Notes:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.clear()

    def say(self, sentence: str) -> None:
        if not self._quiet:
            self.error(sentence)

    def error(self, sentence: str) -> None:
        """Said even when quiet."""
        self.clear()
        self._print(f"hobnob: {one_line(sentence)}\n")

    def text(self, lines: str) -> None:
        """Lines as they are, and a line end."""
        self.clear()
        self._print(f"{lines}\n")

    def question(self, words: str) -> None:
        """Words that the user answers on the same line."""
        self.clear()
        self._print(f"{one_line(words)} ")

    def progress(self, words: str) -> None:
        """Shown until the next word on stderr or `clear`; only on a terminal."""
        if self._terminal and not self._quiet:
            self._print(f"\r\x1b[K{one_line(words)}")
            self._passing = True

    def clear(self) -> None:
        if self._passing:
            self._passing = False
            self._print("\r\x1b[K")

    def _print(self, text: str) -> None:
        if self._stream is None:
            return
        encoding = self._stream.encoding or "utf-8"
        try:
            self._stream.write(text.encode(encoding, "replace").decode(encoding))
            self._stream.flush()
        except OSError:
            pass  # nobody reads stderr: there is nowhere left to say so


def print_json(value: Any) -> None:
    """One JSON document and a line end. ASCII, so that no locale and no terminal can hurt it."""
    output = Output.stdout()
    output.write_now(json.dumps(value, ensure_ascii=True, indent=None))
    output.end_now()


def is_slow(descriptor: int) -> bool:
    """Whether reading it may wait for somebody (a pipe or socket)."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
