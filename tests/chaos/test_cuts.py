"""A reply's stream ended at every byte: nothing is lost, nothing comes twice, one reply is stored.

Real: the log and its readers, the text of the events, the client's reconnecting and parsing.
Between them lies a transport in memory that cuts. HOBNOB_CUTS=all tries every kind of cut at
every byte, as `make chaos` does; the suite takes the kinds in turn. Sockets are cut by
tests/e2e/test_survival.py.
"""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from fake_engine import FakeEngine
from support_runs import OWNER, Bench, bench_at, next_of

from hobnob.launch import Target
from hobnob.paths import Paths
from hobnob.server import wire
from hobnob.server.streams import PING, native
from hobnob.store.values import Turn
from hobnob.tui import connection
from hobnob.tui.connection import Connection
from hobnob.tui.follow import Follow
from hobnob.tui.notice import Notice, NoticeKind

REPLIES = {
    "plain": ["Hello", ", ", "world", "!"],
    "emoji": ["Grüße", " 🦊", "", "👩‍👩‍👧‍👦", " नमस्ते", "\u2028", "𠮷"],
    "json": ['{"name": "f",', '\n "arguments"', ': {"a": "\\r\\n', '", "b": [1, 2]}}', "\r\n"],
}
LINE_ENDS = {"plain": b"\n", "emoji": b"\r\n", "json": b"\n"}
KINDS = ("lost", "ended", "split", "refused")
"""The connection breaks · it ends as if that were all · the bytes come in two pieces, and nothing
is cut · it breaks, and the next one is refused."""
EVERYTHING = os.environ.get("HOBNOB_CUTS") == "all"
RANDOM_STREAMS = 1000 if EVERYTHING else 300


class _Body(httpx.AsyncByteStream):
    def __init__(self, pieces: list[bytes], *, lost: bool):
        self._pieces = pieces
        self._lost = lost

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece
        if self._lost:
            raise httpx.ReadError("cut")


class CuttingTransport(httpx.AsyncBaseTransport):
    """Answers a run's stream from the registry; `cuts` are spent one a connection."""

    def __init__(self, bench: Bench, line_end: bytes):
        self._bench = bench
        self._line_end = line_end
        self.cuts: list[tuple[str, int]] = []
        self.resumed_from: list[int] = []
        self._refusals = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self._refusals:
            self._refusals -= 1
            raise httpx.ConnectError("refused")
        *_, run, last = request.url.path.split("/")
        assert (request.method, last) == ("GET", "events"), "nothing else is fetched"
        after = int(request.headers.get("last-event-id", 0))
        self.resumed_from.append(after)
        body = await self.body(run, after)
        kind, offset = self.cuts.pop(0) if self.cuts else ("whole", 0)
        self._refusals = int(kind == "refused")
        pieces = [body[:offset], body[offset:]] if kind in ("split", "whole") else [body[:offset]]
        return httpx.Response(
            200,
            headers={"content-type": "text/event-stream"},
            stream=_Body([piece for piece in pieces if piece], lost=kind in ("lost", "refused")),
        )

    async def body(self, run: str, after: int = 0) -> bytes:
        """The stream from the cursor on, with a keep-alive before each event but the first."""
        reader = await self._bench.runs.follow(OWNER, run, after)
        blocks = [text async for text in native(reader)]
        return PING.join(blocks).encode().replace(b"\n", self._line_end)


class Reading:
    """One stored reply, read through cuts again and again, and compared with what is stored."""

    def __init__(self, bench: Bench, turn: Turn, line: Connection, transport: CuttingTransport):
        self.bench = bench
        self.run = turn.run.id
        self.turn = turn
        self.transport = transport
        self._line = line

    @classmethod
    async def begin(cls, bench: Bench, tmp_path: Path, line_end: bytes) -> Reading:
        turn = await bench.send()
        reader = await bench.runs.follow(OWNER, turn.run.id)
        for piece in bench.engine.script:
            bench.engine.step()
            if piece:
                await next_of(reader, wire.BlockDelta)  # so that each has a delta of its own
        bench.engine.finish_all()
        await bench.saved(turn)
        transport = CuttingTransport(bench, line_end)
        target = Target(Paths.home({"HOBNOB_HOME": str(tmp_path)}), "http://simulated", "key")
        line = Connection(target)
        line._http = httpx.AsyncClient(transport=transport, base_url=target.url or "")
        return cls(bench, turn, line, transport)

    async def check(self, *cuts: tuple[str, int]) -> None:
        expected = [
            wire.Event(row.seq, payload)
            for row in await self.bench.store.events(OWNER, self.run)
            if (payload := wire.load(row.type, row.data)) is not None
        ]
        self.transport.cuts, self.transport.resumed_from = list(cuts), []
        items = [item async for item in Follow(self._line, self.run).items()]
        assert [item for item in items if isinstance(item, wire.Event)] == expected, cuts
        assert not any(isinstance(i, Notice) and i.kind is NoticeKind.STORED for i in items), cuts
        assert self.transport.resumed_from == sorted(self.transport.resumed_from)

    async def check_rows(self) -> None:
        """The reply is there once, and is the deltas joined."""
        messages = await self.bench.store.messages(OWNER, self.turn.conversation.id)
        assert [message.role for message in messages] == ["user", "assistant"]
        assert messages[1].text == "".join(self.bench.engine.script)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_DELAY_SECONDS", 0.0)


@pytest.mark.parametrize("reply", REPLIES)
async def test_a_cut_at_every_byte_of_a_reply_loses_and_repeats_nothing(
    tmp_path: Path, reply: str
) -> None:
    async with bench_at(tmp_path, FakeEngine(REPLIES[reply])) as bench:
        reading = await Reading.begin(bench, tmp_path, LINE_ENDS[reply])
        body = await reading.transport.body(reading.run)
        assert body.endswith(LINE_ENDS[reply] * 2)
        for offset in range(len(body) + 1):
            kinds = KINDS if EVERYTHING else (KINDS[offset % len(KINDS)],)
            for kind in kinds:
                await reading.check((kind, offset))
        await reading.check_rows()


async def test_streams_cut_several_times_at_random_are_whole(tmp_path: Path) -> None:
    dice = random.Random(4)
    async with bench_at(tmp_path, FakeEngine(REPLIES["emoji"])) as bench:
        reading = await Reading.begin(bench, tmp_path, b"\n")
        size = len(await reading.transport.body(reading.run))
        for _ in range(RANDOM_STREAMS):
            count = dice.randint(1, 5)
            await reading.check(*((dice.choice(KINDS), dice.randrange(size)) for _ in range(count)))
        await reading.check_rows()


async def test_a_stream_that_comes_byte_by_byte_is_whole(tmp_path: Path) -> None:
    for reply, pieces in REPLIES.items():
        async with bench_at(tmp_path / reply, FakeEngine(pieces)) as bench:
            reading = await Reading.begin(bench, tmp_path, LINE_ENDS[reply])
            body = reading.transport.body

            class Dripping(httpx.AsyncBaseTransport):
                async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
                    whole = await body(reading.run)  # noqa: B023
                    drops = [whole[i : i + 1] for i in range(len(whole))]
                    headers = {"content-type": "text/event-stream"}
                    return httpx.Response(200, headers=headers, stream=_Body(drops, lost=False))

            reading._line._http = httpx.AsyncClient(transport=Dripping())
            await reading.check()
