"""One engine process from its start to its death: spawned, spoken to in frames, ended, explained.

Knows frames and processes; what the frames mean is handle.py's business. The socketpair is the
life line: the process ends when ours closes, and its death is seen as the end of the frames.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sys
import unicodedata
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import msgspec

from hobnob.server.engine.protocol import (
    LENGTH,
    MAX_FRAME_BYTES,
    Command,
    Report,
    frame,
    report,
)

WORKER = (sys.executable, "-P", "-m", "hobnob.server.engine.worker")
"""`-P`: a folder named hobnob in the working directory must not be imported instead of us."""

MAX_LOG_BYTES = 4 * 1024 * 1024
"""A log longer than this is put aside (one is kept) when the next process starts."""

KILL_SECONDS = 1.0
"""How long a killed process is waited for. One that hangs in a driver may not end at all."""

LOG_TAIL_BYTES = 16 * 1024
MAX_HINT_CHARACTERS = 200

_HINT = re.compile(r"GGML_ASSERT|CUDA error|out of memory|terminate called|bad_alloc|Error\b")


class BadFrame(Exception):
    """The engine said something that is not a report."""


class EngineProcess:
    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        log_path: Path,
        log_start: int,
    ):
        self._process = process
        self._reader = reader
        self._writer = writer
        self._log_path = log_path
        self._log_start = log_start
        self._killed_for: str | None = None

    @classmethod
    async def spawn(cls, command: Sequence[str], log_path: Path) -> EngineProcess:
        """`command` gets the number of its socket as its last argument. Raises OSError where the
        process or its log cannot be made."""
        ours, theirs = socket.socketpair()
        try:
            log = _open_log(log_path)
            try:
                log_start = os.fstat(log).st_size
                process = await asyncio.create_subprocess_exec(
                    *command,
                    str(theirs.fileno()),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,  # Ctrl+C in the terminal is for the server alone
                )
            finally:
                os.close(log)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        reader, writer = await asyncio.open_connection(sock=ours)
        return cls(process, reader, writer, log_path, log_start)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, command: Command) -> None:
        """Never waits. What is sent to a dead process is lost."""
        if not self._writer.is_closing():
            self._writer.write(frame(command))

    async def reports(self) -> AsyncGenerator[Report, None]:
        """Frames until the process closes its end. Raises BadFrame."""
        while True:
            try:
                head = await self._reader.readexactly(LENGTH.size)
                (size,) = LENGTH.unpack(head)
                if size > MAX_FRAME_BYTES:
                    raise BadFrame(f"a frame of {size} bytes")
                body = await self._reader.readexactly(size)
            except (asyncio.IncompleteReadError, ConnectionError):
                return
            try:
                yield report(body)
            except (msgspec.DecodeError, msgspec.ValidationError) as error:
                raise BadFrame(str(error)) from error

    def kill(self, why: str) -> None:
        """Ends it at once; works on a stopped process too. `why` becomes the reason.

        Its frames end here too: a process that a driver holds keeps its side of the socket open.
        """
        if self._process.returncode is None:
            self._killed_for = self._killed_for or why
            self._process.kill()
            self._writer.transport.abort()

    async def wait(self, seconds: float) -> str:
        """Waits for its end, kills it when that takes longer, and says in words how it ended."""
        if not await self._ends_within(seconds):
            self.kill("it did not end by itself")
            await self._ends_within(KILL_SECONDS)
        self._writer.close()
        return self._words()

    async def _ends_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._process.wait()
        except TimeoutError:
            return False
        return True

    def _words(self) -> str:
        code = self._process.returncode
        if code is None:
            return "The engine was killed and does not end: a driver may be holding it."
        if self._killed_for is not None:
            return f"The engine was killed because {self._killed_for}."
        hint = self._hint()
        tail = f": {hint}" if hint else "."
        if code >= 0:
            return f"The engine ended with exit code {code}{tail}"
        name = _signal_name(-code)
        if -code == signal.SIGKILL and not hint:
            tail = ", as the system does when memory runs out."
        return f"The engine was ended by {name}{tail}"

    def _hint(self) -> str:
        """The last line of its log that looks like the cause."""
        try:
            with self._log_path.open("rb") as log:
                end = log.seek(0, os.SEEK_END)
                log.seek(max(self._log_start, end - LOG_TAIL_BYTES))
                lines = log.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return ""
        found = [line for line in lines if _HINT.search(line)]
        return _cleaned(found[-1])[:MAX_HINT_CHARACTERS] if found else ""


def _open_log(path: Path) -> int:
    """For appending; private, because a library may log more than we would."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    log = os.open(path, flags, 0o600)
    if os.fstat(log).st_size <= MAX_LOG_BYTES:
        return log
    os.close(log)
    path.replace(path.with_name(path.name + ".old"))
    return os.open(path, flags, 0o600)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _cleaned(line: str) -> str:
    kept = (character for character in line if unicodedata.category(character)[0] != "C")
    return "".join(kept).strip()
