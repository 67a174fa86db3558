"""hobnob's engine process alone, spoken to in frames: for what HTTP would hide.

The same worker as in the product, or one whose scheduler serves whole requests (whole_requests).
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench import machine
from bench.capacity import Capacity, ServerFailed, Variant
from hobnob.server.engine.process import EngineProcess
from hobnob.server.engine.protocol import (
    Configure,
    LoadFailed,
    Ready,
    Sampling,
    Shutdown,
    Stats,
    Stepped,
    Submit,
)

ROOT = Path(__file__).resolve().parents[1]
STOP_SECONDS = 5.0


@dataclass(slots=True)
class EngineRun:
    """One run, as its frames told it."""

    prompt_tokens: int
    arrivals: list[float] = field(default_factory=list)  # a time for each token
    ended: float | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Moment:
    """After one step: the engine's numbers, and the tokens that live runs have in their cells."""

    stats: Stats
    live_tokens: int
    live_runs: int


class EngineServer:
    """A running engine. `async with`."""

    def __init__(self, variant: Variant, capacity: Capacity) -> None:
        self.variant = variant
        self.capacity = capacity
        self._home = Path(tempfile.mkdtemp(prefix="hobnob-bench-"))
        self._process: EngineProcess | None = None

    @property
    def name(self) -> str:
        return self.variant.contestant

    @property
    def command(self) -> list[str]:
        """`env`, because the folder we run in need not be the one that has `bench`."""
        return ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", *self.variant.flags]

    async def __aenter__(self) -> EngineServer:
        try:
            await self._start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.send(Shutdown())
            await self._process.wait(STOP_SECONDS)
        shutil.rmtree(self._home, ignore_errors=True)

    async def _start(self) -> None:
        self._process = await EngineProcess.spawn(self.command, self._home / "engine.log")
        self._process.send(
            Configure(
                str(self.capacity.model),
                n_cells=self.capacity.cells,
                n_seq_max=self.capacity.streams,
                n_threads=self.capacity.threads,
            )
        )
        async for report in self._process.reports():
            if isinstance(report, Ready):
                return
            if isinstance(report, LoadFailed):
                raise ServerFailed(report.message)
        raise ServerFailed(await self._process.wait(STOP_SECONDS))

    def pids(self) -> list[int]:
        return machine.tree(self._process.pid) if self._process is not None else []

    async def run(
        self, prompts: Sequence[Sequence[int]], lengths: Sequence[int], seed: int
    ) -> tuple[list[EngineRun], list[Moment]]:
        """Submits all at once and follows them to their ends."""
        assert self._process is not None
        runs = {f"{seed}-{n}": EngineRun(len(prompt)) for n, prompt in enumerate(prompts)}
        started = time.perf_counter()
        for (name, _), prompt, length in zip(runs.items(), prompts, lengths, strict=True):
            sampling = Sampling(seed=seed, max_tokens=length, ignore_eos=True)
            self._process.send(Submit(name, list(prompt), sampling))
        moments: list[Moment] = []
        async for report in self._process.reports():
            if isinstance(report, Stepped):
                _take(report, runs, time.perf_counter() - started)
                moments.append(_moment(report, runs))
            if all(run.ended is not None for run in runs.values()):
                return list(runs.values()), moments
        raise ServerFailed(await self._process.wait(STOP_SECONDS))


def _take(report: Stepped, runs: dict[str, EngineRun], now: float) -> None:
    for output in report.outputs:
        run = runs[output.run]
        run.arrivals += [now] * len(output.tokens)
        if output.finish is not None:
            run.ended = now
            run.failure = output.finish.error


def _moment(report: Stepped, runs: dict[str, EngineRun]) -> Moment:
    """A token that was drawn last is not in a cell yet."""
    live = [run for run in runs.values() if run.arrivals and run.ended is None]
    tokens = sum(run.prompt_tokens + len(run.arrivals) - 1 for run in live)
    return Moment(report.stats, tokens, len(live))
