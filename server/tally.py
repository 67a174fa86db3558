"""What was counted since the start: requests, refusals, ends of runs, the engine's steps.

Hears the engine's news as they come and is read at any time: nothing here waits for anyone. Every
label is one of a bounded set. Event loop thread only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Sequence

from hobnob.server.engine.protocol import WARMED, Finish, Record, Stepped
from hobnob.server.engine.state import EnginePort, EngineStatus

RECORDS = 1024
"""Steps whose records are kept."""

STEP_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
OVERHEAD_BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5)
FIRST_TOKEN_BOUNDS_S = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
TOKEN_BOUNDS_S = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5)

OTHER = "other"
"""The label of what is not ours to name: paths and methods that clients make up."""
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Histogram:
    """How many values were at most each bound, and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.sum = 0.0
        self._counts = [0] * (len(bounds) + 1)

    def add(self, value: float) -> None:
        self._counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self._counts)

    def cumulative(self) -> list[tuple[float, int]]:
        """Each bound with the number of values up to it, infinity last."""
        found, so_far = [], 0
        for bound, count in zip((*self.bounds, float("inf")), self._counts, strict=True):
            so_far += count
            found.append((bound, so_far))
        return found


class Tally:
    def __init__(self, engine: EnginePort) -> None:
        """Listens to the engine from here on."""
        self.requests: Counter[tuple[str, str, str]] = Counter()  # method, route, status
        self.refusals: Counter[str] = Counter()  # by code: there was no place
        self.ends: Counter[str] = Counter()  # of runs, by the engine's reason
        self.prompt_tokens = 0  # of runs that ended
        self.cached_tokens = 0  # of these, the ones that were resident
        self.prefilled_tokens = 0  # computed, so far
        self.decoded_tokens = 0
        self.first_token = Histogram(FIRST_TOKEN_BOUNDS_S)
        self.token = Histogram(TOKEN_BOUNDS_S)
        self.step_decode = Histogram(STEP_BOUNDS_S)
        self.step_overhead = Histogram(OVERHEAD_BOUNDS_S)
        self.records: deque[Record] = deque(maxlen=RECORDS)
        engine.listen(self)

    # ---- the edge's news

    def answered(self, method: str, route: str | None, status: int) -> None:
        """`route` is the pattern of the path, None where nothing is served."""
        named = method if method in _METHODS else OTHER
        self.requests[named, route or OTHER, str(status)] += 1

    def refused(self, code: str) -> None:
        self.refusals[code] += 1

    # ---- the engine's news

    def on_stepped(self, stepped: Stepped) -> None:
        for record in stepped.records:
            self.records.append(record)
            self.step_decode.add(record.decode_s)
            self.step_overhead.add(record.overhead_s)
            self.prefilled_tokens += record.prefill_rows
            self.decoded_tokens += record.decodes + record.accepted
        for output in stepped.outputs:
            if output.finish is not None:
                self._ended(output.finish)

    def on_death(self, reason: str, *, reading: bool) -> None:
        """What was counted stays."""

    def on_status(self, status: EngineStatus) -> None:
        """Read when it is asked for."""

    def _ended(self, finish: Finish) -> None:
        if finish.reason == WARMED:
            return
        self.ends[finish.reason] += 1
        self.prompt_tokens += finish.prompt_tokens
        self.cached_tokens += finish.cached_tokens
        if not finish.completion_tokens:
            return
        self.first_token.add(finish.queued_s + finish.prefill_s + finish.first_decode_s)
        if finish.decoded > 1:
            self.token.add(finish.decode_s / (finish.decoded - 1))
