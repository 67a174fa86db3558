"""The arithmetic of the benchmarks: medians with their range, ratios, gaps, rates, arrivals.

Pure, standard library only. Times are seconds on one monotonic clock.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some measurements, and the lowest and highest of them."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread | None:
        """None where nothing was measured. NaN counts as not measured."""
        known = sorted(value for value in values if not math.isnan(value))
        if not known:
            return None
        return cls(quantile(known, 0.5), known[0], known[-1], len(known))


def quantile(values: Sequence[float], q: float) -> float:
    """Linear between neighbours, as numpy's default; NaN for no values."""
    if not values:
        return math.nan
    ordered = sorted(values)
    at = q * (len(ordered) - 1)
    below = math.floor(at)
    above = min(below + 1, len(ordered) - 1)
    share = at - below
    if share == 0 or ordered[below] == ordered[above]:  # infinities must not become NaN
        return ordered[below]
    return ordered[below] + (ordered[above] - ordered[below]) * share


def median(values: Sequence[float]) -> float:
    return quantile(values, 0.5)


def ratio(ours: float, theirs: float) -> float:
    """ours ÷ theirs; infinite where only theirs is 0, NaN where either was not measured."""
    if math.isnan(ours) or math.isnan(theirs) or (ours == 0 and theirs == 0):
        return math.nan
    if math.isinf(ours) and math.isinf(theirs):
        return math.nan
    return math.inf if theirs == 0 else ours / theirs


def gaps(times: Sequence[float]) -> list[float]:
    """Seconds between neighbours of ascending times."""
    return [later - earlier for earlier, later in zip(times, times[1:], strict=False)]


def gaps_within(times: Sequence[float], start: float, end: float) -> list[float]:
    """Gaps that lie wholly inside the window."""
    return gaps([t for t in times if start <= t <= end])


def worst_gap_touching(times: Sequence[float], start: float, end: float) -> float:
    """The longest gap of which any part lies in the window, counted whole; NaN for none.

    A stream that falls silent in the window and does not speak again has a gap that lasts
    until the end of the window at least.
    """
    touching = [
        later - earlier
        for earlier, later in zip(times, times[1:], strict=False)
        if later > start and earlier < end
    ]
    if times and times[-1] < end:
        touching.append(end - times[-1])
    return max(touching, default=math.nan)


def rate(count: int, first: float, last: float) -> float:
    """Tokens a second after the first one; NaN for fewer than two tokens."""
    if count < 2 or last <= first:
        return math.nan
    return (count - 1) / (last - first)


def overlap_rate(arrivals: Sequence[Sequence[float]], counts: Sequence[int]) -> float:
    """Tokens a second of all streams together while all of them decode.

    The window is from the latest first arrival to the earliest last one. Arrivals may hold
    several tokens, so each stream's arrivals are weighted to add up to its token count.
    """
    if not arrivals or any(len(times) < 2 for times in arrivals):
        return math.nan
    start = max(times[0] for times in arrivals)
    end = min(times[-1] for times in arrivals)
    if end <= start:
        return math.nan
    tokens = 0.0
    for times, count in zip(arrivals, counts, strict=True):
        inside = sum(1 for t in times if start < t <= end)
        tokens += inside * count / len(times)
    return tokens / (end - start)


def poisson_arrivals(rate_per_s: float, seconds: float, seed: int) -> list[float]:
    """Ascending times in [0, seconds) with exponential gaps; the same for the same seed.

    The gaps of different rates with one seed are the same but for scale.
    """
    rng = random.Random(seed)
    times, now = [], rng.expovariate(1.0) / rate_per_s
    while now < seconds:
        times.append(now)
        now += rng.expovariate(1.0) / rate_per_s
    return times


class Rungs:
    """The highest passing one of the values `low`, `low · factor`, … up to `high`.

    Ask `next`, try it, `tell` whether it passed; `next` is None once it is found. The first to be
    tried is the one nearest to `near`: from a good guess two tries do. `answer` is 0 where the
    lowest fails too.
    """

    def __init__(self, low: float, high: float, factor: float, near: float | None = None) -> None:
        assert 0 < low < high and factor > 1
        self._low, self._factor = low, factor
        self._most = math.floor(math.log(high / low, factor) + 1e-9)
        start = math.sqrt(low * high) if near is None else near
        self._next = min(self._most, max(0, round(math.log(start / low, factor))))
        self._passed, self._failed = -1, self._most + 1
        self._stride = 1

    @property
    def next(self) -> float | None:
        return None if self._failed - self._passed == 1 else self._value(self._next)

    def tell(self, passed: bool) -> None:
        assert self.next is not None, "the search is over"
        if passed:
            self._passed = self._next
        else:
            self._failed = self._next
        if self._passed >= 0 and self._failed <= self._most:
            self._next = (self._passed + self._failed) // 2
            return
        if passed:
            self._next = min(self._most, self._passed + self._stride)
        else:
            self._next = max(0, self._failed - self._stride)
        self._stride *= 2

    @property
    def answer(self) -> float:
        """So far; 0 while nothing has passed."""
        return self._value(self._passed) if self._passed >= 0 else 0.0

    def _value(self, rung: int) -> float:
        return self._low * self._factor**rung
