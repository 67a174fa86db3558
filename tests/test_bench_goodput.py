"""The search for the rate that a server serves well: flags are chosen by it, without ties."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def goodput(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """`bench` is no part of the package, so it is not importable from everywhere."""
    monkeypatch.syspath_prepend(str(ROOT))
    from bench.scenarios import goodput  # type: ignore[import-not-found, unused-ignore]

    yield goodput
    for name in [name for name in sys.modules if name.split(".")[0] == "bench"]:
        del sys.modules[name]


def window(goodput: ModuleType, rate: float, share: float) -> Any:
    return goodput.Window(rate, 20.0, 100, round(100 * share), 100 - round(100 * share), 0, 0)


async def found(goodput: ModuleType, limit: float, softness: float) -> tuple[float, float]:
    """Of a server that serves well up to a rate, and the worse above it."""

    async def serve(rate: float, number: int) -> Any:
        return window(goodput, rate, min(1.0, (limit / rate) ** softness))

    factor = goodput.PROBE_FACTOR
    answer, windows = await goodput.search(serve, factor, goodput.PROBE_RATE)
    return answer, goodput.score(answer, windows, factor)


def test_a_window_in_which_nobody_came_is_not_passed(goodput: ModuleType) -> None:
    empty = goodput.judge(1.0, 15.0, [])
    assert empty.sent == 0 and not empty.passed


def test_in_every_window_somebody_comes(goodput: ModuleType) -> None:
    class Texts:
        def prose(self, tokens: int, seed: int) -> str:
            return "word " * tokens

    for seed in range(50):
        trial = goodput.Trial(seed, False, Texts())
        assert goodput.guests(trial, 0.03, 20.0, 1)[0].arrives_s < 20.0


async def test_flags_are_compared_by_the_rate_that_is_served_and_then_by_how_near_the_next_came(
    goodput: ModuleType,
) -> None:
    slow, better, fast = [await found(goodput, limit, 2.0) for limit in (0.25, 0.3, 1.7)]
    assert slow[0] == better[0] < fast[0], "the steps of the search are coarse"
    assert slow[1] < better[1] < fast[1]


async def test_who_serves_nothing_is_told_apart_too(goodput: ModuleType) -> None:
    bad, worse = [await found(goodput, limit, 1.0) for limit in (0.02, 0.01)]
    assert bad[0] == worse[0] == 0 and 0 < worse[1] < bad[1] < goodput.LOWEST


async def test_who_serves_all_has_the_highest_rate(goodput: ModuleType) -> None:
    answer, score = await found(goodput, 1e9, 1.0)
    assert answer == score > goodput.HIGHEST / goodput.PROBE_FACTOR
