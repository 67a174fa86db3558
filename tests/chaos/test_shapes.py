"""A reply's stream over sockets, shaped at every byte, and twenty readers of one reply at once.

HOBNOB_CUTS=all tries every kind at every byte of three replies, and many more streams, as
`make chaos` does; the suite takes the kinds in turn.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from fake_engine import FakeEngine
from shaping_proxy import KINDS, shaping_proxy
from support_edge import KEY, Edge, edge_at

from hobnob.launch import Target
from hobnob.paths import Paths
from hobnob.server import wire
from hobnob.tui import connection
from hobnob.tui.connection import Connection
from hobnob.tui.follow import Follow
from hobnob.tui.notice import Notice, NoticeKind

OWNER = "local"
REPLIES = {
    "plain": ["Hello", ", ", "world", "!"],
    "emoji": ["Grüße", " 🦊", "", "👩‍👩‍👧‍👦", " नमस्ते", "\u2028", "𠮷"],
    "json": ['{"name": "f",', '\n "arguments"', ': {"a": "\\r\\n', '", "b": [1, 2]}}', "\r\n"],
}
EVERYTHING = os.environ.get("HOBNOB_CUTS") == "all"
EACH = 1 if EVERYTHING else 7
"""The suite looks at every seventh byte of the stream, another seventh for each reply."""
STREAMS = 1000 if EVERYTHING else 60
READERS = 20
CUTTING = KINDS[:4]
IDLE_SECONDS = 0.05
"""After so much silence the client drops a connection and resumes."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_DELAY_SECONDS", 0.0)


class Reading:
    """A client's view of one run, through a proxy that does what is chosen for it."""

    def __init__(self, url: str, run: str, tmp_path: Path, idle_s: float) -> None:
        target = Target(Paths.home({"HOBNOB_HOME": str(tmp_path)}), url, KEY)
        self._line = Connection(target, idle_s=idle_s)
        self._run = run

    async def events(self) -> list[wire.Event]:
        """The numbered ones to the end, as received and not fetched from the store."""
        async with self._line:
            items = [item async for item in Follow(self._line, self._run).items()]
        assert not any(isinstance(i, Notice) and i.kind is NoticeKind.STORED for i in items)
        return [item for item in items if isinstance(item, wire.Event) and item.seq is not None]


async def logged(edge: Edge, run: str) -> list[wire.Event]:
    return [
        wire.Event(row.seq, payload)
        for row in await edge.store.events(OWNER, run)
        if (payload := wire.load(row.type, row.data)) is not None
    ]


async def length_of(edge: Edge, run: str) -> int:
    """Bytes of the whole stream after its head, as they travel."""
    host, port = httpx.URL(edge.url).host, httpx.URL(edge.url).port
    reader, writer = await asyncio.open_connection(host, port)
    head = f"GET {wire.API}/runs/{run}/events HTTP/1.1\r\nHost: localhost\r\nx-api-key: {KEY}"
    writer.write(f"{head}\r\nConnection: close\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    size = len(await reader.read())
    writer.close()
    return size


@asynccontextmanager
async def ended_reply(tmp_path: Path, script: list[str]) -> AsyncIterator[tuple[Edge, str]]:
    async with edge_at(tmp_path, FakeEngine(script)) as edge:
        run = (await edge.send())["run"]["id"]
        async with asyncio.timeout(10):
            while (await edge.call("GET", f"/runs/{run}")).json()["status"] != "completed":
                await asyncio.sleep(0.005)  # ended, and the end stored
        yield edge, run


@pytest.mark.parametrize("reply", REPLIES)
async def test_a_stream_shaped_at_any_byte_loses_and_repeats_nothing(
    tmp_path: Path, reply: str
) -> None:
    async with ended_reply(tmp_path, REPLIES[reply]) as (edge, run):
        expected, size = await logged(edge, run), await length_of(edge, run)
        assert size > 500
        shapes: list[tuple[str, int]] = []
        async with shaping_proxy(edge.url, lambda: shapes.pop() if shapes else None) as proxy:
            for offset in range(list(REPLIES).index(reply) % EACH, size + 1, EACH):
                kinds = KINDS if EVERYTHING else (KINDS[offset // EACH % len(KINDS)],)
                for kind in kinds:
                    shapes.append((kind, offset))
                    reading = Reading(proxy.url, run, tmp_path, IDLE_SECONDS)
                    assert await reading.events() == expected, (kind, offset)
                    assert not shapes, "it was read without the proxy"


async def test_streams_shaped_several_times_at_random_are_whole(tmp_path: Path) -> None:
    dice = random.Random(11)
    async with ended_reply(tmp_path, REPLIES["emoji"]) as (edge, run):
        expected, size = await logged(edge, run), await length_of(edge, run)
        shapes: list[tuple[str, int]] = []
        async with shaping_proxy(edge.url, lambda: shapes.pop() if shapes else None) as proxy:
            for _ in range(STREAMS):
                count = dice.randint(1, 5)
                shapes += [(dice.choice(KINDS), dice.randrange(size)) for _ in range(count)]
                reading = Reading(proxy.url, run, tmp_path, IDLE_SECONDS)
                assert await reading.events() == expected
                shapes.clear()
        rows = (await edge.call("GET", "/conversations")).json()["conversations"]
        assert len(rows) == 1


async def test_twenty_readers_of_one_reply_that_are_cut_at_random_all_read_the_same(
    tmp_path: Path,
) -> None:
    """While it is written: each is cut five times, and comes back for what follows."""
    dice = random.Random(20)
    script = [f"{n} größte 🦊 " for n in range(60)]
    async with edge_at(tmp_path, FakeEngine(script), playing=False) as edge:
        run = (await edge.send())["run"]["id"]
        cuts = [[(dice.choice(CUTTING), dice.randrange(900)) for _ in range(5)] for _ in range(20)]
        made = sum(map(len, cuts))

        async def read(own: list[tuple[str, int]]) -> list[wire.Event]:
            async with shaping_proxy(edge.url, lambda: own.pop() if own else None) as proxy:
                return await Reading(proxy.url, run, tmp_path, 1.0).events()

        reading = [asyncio.create_task(read(own)) for own in cuts]
        while edge.engine.runs:
            edge.engine.step()
            await asyncio.sleep(0.01)
        seen = await asyncio.gather(*reading)
        assert made == READERS * 5 and not any(cuts), "not every cut was made"
        expected = await logged(edge, run)
        assert all(events == expected for events in seen)
        deltas = [e.payload.text for e in expected if isinstance(e.payload, wire.BlockDelta)]
        assert "".join(deltas) == "".join(script)
