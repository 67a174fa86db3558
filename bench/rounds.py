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
from bench.capacity import Capacity, ServerFailed, Variant
from bench.engine import EngineServer
from bench.scenario import Measure, Measurement, Scenario, Trial
from bench.servers import Server, shown_command
from bench.texts import Texts, user

SETTLE_SECONDS = 0.3
"""Between contestants: threads of the one before may still spin."""
TRIES_PER_ROUND = 2
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
    notes: list[str] = []
    chosen: dict[str, Variant] = {}
    tried: dict[str, list[list[Any]]] = {}
    ours = next(iter(scenario.contestants))
    for name, candidates in scenario.contestants.items():
        if name != ours and not settings.peers:
            continue
        try:
            chosen[name], tried[name] = await _choose(scenario, candidates, settings, say)
        except (peers.NotBuilt, ServerFailed) as error:
            if name == ours:
                raise NothingMeasured(str(error)) from error
            notes.append(_left_out(name, error, say))
    async with AsyncExitStack() as stack:
        running: dict[str, Running] = {}
        for name, variant in chosen.items():
            try:
                contestant = _open(variant, scenario, settings)
                running[name] = await stack.enter_async_context(contestant)
            except (peers.NotBuilt, ServerFailed) as error:
                if name == ours:
                    raise NothingMeasured(str(error)) from error
                notes.append(_left_out(name, error, say))
        for contestant in running.values():
            await _warm(contestant)
        rounds = await _rounds(scenario, running, settings, say)
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
        "tried": tried,
        "rounds": rounds,
        "notes": notes,
    }


def _left_out(name: str, error: Exception, say: Say) -> str:
    say(f"  {name}: {error}")
    return f"{name} was left out: {str(error).splitlines()[0]}"


def kept(rounds: Sequence[Mapping[str, Any]], wanted: int) -> list[Mapping[str, Any]]:
    """The quiet rounds, made up with the least disturbed of the others where they are too few."""
    quiet = [one for one in rounds if not one["busy"]]
    disturbed = sorted((one for one in rounds if one["busy"]), key=lambda one: one["foreign"] or 0)
    return [*quiet, *disturbed][:wanted]


async def _choose(
    scenario: Scenario, candidates: Sequence[Variant], settings: Settings, say: Say
) -> tuple[Variant, list[list[Any]]]:
    """The variant that does best at the scenario's first metric, and what all of them did."""
    if len(candidates) == 1:
        return candidates[0], []
    headline = scenario.metrics[0]
    measure = scenario.probe or scenario.measure
    trial = Trial(settings.seed, True, settings.texts)
    found: list[tuple[float, Variant]] = []
    for variant in candidates:
        try:
            async with _open(variant, scenario, settings) as contestant:
                await _warm(contestant)
                measured = await _measured(measure, contestant, trial)
        except ServerFailed as error:
            say(f"  {variant.contestant} [{variant.shown}]: {error}")
            continue
        value = measured.values.get(headline.key, math.nan)
        say(f"  {variant.contestant} [{variant.shown}]: {headline.title} {value:.4g}")
        found.append((value, variant))
    if not found:
        raise ServerFailed(f"{candidates[0].contestant} does not start with any flags")
    sign = 1 if headline.higher_is_better else -1
    best = max(found, key=lambda one: -math.inf if math.isnan(one[0]) else sign * one[0])
    return best[1], [[variant.shown, _json(value)] for value, variant in found]


async def _rounds(
    scenario: Scenario, running: Mapping[str, Running], settings: Settings, say: Say
) -> list[dict[str, Any]]:
    done: list[dict[str, Any]] = []
    fastest = min(machine.calibrate() for _ in range(3))
    tries = 1 if settings.quick else TRIES_PER_ROUND
    while len(done) < tries * settings.rounds:
        number = len(done) + 1
        trial = Trial(settings.seed + number, settings.quick, settings.texts)
        watch = machine.Watch()
        results = await _round(scenario.measure, running, trial)
        weather = watch.weather()
        fastest = min(fastest, weather.calibration_s)
        busy = weather.busy(fastest)
        done.append(
            {
                "values": {name: _values(one) for name, one in results.items()},
                "notes": {name: one.notes for name, one in results.items() if one.notes},
                "series": {name: one.series for name, one in results.items() if one.series},
                "prompt_tokens": {name: one.prompt_tokens for name, one in results.items()},
                "order": list(results),
                "busy": busy,
                **asdict(weather),
            }
        )
        say(f"  round {number}{' (disturbed)' if busy else ''}: {_line(scenario, done[-1])}")
        if sum(not one["busy"] for one in done) >= settings.rounds:
            break
    return done


async def _round(
    measure: Measure, running: Mapping[str, Running], trial: Trial
) -> dict[str, Measurement]:
    names = list(running)
    turn = trial.seed % len(names)
    results: dict[str, Measurement] = {}
    for name in [*names[turn:], *names[:turn]]:
        await asyncio.sleep(SETTLE_SECONDS)
        results[name] = await _measured(measure, running[name], trial)
    return results


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


def _open(variant: Variant, scenario: Scenario, settings: Settings) -> Running:
    capacity = Capacity(
        settings.model, settings.texts.eos, settings.threads, scenario.streams, scenario.cells
    )
    engine = any(flag.startswith(("bench.", "hobnob.")) for flag in variant.flags)
    return EngineServer(variant, capacity) if engine else Server(variant, capacity)


def _values(measured: Measurement) -> dict[str, float | None]:
    return {key: _json(value) for key, value in measured.values.items()}


def _json(value: float) -> float | None:
    """JSON has no NaN; infinity is told as a number no measurement has."""
    if math.isnan(value):
        return None
    return 1e300 if math.isinf(value) else float(f"{value:.6g}")


def _line(scenario: Scenario, one: Mapping[str, Any]) -> str:
    headline = scenario.metrics[0]
    parts = []
    for name, values in one["values"].items():
        value = values.get(headline.key)
        parts.append(f"{name} {'—' if value is None else f'{value:.4g}'} {headline.unit}".rstrip())
    return f"{headline.title}: " + ", ".join(parts)
