"""DRY, "don't repeat yourself" (p-e-w, text-generation-webui pull request 5677): tokens that would
extend a repetition lose multiplier * base^(length - allowed length).

Depends only on the tokens before and is kept up to date token by token, one pass over the window
each, so that no text makes it slow; breakers are looked for as far back as a repetition reaches.
The rules are those of llama.cpp's sampler of that name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hobnob.server.engine.breakers import REST_MAX, Breakers
from hobnob.server.engine.protocol import Sampling
from hobnob.server.engine.ranking import Row

_LARGEST_LOG = 88.7228391  # logarithm of the largest float32
_PASSES = 4  # over the tokens, before they are read one by one; of these,
_PASS_TOKENS = 500  # so many cost as much as beginning a pass


class Dry:
    def __init__(self, p: Sampling, tokens: Sequence[int], breakers: Breakers) -> None:
        self._p = p
        self._breakers = breakers
        window = np.array(tokens[-p.dry_penalty_last_n :], np.int64)
        self._tokens = np.zeros(2 * p.dry_penalty_last_n, np.int64)
        self._matches = np.zeros(2 * p.dry_penalty_last_n, np.int32)
        self._start, self._end = 0, window.size  # the window in both arrays
        self._tokens[: window.size] = window
        self._matches[: window.size] = _suffix_matches(window)
        self._seen = window.size, window.size  # places where breakers were looked for
        self._broken: tuple[int, int] | None = None  # of the last one's first token and its last
        self._exponent_max = p.dry_penalty_last_n if p.dry_base > 1.0 else 0
        if p.dry_base > 1.000001:
            self._exponent_max = int(_LARGEST_LOG / math.log(p.dry_base))

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

    def penalise(self, row: Row) -> None:
        """Lowers the logits of tokens that would extend a repetition."""
        p = self._p
        size = self._end - self._start
        if size <= p.dry_allowed_length:
            return
        # What lies before the window does not count, nor what makes no more difference.
        lengths = np.minimum(self._matches[self._start : self._end - 1], np.arange(1, size))
        longest = min(int(lengths.max(initial=0)), p.dry_allowed_length + self._exponent_max)
        if longest < p.dry_allowed_length:
            return
        lengths = np.minimum(lengths, min(longest, self._unbroken(longest)))
        places = np.flatnonzero(lengths >= p.dry_allowed_length)
        if not places.size:
            return
        ids, of = np.unique(self._tokens[self._start + 1 : self._end][places], return_inverse=True)
        most = np.zeros(ids.size, np.int64)
        np.maximum.at(most, of, lengths[places])
        exponents = most - p.dry_allowed_length
        for id, exponent in zip(ids.tolist(), exponents.tolist(), strict=True):
            if () not in self._breakers.after(id):
                row[id] -= np.float32(min(p.dry_multiplier * p.dry_base**exponent, 3e38))

    def _unbroken(self, most: int) -> int:
        """Tokens since the last breaker that begins in the window; any number from `most` on
        where there is none among the last `most`. No place is looked at again but the last few,
        where one may have become whole."""
        since, to = self._seen
        recent = max(self._start, to - REST_MAX)
        found = self._breaker(recent, self._end)
        since = min(since, recent)
        if found is None and self._broken is None:
            further = max(self._start, self._end - most - REST_MAX)
            found = self._breaker(further, since)
            since = min(since, further)
        self._seen = since, self._end
        self._broken = found or self._broken
        if self._broken is None or self._broken[0] < self._start:
            return max(most, self._end - self._start)
        return self._end - 1 - self._broken[1]

    def _breaker(self, start: int, end: int) -> tuple[int, int] | None:
        """The one that begins last from `start` on and before `end`, of those the longest."""
        tokens = self._tokens[start : min(self._end, end + REST_MAX)].tolist()
        for first in reversed(range(end - start)):
            for rest in self._breakers.after(tokens[first]):
                if tuple(tokens[first + 1 : first + 1 + len(rest)]) == rest:
                    return start + first, start + first + len(rest)
        return None

    def _move_to_front(self) -> None:
        size, start = self._end - self._start, self._start
        for kept in (self._tokens, self._matches):
            kept[:size] = kept[start : self._end].copy()
        if self._broken is not None:
            self._broken = self._broken[0] - start, self._broken[1] - start
        self._seen = max(0, self._seen[0] - start), max(0, self._seen[1] - start)
        self._start, self._end = 0, size


def dry_of(p: Sampling, tokens: Sequence[int], breakers: Breakers) -> Dry | None:
    """None where it would do nothing."""
    if p.dry_multiplier == 0.0 or p.dry_penalty_last_n == 0 or p.mirostat:
        return None
    return Dry(p, tokens, breakers)


def _suffix_matches(tokens: NDArray[np.int64]) -> NDArray[np.int32] | list[int]:
    """For each place, how many tokens up to it are the same as the last ones of all (the last place
    itself counts as 0)."""
    found = np.zeros(tokens.size, np.int32)
    places = np.arange(tokens.size - 1)
    compared, length = 0, 0
    while places.size:  # those whose last `length` tokens are the same
        compared += places.size + _PASS_TOKENS
        if compared > _PASSES * tokens.size:
            return _of_much_the_same(tokens.tolist())
        places = places[tokens[places - length] == tokens[-1 - length]]
        found[places] += 1
        length += 1
        places = places[places >= length]
    return found


def _of_much_the_same(tokens: list[int]) -> list[int]:
    """The Z algorithm on the reversed tokens: linear whatever they are."""
    backwards, n = tokens[::-1], len(tokens)
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
