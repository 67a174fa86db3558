"""How much prefill a step may carry, from what steps were measured to cost.

Pure. While somebody decodes, a prefill chunk is sized so that the step stays under a target; a
floor keeps prefills moving. Without an absolute target the step may take a multiple of what a
step of the same decodes takes alone, which suits any CPU.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from statistics import median

FIRST_ROWS = 8
"""While costs are not known."""
FLOOR_ROWS = 3
"""Not more: late in a long prompt a row costs four times what it does at its beginning, since it
attends to all that came before, and eight of them made steps of five times a decode step, four
of them steps of 3.9 times."""
MIXED_COST = 2.0
"""Of a row's cost in a step of prefill alone, until a step that also decodes has shown it: few
rows share less of the work than many."""
RELATIVE_TARGET = 2.8
"""Of a decode step's cost: a prefilling step may take so much (the bar for the worst gap is 4)."""
USUAL_TARGET = 3.4
"""Of what decode steps took lately, whatever their number and the length of their replies: with a
few long ones a step of 2.8 times theirs is more than 4 times what readers are used to."""
LEAST_TARGET = 2.0
"""Of a decode step's cost, though it is far more than what they took lately."""
IDLE_STEP_SECONDS = 1.0
"""With nobody decoding a step may take so long: new arrivals and cancels wait for its end."""
TRUSTED_ROWS = 64
"""A step of prefill alone with fewer rows tells less of what a row costs: most of it is fixed."""
_WEIGHT = 0.2  # of the newest measurement
_USUAL_KEPT = 256
_DECODES_KEPT = 5
"""Of a number of decodes: the newest steps, whose median counts. A single slow one, such as the
step during which a long prompt is taken in, would otherwise set the target for all of its steps:
none of decodes alone comes to correct it."""


def _blend(old: float | None, new: float, weight: float = _WEIGHT) -> float:
    return new if old is None else old + weight * (new - old)


@dataclass(slots=True)
class Pace:
    """`target_s`: seconds a mixed step may take; 0: relative to its decodes."""

    rows: int
    target_s: float = 0.0
    _per_row: float | None = None
    """Seconds of one more prefill row, in steps of prefill alone."""
    _per_row_beside: float | None = None
    """The same in steps that also decode; not believed where it is less than that, as after the
    first rows of short prompts."""
    _decodes: dict[int, deque[float]] = field(default_factory=dict)
    """Seconds of the newest steps of so many decodes alone."""
    _lately: deque[float] = field(default_factory=lambda: deque(maxlen=_USUAL_KEPT))
    """The same of any number."""

    def observe(self, decodes: int, prefill_rows: int, seconds: float) -> None:
        """What a step cost."""
        if not prefill_rows:
            self._decodes.setdefault(decodes, deque(maxlen=_DECODES_KEPT)).append(seconds)
            self._lately.append(seconds)
            return
        if decodes:
            base = self._decode_cost(decodes)
            if base is not None:
                per_row = max(1e-6, seconds - base) / prefill_rows
                self._per_row_beside = _blend(self._per_row_beside, per_row)
            return
        rows = prefill_rows
        # its first row costs what the only row of a decode step does
        base = median(self._decodes[1]) if 1 in self._decodes else None
        if base is not None:
            rows -= 1
        if rows:
            per_row = max(1e-6, seconds - (base or 0.0)) / rows
            self._per_row = _blend(self._per_row, per_row, _WEIGHT * min(1.0, rows / TRUSTED_ROWS))

    def prefill_rows(self, decodes: int, soon: int = 1) -> int:
        """Prefill tokens for a step that also has so many decodes, while the prompts of `soon`
        runs are read. A relative target goes by the steps that all but the last of these will
        make long anyway: after a burst of arrivals nobody gains from reading them in crumbs."""
        if not decodes:
            if self._per_row is None:
                return self.rows
            return self._bounded(IDLE_STEP_SECONDS / self._per_row)
        base, per_row = self._decode_cost(decodes), self._seconds_beside
        if base is None or per_row is None:
            return FIRST_ROWS
        return self._bounded(
            ((self.target_s or self._target(decodes, base, soon)) - base) / per_row
        )

    def _target(self, decodes: int, base: float, soon: int) -> float:
        if soon > 1:
            return RELATIVE_TARGET * max(base, self._decode_cost(decodes + soon - 1) or base)
        usual = median(self._lately)
        return max(LEAST_TARGET * base, min(RELATIVE_TARGET * base, USUAL_TARGET * usual))

    def decode_seconds(self, decodes: int) -> float | None:
        """Of a step of so many decodes alone; None while none was measured."""
        return self._decode_cost(decodes)

    @property
    def seconds_per_prefill_row(self) -> float | None:
        return self._per_row_beside if self._per_row is None else self._per_row

    @property
    def _seconds_beside(self) -> float | None:
        alone, beside = self._per_row, self._per_row_beside
        if alone is None:
            return beside
        return MIXED_COST * alone if beside is None else max(alone, beside)

    def _bounded(self, rows: float) -> int:
        return max(FLOOR_ROWS, min(self.rows, int(rows)))

    def _decode_cost(self, decodes: int) -> float | None:
        """Seconds of a step of decodes alone, from the nearest number that was measured."""
        if not decodes or not self._decodes:
            return None
        nearest = min(self._decodes, key=lambda known: abs(known - decodes))
        return median(self._decodes[nearest]) * math.sqrt(max(1.0, decodes / nearest))
