"""Hours in minutes: requests come, go and are dropped at random; memory must not grow."""

from __future__ import annotations

import asyncio
import random
import time

from bench import machine
from bench.capacity import HOBNOB
from bench.load import Reply
from bench.scenario import (
    Bar,
    Measurement,
    Metric,
    Scenario,
    Trial,
    failures,
    variants,
)
from bench.servers import Server

STREAMS = 16
CELLS = 4096
"""Too few for all: replies are put aside and come back all the time."""
SECONDS = 600.0
QUICK_SECONDS = 60.0
WORKERS = 24
DROPPED = 0.3
WARM_SHARE = 0.25
"""Memory is compared with what it was after this part of the time."""


class _Soak:
    def __init__(self, server: Server, trial: Trial, seconds: float) -> None:
        self._server = server
        self._trial = trial
        self._ends = time.perf_counter() + seconds
        self.kept: list[Reply] = []
        self.dropped = 0

    async def run(self) -> None:
        await asyncio.gather(*(self._worker(n) for n in range(WORKERS)))

    async def _worker(self, number: int) -> None:
        rng = random.Random(self._trial.seed * 1009 + number)
        while time.perf_counter() < self._ends:
            text = self._trial.texts.prose(rng.randrange(8, 600), rng.randrange(2**31))
            message = [{"role": "user", "content": text}]
            reply, task = self._server.client.start(
                message, rng.randrange(1, 160), seed=rng.randrange(2**31)
            )
            if rng.random() < DROPPED:
                await asyncio.wait([task], timeout=rng.expovariate(0.5))
                task.cancel()
                await asyncio.wait([task])
                self.dropped += 1
            else:
                await task
                self.kept.append(reply)


async def _measure(server: Server, trial: Trial) -> Measurement:
    seconds = QUICK_SECONDS if trial.quick else SECONDS
    soak = _Soak(server, trial, seconds)
    task = asyncio.create_task(soak.run())
    await asyncio.wait([task], timeout=seconds * WARM_SHARE)
    before = _resident(server)
    await task
    after = _resident(server)
    return Measurement(
        {
            "growth": (after / before - 1) * 100,
            "resident": after / 2**20,
            "complete": sum(1 for reply in soak.kept if reply.complete),
            "failed": sum(1 for reply in soak.kept if not reply.complete),
            "dropped": soak.dropped,
        },
        notes=failures(soak.kept),
    )


def _resident(server: Server) -> int:
    return sum(machine.resident_bytes(pid) for pid in server.pids())


SCENARIO = Scenario(
    name="soak",
    title="Soak",
    about=f"{SECONDS / 60:.0f} minutes of {WORKERS} clients over {STREAMS} sequences and {CELLS} "
    "cells; 30 % of the connections are dropped at random. Not part of a plain run.",
    streams=STREAMS,
    cells=CELLS,
    measure=_measure,
    metrics=[
        Metric(
            "growth",
            "resident memory, end ÷ after a quarter",
            "%",
            False,
            1,
            bar=Bar(2, at_least=False, of_ratio=False),
        ),
        Metric("resident", "resident memory of all processes", "MiB", False, 0),
        Metric("complete", "replies complete", digits=0),
        Metric(
            "failed",
            "replies failed",
            "",
            False,
            0,
            bar=Bar(0, at_least=False, of_ratio=False),
        ),
        Metric("dropped", "connections dropped", digits=0),
    ],
    contestants={HOBNOB: variants(HOBNOB)},
    plain=False,
)
