"""Runs a scenario: picks each peer's best flags, then measures everybody in alternating rounds.

A round measures every contestant once, in an order that changes from round to round, and ratios
are taken within a round. A round in which something else used the machine is repeated.
"""

from __future__ import annotations

import asyncio
import datetime
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from typing import Any

import httpx

from bench import machine, peers
from bench.capacity import HOBNOB, Capacity, ServerFailed, Variant
from bench.engine import EngineServer
from bench.scenario import Measure, Measurement, Scenario, Trial
from bench.servers import Server, shown_command
from bench.texts import Texts, user

SETTLE_SECONDS = 0.3
"""Between contestants: threads of the one before may still spin."""
TRIES = 2
"""For the choice of flags, where others disturb the first."""
MOST_ROUNDS_PER_WANTED = 1.4
"""At most so many rounds are run for each that is wanted, where others disturb them."""

Say = Callable[[str], None]
Running = Server | EngineServer


@dataclass(frozen=True, slots=True)
class Settings:
    model: Any  # path
    texts: Texts
    threads: int
    rounds: int
    quick: bool
    seed: int
    peers: bool = True


class NothingMeasured(Exception):
    """hobnob itself could not be measured; the message says why."""


async def run(scenario: Scenario, settings: Settings, say: Say) -> dict[str, Any]:
    """Everything about the scenario's run, as JSON values (see table.py)."""
    session = _Session(scenario, settings, say)
    chosen = await session.choose()
    async with AsyncExitStack() as stack:
        running = await session.start(chosen, stack)
        rounds = await session.rounds(running)
        commands = {name: shown_command(one.command) for name, one in running.items()}
    return {
        "scenario": scenario.name,
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": machine.commit(),
        "machine": machine.describe(),
        "python": machine.python(),
        "model": settings.model.name,
        "threads": settings.threads,
        "streams": scenario.streams,
        "cells": scenario.cells,
        "quick": settings.quick,
        "wanted": settings.rounds,
        "flags": {name: one.variant.shown for name, one in running.items()},
        "commands": commands,
        "tried": session.tried,
        "rounds": rounds,
        "notes": session.notes,
    }


def kept(rounds: Sequence[Mapping[str, Any]], wanted: int) -> list[Mapping[str, Any]]:
    """The quiet rounds, made up with the least disturbed of the others where they are too few."""
    quiet = [one for one in rounds if not one["busy"]]
    disturbed = sorted((one for one in rounds if one["busy"]), key=lambda one: one["foreign"] or 0)
    return [*quiet, *disturbed][:wanted]


