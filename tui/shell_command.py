"""A command run in the user's shell, on this machine and where the app was started.

It has no terminal and nothing to read, so that it can neither ask nor draw; what it writes is
kept within a bound, its beginning and its end, and made harmless. Knows no screen.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from hobnob.tui.clean import clean, one_line
from hobnob.tui.folds import Fold, fenced

KEPT_BYTES = 64 * 1024
READ_BYTES = 64 * 1024
STOP_SECONDS = 1.0
"""Between asking it to end and killing it."""
DRAIN_SECONDS = 0.2
"""For the last of what it wrote; what it left in the background may write for ever."""
FALLBACK = "/bin/sh"

_FORCED = frozenset(("FORCE_COLOR", "CLICOLOR_FORCE"))


class ShellRefused(Exception):
    """It could not be run; the message says why, in a sentence."""


@dataclass(frozen=True, slots=True)
class Ran:
    command: str
    code: int
    """As the system counts: a negative one is the signal that ended it."""
    output: str
    stopped: bool = False
    """By the user, before it had ended."""

    @property
    def outcome(self) -> str:
        if self.stopped:
            return "stopped"
        if self.code >= 0:
            return f"exit code {self.code}"
        try:
            return f"ended by {signal.Signals(-self.code).name}"
        except ValueError:
            return f"ended by signal {-self.code}"

    @property
    def size(self) -> str:
        if not self.output:
            return "no output"
        lines = self.output.removesuffix("\n").count("\n") + 1
        return f"{lines} lines" if lines > 1 else "1 line"

    @property
    def fold(self) -> Fold:
        """As it stands in the input, and as it is sent."""
        command = one_line(self.command)
        heading = f"Shell command, {self.outcome}" + ("" if self.output else ", no output")
        shown = fenced(f"$ {command}\n{self.output}", "console")
        about = self.size if self.outcome == "exit code 0" else f"{self.outcome}, {self.size}"
        return Fold(f"{heading}:\n{shown}", command, about)


class Kept:
    """The beginning and the end of what was written."""

    def __init__(self, most: int = KEPT_BYTES) -> None:
        self._half = most // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, data: bytes) -> None:
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        self._total += len(data)
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    @property
    def text(self) -> str:
        """Harmless; what is not in it is counted in its place."""
        head, tail = bytes(self._head), bytes(self._tail[-self._half :])
        if len(head) + len(tail) == self._total:
            return clean((head + tail).decode("utf-8", "replace"))
        begins, used = codecs.utf_8_decode(head, "replace", False)
        # A letter that is cut in two is left out; none has more than three bytes after its first.
        cut = next((at for at, byte in enumerate(tail[:3]) if byte & 0xC0 != 0x80), 3)
        ends = tail[cut:].decode("utf-8", "replace")
        missing = self._total - used - len(tail) + cut
        return f"{clean(begins)}\n[… {missing:,} bytes left out …]\n{clean(ends)}"


class ShellCommand:
    """Used from one event loop."""

    def __init__(self, command: str) -> None:
        self.command = command
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """End it, and all that it has started; `run` returns what there is."""
        self._stop.set()

    async def run(self) -> Ran:
        """To its end. Raises ShellRefused. Cancelled, it kills at once what it has started."""
        shell = os.environ.get("SHELL") or FALLBACK
        kept = Kept()
        with _pipe() as (ours, theirs):
            try:
                process = await asyncio.create_subprocess_exec(
                    shell,
                    "-c",
                    self.command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=theirs,
                    stderr=theirs,
                    env=environment(os.environ),
                    start_new_session=True,  # a group to kill, and no terminal to be asked on
                )
            except (OSError, ValueError) as error:
                why = (error.strerror if isinstance(error, OSError) else None) or str(error)
                raise ShellRefused(f"{one_line(shell)} cannot be run: {why}.") from None
            finally:
                os.close(theirs)
            with _listening(ours, kept) as end:
                stopped = await self._end_of(process)
                await asyncio.wait({end}, timeout=DRAIN_SECONDS)
        code = process.returncode
        return Ran(self.command, -signal.SIGKILL if code is None else code, kept.text, stopped)

    async def _end_of(self, process: asyncio.subprocess.Process) -> bool:
        """Whether it was stopped before it ended."""
        ended = asyncio.ensure_future(process.wait())
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                return False
            _signal(process.pid, signal.SIGTERM)
            await asyncio.wait({ended}, timeout=STOP_SECONDS)
            _signal(process.pid, signal.SIGKILL)  # what it had started may not have listened
            await asyncio.wait({ended}, timeout=STOP_SECONDS)
            return True
        finally:
            stopping.cancel()
            if not ended.done():
                _signal(process.pid, signal.SIGKILL)
                await asyncio.wait({ended}, timeout=STOP_SECONDS)  # else it stays a zombie
            ended.cancel()


def environment(found: Mapping[str, str]) -> dict[str, str]:
    """For a program whose output is read as text."""
    kept = {name: value for name, value in found.items() if name not in _FORCED}
    return kept | {"NO_COLOR": "1", "TERM": "dumb"}


def _signal(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # macOS: of what has just ended
        os.killpg(group, number)


@contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    """Our end, closed in the end, and the one to be given away. A pipe of asyncio's would make
    the process seem to run for as long as anything holds it open. Raises ShellRefused."""
    try:
        ours, theirs = os.pipe()
    except OSError as error:
        raise ShellRefused(f"No command can be run: {error.strerror}.") from None
    os.set_blocking(ours, False)
    try:
        yield ours, theirs
    finally:
        os.close(ours)


@contextmanager
def _listening(descriptor: int, kept: Kept) -> Iterator[asyncio.Future[None]]:
    """Keeps what comes; the future is done when nothing more will."""
    loop = asyncio.get_running_loop()
    end: asyncio.Future[None] = loop.create_future()

    def read() -> None:
        try:
            data = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        kept.add(data)
        if not data:
            loop.remove_reader(descriptor)
            if not end.done():
                end.set_result(None)

    loop.add_reader(descriptor, read)
    try:
        yield end
    finally:
        loop.remove_reader(descriptor)
        end.cancel()
