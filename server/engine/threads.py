"""How many threads a step computes with. Pure: clock and the use by others are passed in.

llama.cpp's threads meet at barriers hundreds of times a step, spinning. Where another program
takes one of their cores, all wait for the thread that is not running, and a step can take a
hundred times longer. One thread less, on the cores that are left, loses only its share.
"""

from __future__ import annotations

from collections.abc import Callable

SAMPLE_SECONDS = 0.2
"""The use by others is looked at this often; the kernel counts in hundredths of a second."""

GIVE_WAY_CORES = 0.6
TAKE_BACK_CORES = 0.35
"""Others' use, in cores, at which a thread is given up, and below which it is taken back."""


class Threads:
    """`others`: cores that other programs used since it was last asked; None where unknown."""

    def __init__(self, most: int, others: Callable[[], float | None] = lambda: None) -> None:
        self.most = most
        self.count = most
        self._others = others
        self._looked_at: float | None = None
        self._used = 0.0
        self._rested = False

    def rest(self) -> None:
        """There is nothing to compute for a while: what others use meanwhile says nothing about
        the next step."""
        self._rested = True

    def choose(self, now: float) -> int:
        """The number for the next step."""
        if self.most == 1:
            return 1
        since = None if self._looked_at is None else now - self._looked_at
        if since is not None and since < SAMPLE_SECONDS:
            return self.count
        used = self._others()
        first, self._looked_at = self._looked_at is None, now
        rested, self._rested = self._rested, False
        if used is None or (rested and not first):
            return self.count
        self._used = used if first else (self._used + used) / 2
        self.count = self._fitting()
        return self.count

    def _fitting(self) -> int:
        """Whole cores that others leave, with a margin against going to and fro."""
        given_up = self.most - self.count
        while given_up < self.most - 1 and self._used > given_up + GIVE_WAY_CORES:
            given_up += 1
        while given_up > 0 and self._used < given_up - 1 + TAKE_BACK_CORES:
            given_up -= 1
        return self.most - given_up
