"""DRY, "don't repeat yourself" (p-e-w, text-generation-webui pull request 5677): tokens that would
extend a repetition lose multiplier * base^(length - allowed length).

Depends only on the tokens before and is kept up to date token by token, one pass over the window
each, so that no text makes it slow. The rules are those of llama.cpp's sampler of that name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hobnob.server.engine.breakers import Breakers
from hobnob.server.engine.protocol import Sampling
from hobnob.server.engine.ranking import Row

_LARGEST_LOG = 88.7228391  # logarithm of the largest float32


class Dry:
    def __init__(self, p: Sampling, tokens: Sequence[int], breakers: Breakers) -> None:
        self._p = p
        self._breakers = breakers
        self._lengths = sorted({len(breaker) for breaker in breakers})
        window = tokens[-p.dry_penalty_last_n :]
        self._tokens = np.zeros(2 * p.dry_penalty_last_n, np.int64)
        self._matches = np.zeros(2 * p.dry_penalty_last_n, np.int32)
        self._start = self._end = 0  # the window in both arrays
        self._broken: tuple[int, int] | None = None  # places of the last breaker's first and last
        self._tokens[: len(window)] = window
        self._matches[: len(window)] = _suffix_matches(window)
        self._end = len(window)
        self._find_breaker()

    def accept(self, token: int) -> None:
        if self._end == self._tokens.size:
            self._move_to_front()
        start, end = self._start, self._end
        before = self._tokens[start:end]
        # A suffix that ended one place earlier goes on where the same token follows.
        longer = np.ones(end - start, np.int32)
        longer[1:] += self._matches[start : max(start, end - 1)]
        self._tokens[end] = token
        self._matches[start:end] = longer * (before == token)
        self._matches[end] = 0  # never compared with itself
        self._end += 1
        if self._end - self._start > self._p.dry_penalty_last_n:
            self._start += 1
        self._look_for_breaker()

    def penalise(self, row: Row) -> None:
        """Lowers the logits of tokens that would extend a repetition."""
        p = self._p
        size = self._end - self._start
        limit = self._limit()
        if size <= p.dry_allowed_length or limit < p.dry_allowed_length:
            return
        # What lies before the window does not count.
        lengths = np.minimum(self._matches[self._start : self._end - 1], np.arange(1, size))
        lengths = np.minimum(lengths, limit)
        places = np.flatnonzero(lengths >= p.dry_allowed_length)
        if not places.size:
            return
        ids, of = np.unique(self._tokens[self._start + 1 : self._end][places], return_inverse=True)
        longest = np.zeros(ids.size, np.int64)
        np.maximum.at(longest, of, lengths[places])
        exponents = longest - p.dry_allowed_length
        if p.dry_base > 1.000001:
            exponents = np.minimum(exponents, int(_LARGEST_LOG / math.log(p.dry_base)))
        for id, exponent in zip(ids.tolist(), exponents.tolist(), strict=True):
            if (id,) not in self._breakers:
                row[id] -= np.float32(min(p.dry_multiplier * p.dry_base**exponent, 3e38))

    def _limit(self) -> int:
        """Tokens since the last breaker that begins in the window."""
        if self._broken is None or self._broken[0] < self._start:
            return self._end - self._start
        return self._end - 1 - self._broken[1]

    def _find_breaker(self) -> None:
        """As `_look_for_breaker`, when nothing is known yet."""
        window = self._tokens[self._start : self._end].tolist()
        for first in reversed(range(len(window))):
            for length in reversed(self._lengths):
                if tuple(window[first : first + length]) in self._breakers:
                    self._broken = first, first + length - 1
                    return

    def _look_for_breaker(self) -> None:
        """Of the breakers in the window the one that begins last counts, of those the longest.
        Only one that ends with the newest token can be new."""
        last = self._end - 1
        for length in self._lengths:
            first = last + 1 - length
            if first < self._start:
                return
            if tuple(self._tokens[first : self._end].tolist()) in self._breakers:
                if self._broken is None or first >= self._broken[0]:
                    self._broken = first, last
                return

    def _move_to_front(self) -> None:
        size, start = self._end - self._start, self._start
        for kept in (self._tokens, self._matches):
            kept[:size] = kept[start : self._end].copy()
        if self._broken is not None:
            self._broken = self._broken[0] - start, self._broken[1] - start
        self._start, self._end = 0, size


def dry_of(p: Sampling, tokens: Sequence[int], breakers: Breakers) -> Dry | None:
    """None where it would do nothing."""
    if p.dry_multiplier == 0.0 or p.dry_penalty_last_n == 0 or p.mirostat:
        return None
    return Dry(p, tokens, breakers)


def _suffix_matches(tokens: Sequence[int]) -> list[int]:
    """For each place, how many tokens up to it are the same as the last ones of all (the last place
    itself counts as 0). The Z algorithm on the reversed tokens: linear whatever they are."""
    backwards, n = list(reversed(tokens)), len(tokens)
    found = [0] * n
    left = right = 0  # the stretch furthest on that equals a beginning; right is beyond it
    for at in range(1, n):
        same = min(right - at, found[at - left]) if at < right else 0
        while at + same < n and backwards[same] == backwards[at + same]:
            same += 1
        found[at] = same
        if at + same > right:
            left, right = at, at + same
    return found[::-1]
