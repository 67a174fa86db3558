"""The arithmetic under every number in docs/benchmarks.md."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

PATH = Path(__file__).resolve().parents[1] / "bench" / "statistics.py"


def load() -> ModuleType:
    """By path: `bench` is no part of the package, so it is not importable from everywhere."""
    spec = importlib.util.spec_from_file_location("bench_statistics", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_statistics"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


statistics = load()
numbers = st.floats(min_value=0, max_value=1e6)


@pytest.mark.parametrize(
    ("values", "expected"), [([3.0], 3.0), ([1.0, 2.0], 1.5), ([9.0, 1.0, 5.0], 5.0)]
)
def test_the_median_lies_in_the_middle(values: list[float], expected: float) -> None:
    assert statistics.median(values) == expected


@given(st.lists(numbers, min_size=1))
def test_a_spread_is_ordered_and_holds_its_values(values: list[float]) -> None:
    spread = statistics.Spread.of(values)
    assert spread.low == min(values) and spread.high == max(values)
    assert spread.low <= spread.median <= spread.high
    assert spread.count == len(values)


def test_what_was_not_measured_is_in_no_spread() -> None:
    assert statistics.Spread.of([]) is None
    assert statistics.Spread.of([math.nan]) is None
    assert statistics.Spread.of([math.nan, 2.0]).count == 1


def test_an_infinite_measurement_does_not_spoil_the_median() -> None:
    spread = statistics.Spread.of([1.0, 2.0, math.inf])
    assert spread.median == 2.0 and spread.high == math.inf
    assert statistics.Spread.of([math.inf, math.inf]).median == math.inf


def test_a_ratio_says_when_there_is_none() -> None:
    assert statistics.ratio(3.0, 2.0) == 1.5
    assert statistics.ratio(1.0, 0.0) == math.inf
    assert statistics.ratio(1.0, math.inf) == 0.0
    for nothing in ((0.0, 0.0), (math.nan, 1.0), (1.0, math.nan), (math.inf, math.inf)):
        assert math.isnan(statistics.ratio(*nothing))


def test_gaps_are_counted_only_where_both_ends_are_in_the_window() -> None:
    times = [0.0, 1.0, 3.0, 6.0, 10.0]
    assert statistics.gaps(times) == [1.0, 2.0, 3.0, 4.0]
    assert statistics.gaps_within(times, 1.0, 6.0) == [2.0, 3.0]
    assert statistics.gaps_within(times, 1.5, 2.5) == []


def test_the_worst_gap_is_whole_even_when_it_sticks_out_of_the_window() -> None:
    times = [0.0, 1.0, 9.0, 9.5, 11.0]
    assert statistics.worst_gap_touching(times, 2.0, 3.0) == 8.0
    assert statistics.worst_gap_touching(times, 9.2, 9.4) == 0.5
    assert math.isnan(statistics.worst_gap_touching([], 0.0, 1.0))


def test_a_stream_that_falls_silent_has_a_gap_to_the_end() -> None:
    assert statistics.worst_gap_touching([0.0, 1.0], 0.5, 8.0) == 7.0


def test_the_rate_is_of_the_tokens_after_the_first() -> None:
    assert statistics.rate(11, 5.0, 6.0) == 10.0
    assert math.isnan(statistics.rate(1, 5.0, 6.0))
    assert math.isnan(statistics.rate(5, 5.0, 5.0))


def test_streams_are_counted_together_only_while_all_decode() -> None:
    early = [0.0, 1.0, 2.0, 3.0]  # decodes alone until 2
    late = [2.0, 3.0, 4.0]
    assert statistics.overlap_rate([early, late], [4, 3]) == 2.0
    assert math.isnan(statistics.overlap_rate([early, [9.0, 10.0]], [4, 2]))


def test_arrivals_that_hold_several_tokens_weigh_as_many() -> None:
    assert statistics.overlap_rate([[0.0, 1.0, 2.0]], [9]) == 3.0


@given(st.floats(min_value=0.1, max_value=20), st.integers(0, 2**32))
def test_arrivals_come_in_order_inside_the_window(rate: float, seed: int) -> None:
    times = statistics.poisson_arrivals(rate, 10.0, seed)
    assert times == sorted(times) and all(0 <= t < 10 for t in times)
    assert times == statistics.poisson_arrivals(rate, 10.0, seed)


def test_arrivals_have_the_rate_that_was_asked_for() -> None:
    assert 900 < len(statistics.poisson_arrivals(1.0, 1000.0, seed=1)) < 1100


@given(st.floats(min_value=0.05, max_value=12), st.none() | st.floats(0.05, 20))
def test_the_highest_passing_rung_is_found(limit: float, near: float | None) -> None:
    search = statistics.Rungs(0.1, 10.0, factor=1.1, near=near)
    tries = []
    while (value := search.next) is not None:
        tries.append(value)
        search.tell(value <= limit)
    assert len(tries) < 14 and max(tries) <= 10.0 * (1 + 1e-9) and len(set(tries)) == len(tries)
    if limit < 0.1:
        assert search.answer == 0.0
    else:
        assert search.answer <= limit
        assert search.answer * 1.1 > limit or search.answer * 1.1 > 10.0


def test_from_a_good_guess_two_tries_find_the_rung() -> None:
    for guess in (1.0, 1.1):
        search = statistics.Rungs(0.1, 10.0, factor=1.1, near=guess)
        tries = 0
        while (value := search.next) is not None:
            tries += 1
            search.tell(value <= 1.05)
        assert tries == 2 and 1.05 / 1.1 < search.answer <= 1.05
