"""Seeded histories of everything at once: steps, deaths, full disks, cancels, cuts, restarts.

Whatever happened, at the end every accepted run has one terminal event, its deltas are its stored
text, and no reader saw an event twice, missed one, or saw another text than is stored.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from fake_engine import FakeEngine
from support_runs import OWNER, Bench, bench_at, numbered, stop_of, text_of

from hobnob.server import wire
from hobnob.server.errors import Conflict
from hobnob.store.values import Turn

SCRIPT = ["the ", "", "quick ", "", "", "brown ", "fox ", "jumps ", "", "over"]
"""An empty piece is a token whose text is held back until a later one."""

OPERATIONS = 80


class Client:
    """Reads one run through cuts, and keeps what it was shown."""

    def __init__(self, turn: Turn):
        self.turn = turn
        self.events: list[wire.Event] = []

    async def read(self, bench: Bench, at_most: int) -> None:
        reader = await bench.runs.follow(OWNER, self.turn.run.id, len(self.events))
        for _ in range(at_most):
            try:
                event = await reader.next_within(0.001)
            except StopAsyncIteration:
                return
            if event is not None and event.seq is not None:
                self.events.append(event)


class History:
    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.clients: list[Client] = []

    async def live(self, bench: Bench) -> None:
        """One server's life."""
        for _ in range(OPERATIONS):
            await self._one(bench, self.random.random())
            for _ in range(self.random.choice([0, 0, 1, 5])):
                await asyncio.sleep(0)
        # A server that dies while it cannot save has shown what it will have to generate again.
        bench.store.free_disk()
        if bench.store.gate is not None:
            bench.store.gate.set()
        async with asyncio.timeout(10):
            while not bench.runs.saving:
                await asyncio.sleep(0.005)

    async def _one(self, bench: Bench, dice: float) -> None:
        engine = bench.engine
        if dice < 0.08:
            await self._send(bench)
        elif dice < 0.50 and engine.runs:
            names = sorted(engine.runs)
            engine.step(*self.random.sample(names, self.random.randint(1, len(names))))
        elif dice < 0.55:
            engine.die("The engine was ended by SIGKILL.")
        elif dice < 0.70:
            if engine.status.state.value != "ready":
                engine.get_ready()
        elif dice < 0.73:
            bench.store.fill_disk()
        elif dice < 0.78:
            bench.store.free_disk()
        elif dice < 0.80 and bench.store.gate is None:
            bench.store.gate = asyncio.Event()
        elif dice < 0.85 and bench.store.gate is not None:
            bench.store.gate.set()
            bench.store.gate = None
        elif dice < 0.87 and self.clients:
            await bench.runs.cancel(OWNER, self.random.choice(self.clients).turn.run.id)
        elif self.clients:
            await self.random.choice(self.clients).read(bench, self.random.randint(1, 8))

    async def _send(self, bench: Bench) -> None:
        known = [client.turn.conversation.id for client in self.clients]
        conversation = self.random.choice([None, *known])
        try:
            turn = await bench.send("Hi", conversation=conversation)
        except Conflict:
            return  # its reply is being written
        self.clients.append(Client(turn))


async def check(bench: Bench, client: Client) -> None:
    events = numbered(await bench.read_all(client.turn.run.id))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    stop = stop_of(events)
    # Three kills in a row before any token look like a run that kills the engine.
    assert stop.error is None or stop.error.code == "engine_failed", stop
    text = text_of(events)
    whole = "".join(SCRIPT)
    assert whole.startswith(text) and (stop.status != "completed" or text == whole)
    reply = await bench.saved(client.turn)
    assert (reply.text, reply.status) == (text, stop.status)
    logged = await bench.store.events(OWNER, client.turn.run.id)
    assert [wire.Event(e.seq, wire.load(e.type, e.data)) for e in logged] == events  # type: ignore[arg-type]
    assert client.events == events[: len(client.events)]


@pytest.mark.parametrize("seed", range(24))
async def test_a_history_of_faults_breaks_no_promise(tmp_path: Path, seed: int) -> None:
    history = History(seed)
    for _ in range(3):
        async with bench_at(tmp_path, FakeEngine(SCRIPT), finished_kept=seed % 3) as bench:
            await history.live(bench)
    async with bench_at(tmp_path, FakeEngine(SCRIPT)) as bench:
        bench.engine.finish_all()
        assert history.clients
        for client in history.clients:
            await check(bench, client)
        assert bench.runs.live_count == 0
