"""What it costs to put saved cells back, against computing them: both as measured.

The step thread's. Pure but for the model that is measured and the clock for that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hobnob.server.engine.model import Model
from hobnob.server.engine.pacing import Pace

MEASURED = 2  # times; the first also pays for what is made once

_UNKNOWN_SECONDS = 1.0  # for a token that nobody has computed yet: long


@dataclass(slots=True)
class Restoring:
    pace: Pace
    stretch_s: float = 0.0
    """To put back a stretch, however short."""
    token_s: float = 0.0
    """For each of its tokens, beside that."""

    def won(self, tokens: int, stretch: int, read_s: float = 0.0) -> float:
        """Seconds that it saves to put back a stretch of so many tokens instead of computing so
        many of them, when it must be read for so long; below 0: that it costs."""
        per_row = self.pace.seconds_per_prefill_row
        computing = tokens * (_UNKNOWN_SECONDS if per_row is None else per_row)
        return computing - (self.stretch_s + stretch * self.token_s + read_s)


def measure(model: Model, seq: int, clock: Callable[[], float]) -> tuple[float, float]:
    """Puts back all of the sequence's tokens, and the last one alone: what a stretch costs, and
    each of its tokens beside that."""
    length = model.length(seq)
    if not length:
        return 0.0, 0.0
    one = min(_seconds(model, seq, length - 1, clock) for _ in range(MEASURED))
    every = min(_seconds(model, seq, 0, clock) for _ in range(MEASURED))
    return one, max(0.0, every - one) / max(1, length - 1)


def _seconds(model: Model, seq: int, start: int, clock: Callable[[], float]) -> float:
    state = model.save(seq, start)
    if state is None:
        return 0.0
    model.cut(seq, start)
    began = clock()
    model.restore(seq, state)
    return clock() - began
