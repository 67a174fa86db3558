"""Runs over a real store and a scripted engine, with the words that tests of runs need."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypeVar

from fake_engine import FakeEngine
from support_store import FaultyStore

from hobnob.server import wire
from hobnob.server.engine.protocol import ChatMessage
from hobnob.server.log import Reader
from hobnob.server.requests import CompletionRequest, RunSettings, TurnRequest
from hobnob.server.runs import Runs
from hobnob.store.store import utc_ms
from hobnob.store.values import Turn

T = TypeVar("T")

OWNER = "local"
PATIENCE_SECONDS = 10
"""Only a failing test waits for as long."""


class Bench:
    """`shown` of a run is what a reader from the start gets; every wait is bounded."""

    def __init__(self, store: FaultyStore, engine: FakeEngine, runs: Runs, broken: asyncio.Event):
        self.store = store
        self.engine = engine
        self.runs = runs
        self._broken = broken
        self.faults: list[dict[str, Any]] = []  # what reached the event loop's handler

    @property
    def broken(self) -> bool:
        """Whether the registry has asked for another server."""
        return self._broken.is_set()

    async def send(self, text: str = "Hi", **fields: Any) -> Turn:
        return await self.runs.accept(
            TurnRequest(OWNER, fields.pop("conversation", None), text, **fields)
        )

    async def complete(self, text: str = "Hi", **fields: Any) -> Any:
        messages = [ChatMessage("user", text)]
        return await self.runs.complete(CompletionRequest(OWNER, messages, **fields))

    async def read_all(self, run: str, after: int = 0) -> list[wire.Event]:
        """Every event to the end of the stream."""
        return await drain(await self.runs.follow(OWNER, run, after))

    async def finish(self, turn: Turn) -> list[wire.Event]:
        """Lets the engine write all there is and reads the run from the start."""
        self.engine.finish_all()
        return await self.read_all(turn.run.id)

    async def saved(self, turn: Turn) -> Any:
        """The stored reply, once its end is in."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                message = await self.store.message(OWNER, turn.reply.id)
                if message.status in wire.Status.TERMINAL:
                    return message
                await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def bench_at(
    path: Path, engine: FakeEngine | None = None, *, now_ms: Any = utc_ms, **settings: Any
) -> AsyncIterator[Bench]:
    """Started, and stopped as a server stops: runs that have not ended stay in the store."""
    store = await FaultyStore.open(path / "hobnob.db")
    engine = engine or FakeEngine()
    fields = {"store_retry_s": 0.01, **settings}
    broken = asyncio.Event()
    runs = Runs(
        store,
        engine,
        RunSettings(**fields),
        now_ms=now_ms,
        choose_seed=lambda: 7,
        on_broken=broken.set,
    )
    bench = Bench(store, engine, runs, broken)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: bench.faults.append(context))
    await runs.start()
    try:
        yield bench
    finally:
        await runs.stop()
        await engine.close()
        await store.close()
        loop.set_exception_handler(None)
    assert not bench.faults, bench.faults


async def drain(reader: Reader) -> list[wire.Event]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return [event async for event in reader]


async def next_of(reader: Reader, type_: type[T]) -> T:
    """Reads on to the next event with such a payload."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for event in reader:
            if isinstance(event.payload, type_):
                return event.payload
    raise AssertionError(f"the stream ended without a {type_.__name__}")


def text_of(events: list[wire.Event]) -> str:
    return "".join(e.payload.text for e in events if isinstance(e.payload, wire.BlockDelta))


def types_of(events: list[wire.Event]) -> list[str]:
    return [event.payload.TYPE for event in events]


def numbered(events: list[wire.Event]) -> list[wire.Event]:
    return [event for event in events if event.seq is not None]


def stop_of(events: list[wire.Event]) -> wire.MessageStop:
    """The terminal event, which must be the last one and the only one."""
    stops = [e.payload for e in events if isinstance(e.payload, wire.MessageStop)]
    assert len(stops) == 1 and events[-1].payload is stops[0], types_of(events)
    return stops[0]
