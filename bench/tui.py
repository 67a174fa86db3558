"""The chat on a terminal: python -m bench.tui [NAME…] [--size 100x30] [--piece 20] [--list].

The real program runs on a pty against a server that streams replies piece by piece. What the
terminal is sent is counted and timed here; no picture of it is made. What needs no terminal is
measured inside a process of its own (tui_inside.py).
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import os
import pty
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

from fake_server import KEY, RUN, STREAM_HEAD, FakeServer, Request, chunk  # noqa: E402

from hobnob.server import wire  # noqa: E402
from hobnob.server.wire import Event  # noqa: E402

PIECES_PER_SECOND = 200
REPLY_BYTES = 64 * 1024
CONVERSATIONS = 2000
MESSAGES = 5000
PATIENCE_SECONDS = 60.0
KEY_PAUSE_SECONDS = 0.05
READY = b"Enter send"
LAST = "\u03a9"
"""The last character of each reply, and nowhere else."""
INSIDE = ("first-paint", "memory")


# ---- replies ------------------------------------------------------------------------------------


def prose(size: int) -> str:
    words = "the lamp turns slowly over a grey sea and **nobody** counts the `waves` in it".split()
    text, length = [], 0
    for n in range(size):  # numbers, so that no row is as another
        word = words[n % len(words)] if n % 5 else str(n)
        text.append(word + ("\n\n" if n % 90 == 89 else " "))
        length += len(text[-1])
        if length >= size:
            break
    return "".join(text)


def code(size: int) -> str:
    """One block; 800 lines where it is 64 KB."""
    line = 'def part_{0:04d}(value): return {{"name": "part", "size": value * {0}, "at": None}}'
    lines = [line.format(n) for n in range(size * 800 // REPLY_BYTES)]
    return "```python\n" + "\n".join(lines)


def items(size: int) -> str:
    """One list; 500 items where it is 64 KB."""
    item = "- item {0}, which says **something** short, then `some_code({0})`, then {1}"
    count = size * 500 // REPLY_BYTES
    return "\n".join(item.format(n, "a few more words " * 4) for n in range(count))


def one_line(size: int) -> str:
    """One line without an end; 100,000 characters where the others have 64 KB."""
    return " ".join(f"word {n}" for n in range(size))[: size * 100_000 // REPLY_BYTES]


REPLIES: dict[str, Callable[[int], str]] = {
    "prose": prose,
    "code": code,
    "list": items,
    "line": one_line,
}


# ---- the server ---------------------------------------------------------------------------------


class Paced(FakeServer):
    """Streams `text` at a steady rate; has many conversations, one of them long."""

    def __init__(self) -> None:
        super().__init__()
        self.text_to_stream = ""
        self.piece = 20
        self.last_sent = 0.0
        self.conversations = [_conversation(number) for number in range(CONVERSATIONS)]

    def stream(self, text: str) -> None:
        self.text_to_stream = text
        self.scripts[f"/runs/{RUN}/events"] = [self._act]

    async def _act(self, request: Request, writer: asyncio.StreamWriter) -> None:
        pieces = [*_cut(self.text_to_stream, self.piece), LAST]
        writer.write(STREAM_HEAD)
        events = _numbered()
        _send(writer, events, wire.Context(prompt_tokens=10, n_ctx=2048, included=1))
        _send(writer, events, wire.MessageStart(RUN, "c", "reply1", "fake-model", seed=7))
        _send(writer, events, wire.BlockStart(0))
        began = time.monotonic()
        for number, piece in enumerate(pieces):
            await asyncio.sleep(began + number / PIECES_PER_SECOND - time.monotonic())
            _send(writer, events, wire.BlockDelta(0, piece))
        self.last_sent = time.monotonic()
        await asyncio.sleep(1.0)  # what is measured ends before the reply does
        _send(writer, events, wire.BlockStop(0))
        _send(writer, events, wire.MessageDelta("end_turn", usage=wire.Usage(10, 0, len(pieces))))
        _send(writer, events, wire.MessageStop("completed", "end_turn"))
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(PATIENCE_SECONDS)

    def _json(self, request: Request, parts: list[str]) -> Any:
        if request.method == "GET" and parts == ["conversations"]:
            limit, before = int(request.query.get("limit", 50)), request.query.get("before")
            found = [c for c in self.conversations if not before or c["change"] < int(before)]
            return {"conversations": found[:limit]}
        if request.method == "GET" and parts[:1] == ["conversations"] and parts[-1] == "messages":
            return {
                "conversation": self._conversation(parts[1]),
                "messages": _stored(parts[1]),
                "siblings": {},
            }
        return super()._json(request, parts)


def _conversation(number: int) -> dict[str, Any]:
    return {
        "id": f"talk{number:05d}",
        "title": f"About thing number {number}",
        "updated_at": 1_760_000_000_000 - number * 10**7,
        "change": CONVERSATIONS - number,
    }


def _stored(id: str) -> list[dict[str, Any]]:
    """A branch of messages; of MESSAGES where it is the newest conversation."""
    count = MESSAGES if id.endswith("00000") else 4
    text = "Some words with **emphasis** and `code`.\n\n- one\n- two\n\n```py\nx = 1\n```\n"
    return [
        {
            "id": f"{id}-m{n}",
            "conversation": id,
            "parent": f"{id}-m{n - 1}" if n else None,
            "role": "assistant" if n % 2 else "user",
            "text": f"{n} {text}{LAST if n == count - 1 else ''}",
            "status": "completed",
            "created_at": 1_760_000_000_000,
        }
        for n in range(count)
    ]


def _cut(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def _numbered() -> Iterator[int]:
    yield from range(1, sys.maxsize)


def _send(writer: asyncio.StreamWriter, numbers: Iterator[int], payload: wire.Payload) -> None:
    writer.write(chunk(wire.sse(Event(next(numbers), payload)).encode()))


# ---- the terminal -------------------------------------------------------------------------------


@dataclass
class Terminal:
    """The program on a pty; counts what it is sent and tells when something is in it."""

    master: int
    process: subprocess.Popen[bytes]
    written: int = 0
    _tail: bytes = b""
    _awaited: dict[bytes, asyncio.Future[float]] = field(default_factory=dict)

    def readable(self) -> None:
        try:
            data = os.read(self.master, 1 << 16)
        except OSError:
            return
        now = time.monotonic()
        self.written += len(data)
        seen = self._tail + data
        self._tail = seen[-64:]
        if b"\x1b[?2026$p" in seen and b"\x1b[?2026$p" not in self._tail[:-1]:
            os.write(self.master, b"\x1b[?2026;2$y")  # as terminals of today answer
        for wanted in [one for one in self._awaited if one in seen]:
            self._awaited.pop(wanted).set_result(now)

    async def shows(self, wanted: str | bytes) -> float:
        """When something is written to the terminal from now on."""
        data = wanted.encode() if isinstance(wanted, str) else wanted
        future: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._awaited[data] = future
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await future

    def type(self, keys: str) -> float:
        os.write(self.master, keys.encode())
        return time.monotonic()

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def terminal(server: FakeServer, size: tuple[int, int]) -> AsyncIterator[Terminal]:
    """`hobnob` as a user starts it; its first paint may not have happened yet."""
    columns, lines = size
    with tempfile.TemporaryDirectory() as home:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        # An installed program has its bytecode; the first round writes it where there is none.
        others = ("HOBNOB_", "TEXTUAL", "PYTHONDONTWRITEBYTECODE")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(others)}
        process = subprocess.Popen(
            [sys.executable, "-c", "from hobnob.cli import main; main()"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env=kept
            | {"HOBNOB_HOME": home, "HOBNOB_URL": server.url, "HOBNOB_KEY": KEY}
            | {"SSH_CONNECTION": "10.0.0.1 50000 10.0.0.2 22"}  # what is written counts there
            | {"TERM": "xterm-256color", "COLORTERM": "truecolor", "HOBNOB_THEME": "dark"},
        )
        os.close(slave)
        shown = Terminal(master, process)
        loop = asyncio.get_running_loop()
        loop.add_reader(master, shown.readable)
        try:
            yield shown
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                await asyncio.to_thread(process.wait, 5)
            except subprocess.TimeoutExpired:
                process.kill()
            loop.remove_reader(master)
            os.close(master)


# ---- what is measured ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Figure:
    name: str
    value: float
    unit: str
    bar: float

    def line(self) -> str:
        kept = "" if self.value <= self.bar else "   MISSED"
        return f"{self.name:44} {self.value:10.2f} {self.unit:6} (at most {self.bar:g}){kept}"


@dataclass(frozen=True)
class Streamed:
    lag_s: float
    cpu_s: float
    written: int
    length: int
    echoes_s: list[float]


async def stream(given: argparse.Namespace, text: str, *, typing: bool) -> Streamed:
    """One reply from its first piece to the last one on the screen."""
    server = Paced()
    server.piece = given.piece
    server.stream(text)
    async with server.running(), terminal(server, given.size) as screen:
        await screen.shows(READY)
        await screen.shows("thing number 3" if given.size[0] > 84 else "fake-model")
        await asyncio.sleep(0.5)
        last = asyncio.ensure_future(screen.shows(LAST))
        screen.type("go\r")
        while not server.asked("GET", f"/runs/{RUN}/events"):
            await asyncio.sleep(0.005)
        written, cpu = screen.written, screen.cpu_seconds()
        echoes = [seconds async for seconds in _echoes(screen, last)] if typing else []
        seen = await last
        return Streamed(
            seen - server.last_sent,
            screen.cpu_seconds() - cpu,
            screen.written - written,
            len(text.encode()),
            echoes,
        )


async def _echoes(screen: Terminal, until: asyncio.Future[float]) -> AsyncIterator[float]:
    """Type a letter that is not on the screen, wait for it, take it back; again and again."""
    for number in range(10_000):
        if until.done():
            return
        letter = chr(0x100 + number % 0x80)
        shown = asyncio.ensure_future(screen.shows(letter))
        await asyncio.sleep(0)
        pressed = screen.type(letter)
        yield await shown - pressed
        screen.type("\x7f")
        await asyncio.sleep(KEY_PAUSE_SECONDS)


async def reply(name: str, given: argparse.Namespace) -> list[Figure]:
    make = REPLIES[name]
    typed = await stream(given, make(REPLY_BYTES), typing=True)
    once = await stream(given, make(REPLY_BYTES), typing=False)
    figures = [
        Figure(f"{name}: last piece sent to shown", once.lag_s * 1000, "ms", 500),
        Figure(f"{name}: key echo p99", _p99(typed.echoes_s) * 1000, "ms", 50),
        Figure(f"{name}: key echo median", statistics.median(typed.echoes_s) * 1000, "ms", 50),
        Figure(f"{name}: bytes written / text", once.written / once.length, "x", 3),
    ]
    if not given.quick:
        twice = await stream(given, make(2 * REPLY_BYTES), typing=False)
        ratio = twice.cpu_s / once.cpu_s
        figures.append(Figure(f"{name}: CPU of twice the text", ratio, "x", 2.2))
    share = once.cpu_s / (once.length / given.piece / PIECES_PER_SECOND)
    figures.append(Figure(f"{name}: share of a core", share, "core", 1))
    return figures


def _p99(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.99))]


async def start(given: argparse.Namespace) -> list[Figure]:
    """From the command to a key on the screen."""
    found, computed = [], []
    for _ in range(5):
        server = Paced()
        async with server.running():
            began = time.monotonic()
            async with terminal(server, given.size) as screen:
                await screen.shows(READY)
                shown = asyncio.ensure_future(screen.shows("\u0100"))
                await asyncio.sleep(0)
                screen.type("\u0100")
                found.append(await shown - began)
                computed.append(screen.cpu_seconds())
    return [
        Figure("hobnob to usable, 2,000 conversations", statistics.median(found), "s", 1.0),
        Figure("what of it the program computed", statistics.median(computed), "s", 1.0),
    ]


async def open_long(given: argparse.Namespace) -> list[Figure]:
    """From Enter in the list to the newest of 5,000 messages on the screen."""
    server = Paced()
    async with server.running(), terminal(server, (120, 30)) as screen:
        await screen.shows("thing number 3")
        await asyncio.sleep(0.5)
        screen.type("\x13")
        await asyncio.sleep(0.3)
        screen.type("\x1b[H\x1b[B")  # the first one that can be chosen
        await asyncio.sleep(0.3)
        shown = asyncio.ensure_future(screen.shows(LAST))
        await asyncio.sleep(0)
        before = screen.cpu_seconds()
        pressed = screen.type("\r")
        seconds = await shown - pressed
        computed = screen.cpu_seconds() - before
    return [
        Figure("opening 5,000 messages", seconds * 1000, "ms", 300),
        Figure("what of it the program computed", computed * 1000, "ms", 300),
    ]


def inside(name: str) -> list[Figure]:
    command = [sys.executable, "-m", "bench.tui_inside", name]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return [Figure(*one) for one in json.loads(done.stdout)]


def main() -> int:
    names = [*REPLIES, "start", "open", *INSIDE]
    parser = argparse.ArgumentParser(prog="python -m bench.tui", description=__doc__)
    parser.add_argument("name", nargs="*", help=f"of {', '.join(names)}; none: all")
    parser.add_argument("--size", type=_size, default=(100, 30), metavar="COLUMNSxLINES")
    parser.add_argument("--piece", type=int, default=20, metavar="N", help="characters a piece")
    parser.add_argument("--quick", action="store_true", help="no replies of twice the length")
    given = parser.parse_args()
    unknown = [name for name in given.name if name not in names]
    if unknown:
        parser.error(f"there is no {unknown[0]}; there are {', '.join(names)}")
    missed = 0
    for name in given.name or names:
        for figure in _measure(name, given):
            print(figure.line(), flush=True)
            missed += figure.value > figure.bar
    return 1 if missed else 0


def _measure(name: str, given: argparse.Namespace) -> list[Figure]:
    if name in INSIDE:
        return inside(name)
    if name in REPLIES:
        return asyncio.run(reply(name, given))
    return asyncio.run(start(given) if name == "start" else open_long(given))


def _size(text: str) -> tuple[int, int]:
    columns, _, lines = text.partition("x")
    return int(columns), int(lines)


if __name__ == "__main__":
    sys.exit(main())