class _Session:
    """One scenario being run."""

    def __init__(self, scenario: Scenario, settings: Settings, say: Say) -> None:
        self._scenario = scenario
        self._settings = settings
        self._say = say
        self._observer = machine.Observer()
        patient = scenario.timed and not settings.quick
        self._tries = TRIES if patient else 1
        self._most_rounds = round(settings.rounds * (MOST_ROUNDS_PER_WANTED if patient else 1))
        self._ours = next(iter(scenario.contestants))
        self.notes: list[str] = []
        self.tried: dict[str, list[list[Any]]] = {}

    # ---- who takes part -----------------------------------------------------------------------

    async def choose(self) -> dict[str, Variant]:
        """Each contestant's best variant; a peer that cannot take part is left out."""
        chosen: dict[str, Variant] = {}
        for name, candidates in self._scenario.contestants.items():
            if not (name.startswith(HOBNOB) or self._settings.peers):
                continue
            try:
                chosen[name] = await self._best(name, candidates)
            except (peers.NotBuilt, ServerFailed) as error:
                self._leave_out(name, error)
        return chosen

    async def start(
        self, chosen: Mapping[str, Variant], stack: AsyncExitStack
    ) -> dict[str, Running]:
        running: dict[str, Running] = {}
        for name, variant in chosen.items():
            try:
                running[name] = await stack.enter_async_context(self._open(variant))
            except (peers.NotBuilt, ServerFailed) as error:
                self._leave_out(name, error)
        for contestant in running.values():
            await _warm(contestant)
        return running

    def _leave_out(self, name: str, error: Exception) -> None:
        if name == self._ours:
            raise NothingMeasured(str(error)) from error
        self._say(f"  {name}: {error}")
        self.notes.append(f"{name} was left out: {str(error).splitlines()[0]}")

    async def _best(self, name: str, candidates: Sequence[Variant]) -> Variant:
        """By the scenario's first metric, in a short version of it."""
        if len(candidates) == 1:
            return candidates[0]
        headline = self._scenario.metrics[0]
        found: list[tuple[float, Variant]] = []
        for variant in candidates:
            try:
                async with self._open(variant) as contestant:
                    value = await self._tried(contestant, headline.key)
            except ServerFailed as error:
                self._say(f"  {name} [{variant.shown}]: {error}")
                continue
            self._say(f"  {name} [{variant.shown}]: {headline.title} {value:.4g}")
            found.append((value, variant))
        if not found:
            raise ServerFailed(f"{name} does not start with any flags")
        self.tried[name] = [[variant.shown, _json(value)] for value, variant in found]
        sign = 1 if headline.higher_is_better else -1
        best = max(found, key=lambda one: -math.inf if math.isnan(one[0]) else sign * one[0])
        return best[1]

    async def _tried(self, contestant: Running, key: str) -> float:
        """Once more where something else disturbed it."""
        measure = self._scenario.probe or self._scenario.measure
        await _warm(contestant)
        value = math.nan
        for attempt in range(self._tries):
            trial = Trial(self._settings.seed + 100 + attempt, True, self._settings.texts)
            watch = machine.Watch()
            value = (await _measured(measure, contestant, trial)).values.get(key, math.nan)
            if not self._observer.judge(watch)[1]:
                break
        return value

    def _open(self, variant: Variant) -> Running:
        scenario, settings = self._scenario, self._settings
        capacity = Capacity(
            settings.model, settings.texts.eos, settings.threads, scenario.streams, scenario.cells
        )
        engine = any(flag.startswith(("bench.", "hobnob.")) for flag in variant.flags)
        return EngineServer(variant, capacity) if engine else Server(variant, capacity)

    # ---- measuring ----------------------------------------------------------------------------

    async def rounds(self, running: Mapping[str, Running]) -> list[dict[str, Any]]:
        """As many quiet ones as are wanted, within a bound on all."""
        done: list[dict[str, Any]] = []
        wanted = self._settings.rounds
        while len(done) < self._most_rounds:
            number = len(done) + 1
            seed = self._settings.seed + number
            watch = machine.Watch()
            results = await self._round(
                running, Trial(seed, self._settings.quick, self._settings.texts)
            )
            weather, busy = self._observer.judge(watch)
            done.append(_told(results, weather, busy))
            self._say(f"  round {number}{' (disturbed)' if busy else ''}: {self._line(done[-1])}")
            if sum(not one["busy"] for one in done) >= wanted:
                break
        return done

    async def _round(self, running: Mapping[str, Running], trial: Trial) -> dict[str, Measurement]:
        names = list(running)
        turn = trial.seed % len(names)
        results: dict[str, Measurement] = {}
        for name in [*names[turn:], *names[:turn]]:
            await asyncio.sleep(SETTLE_SECONDS)
            results[name] = await _measured(self._scenario.measure, running[name], trial)
        return results

    def _line(self, one: Mapping[str, Any]) -> str:
        headline = self._scenario.metrics[0]
        parts = []
        for name, values in one["values"].items():
            value = values.get(headline.key)
            shown = "—" if value is None else f"{value:.4g}"
            parts.append(f"{name} {shown} {headline.unit}".rstrip())
        return f"{headline.title}: " + ", ".join(parts)


async def _measured(measure: Measure, contestant: Running, trial: Trial) -> Measurement:
    """A contestant that breaks has measured nothing; that is a result too."""
    revived = None
    try:
        if isinstance(contestant, Server):
            revived = await contestant.revive()
        measured = await measure(contestant, trial)
        measured.notes += [revived] if revived else []
        return measured
    except (httpx.HTTPError, ServerFailed, ArithmeticError) as error:
        return Measurement({}, notes=[f"{type(error).__name__}: {error}"])


async def _warm(contestant: Running) -> None:
    """The first decode touches the weights; nobody is timed on that."""
    if isinstance(contestant, Server):
        await contestant.client.chat(user("Say hello."), 8)


def _told(
    results: Mapping[str, Measurement], weather: machine.Weather, busy: bool
) -> dict[str, Any]:
    """A round as JSON values."""
    return {
        "values": {name: _values(one) for name, one in results.items()},
        "notes": {name: one.notes for name, one in results.items() if one.notes},
        "series": {name: one.series for name, one in results.items() if one.series},
        "prompt_tokens": {name: one.prompt_tokens for name, one in results.items()},
        "order": list(results),
        "busy": busy,
        **asdict(weather),
    }


def _values(measured: Measurement) -> dict[str, float | None]:
    return {key: _json(value) for key, value in measured.values.items()}


def _json(value: float) -> float | None:
    """JSON has no NaN; infinity is told as a number no measurement has."""
    if math.isnan(value):
        return None
    return 1e300 if math.isinf(value) else float(f"{value:.6g}")
