"""Processes of the command line that begin with everything imported, forked from one that waits.

Starting Python and importing hobnob takes half a second of the processor, and tests of the
command line start hundreds. As a script this is the process that waits: it hears of a command
(arguments, environment, its three streams) on a socket, and forks a keeper, which forks the
process itself, tells its id, waits for it and tells how it ended. The process leaves the loop and
runs `main()` as the interpreter's own program, so that its streams are flushed, its exit code made
and its signals handled as in any other.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from functools import cache
from io import StringIO

MAX_COMMAND_BYTES = 1 << 20
FDS = 4  # stdin, stdout, stderr, and where to tell how it ended


class Forked:
    """What the tests use of asyncio's Process."""

    def __init__(self, stdin: int | None, out: int, err: int, told: int) -> None:
        self._stdin = stdin
        self._fds = (out, err, told)
        self.pid = 0
        self.returncode: int | None = None

    async def open(self) -> Forked:
        readers = [await _reader(fd) for fd in self._fds]
        (self.stdout, self._out), (self.stderr, self._err), (self._told, self._end) = readers
        self.pid = int(await self._told.readline())
        return self

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(int(await self._told.readline()))
            for transport in (self._out, self._err, self._end):
                transport.close()
        return self.returncode

    async def communicate(self, sent: bytes | None = None) -> tuple[bytes, bytes]:
        if self._stdin is not None:
            _, out, err = await asyncio.gather(
                asyncio.to_thread(_send, self._stdin, sent or b""),
                self.stdout.read(),
                self.stderr.read(),
            )
            self._stdin = None
        else:
            out, err = await asyncio.gather(self.stdout.read(), self.stderr.read())
        await self.wait()
        return out, err


async def start(
    arguments: Sequence[str | bytes], environment: Mapping[str, str], *, stdin: bool
) -> Forked:
    """`hobnob ARGUMENTS`; its standard input is a pipe, or empty."""
    (given, mine), (out, its_out), (err, its_err), (told, tells) = (os.pipe() for _ in range(4))
    os.set_inheritable(given, True)
    if not stdin:
        os.close(given)
        given = os.open(os.devnull, os.O_RDONLY)
        os.close(mine)
    words = [os.fsdecode(argument) for argument in arguments]
    command = json.dumps([words, dict(environment), os.getcwd()]).encode()
    assert len(command) < MAX_COMMAND_BYTES
    theirs = [given, its_out, its_err, tells]
    socket.send_fds(_waiting(json.dumps(dict(_base(environment)))), [command], theirs)
    for fd in theirs:
        os.close(fd)
    return await Forked(mine if stdin else None, out, err, told).open()


async def _reader(fd: int) -> tuple[asyncio.StreamReader, asyncio.BaseTransport]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 20)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(fd, "rb", 0))
    return reader, transport


def _send(fd: int, content: bytes) -> None:
    with os.fdopen(fd, "wb", 0) as pipe:
        try:
            while content:
                content = content[pipe.write(content) :]
        except BrokenPipeError:
            pass  # it did not want all of it


def _base(environment: Mapping[str, str]) -> dict[str, str]:
    """Of an environment, what the interpreter reads when it starts."""
    names = ("PATH", "HOME", "PYTHONPATH", "LANG")
    return {name: environment[name] for name in names if name in environment}


@cache
def _waiting(environment: str) -> socket.socket:
    """The process that waits, with such an environment; it ends with ours."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, __file__, str(theirs.fileno())]
    pipe = subprocess.PIPE  # what the streams of all that is forked are made for
    with theirs:
        process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            env=json.loads(environment),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
        )

    def end() -> None:
        ours.close()
        process.communicate(timeout=10)

    atexit.register(end)
    return ours


# ---- the process that waits ---------------------------------------------------------------------


def _serve(commands: socket.socket) -> list[str]:
    """Returns in each process that is to run a command: its arguments."""
    while True:
        packet, fds, _, _ = socket.recv_fds(commands, MAX_COMMAND_BYTES, FDS)
        if not packet:
            os._exit(0)
        if os.fork() == 0:
            commands.close()
            return _keep(fds, *json.loads(packet))
        for fd in fds:
            os.close(fd)


def _keep(fds: list[int], words: list[str], environment: dict[str, str], folder: str) -> list[str]:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    tells = fds[3]
    pid = os.fork()
    if pid == 0:
        os.close(tells)
        for number, fd in enumerate(fds[:3]):
            os.dup2(fd, number)
            os.close(fd)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        return words
    for fd in fds[:3]:
        os.close(fd)
    os.write(tells, b"%d\n" % pid)
    _, status = os.waitpid(pid, 0)
    os.write(tells, b"%d\n" % status)
    os._exit(0)


def _import_all() -> Callable[[], None]:
    """What every command needs, and what its parser imports when it is used first."""
    import anyio.abc  # noqa: F401 - what httpx connects by
    import typer.main

    import hobnob.cli
    import hobnob.offline
    import hobnob.tui.ask
    import hobnob.tui.stdin
    import hobnob.tui.verbs

    with redirect_stdout(StringIO()), suppress(SystemExit):
        typer.main.get_command(hobnob.cli.app)(["--version"], standalone_mode=False)
    gc.collect()
    gc.freeze()  # no command looks through all of it, not even at its end
    return hobnob.cli.main


if __name__ == "__main__":
    main = _import_all()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the keepers
    sys.argv = ["-c", *_serve(socket.socket(fileno=int(sys.argv[1])))]
    main()
