"""The draw of a token from a row of logits.

The samplers run in the order of llama.cpp's default chain (common/common.h and common/sampling.cpp
there): logit bias, penalties, top-k, top-p, min-p, temperature, draw. Temperature 0 takes the
most likely token; equal logits are ordered by id.

The random number for the i-th generated token is u = n / 2**53, where n is the first 53 bits of
the 8-byte BLAKE2b digest (read as a big-endian integer) of seed, i and draw, each as 8 bytes
little-endian; i counts from 0, and draw is 0 (it numbers repeated draws for one place). So the
draw depends on (logits, parameters, seed, i, tokens before) and nothing else.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hobnob.server.engine.protocol import Sampling

Row = NDArray[np.float32]
Ids = NDArray[np.intp]

_LANES_MAX = 128  # values whose maximum is taken at once when the largest few are looked for
_FEW = 1024  # up to so many values numpy's stable sort is the fastest
_KEY = struct.Struct("<QQQ")
_TOP_P_TRIES = (128, 2048)  # how many of the largest to try before the whole row is sorted


class BadLogits(Exception):
    """The model gave NaN or infinity: nothing can be drawn."""


def uniform(seed: int, index: int, draw: int = 0) -> float:
    """The number in [0, 1) for a place in a reply."""
    digest = hashlib.blake2b(_KEY.pack(seed, index, draw), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2.0**53


@dataclass(frozen=True, slots=True)
class Drawn:
    token: int
    logprob: float | None = None
    """Of the model's own distribution, before any sampler; None unless asked for."""
    top: Sequence[tuple[int, float]] = ()


class Sampler:
    """One run's sampling: its parameters and the tokens that its penalties count."""

    def __init__(
        self, sampling: Sampling, tokens: Sequence[int], banned: Iterable[int] = ()
    ) -> None:
        """`tokens`: prompt and what was generated. `banned` are never drawn."""
        self._p = sampling
        self._bias = _bias(sampling.logit_bias, banned)
        self._penalises = sampling.repeat_last_n > 0 and (
            sampling.repeat_penalty != 1.0
            or sampling.presence_penalty != 0.0
            or sampling.frequency_penalty != 0.0
        )
        self._recent: list[int] = []
        self._counts: Counter[int] = Counter()
        if self._penalises:
            for token in tokens[-sampling.repeat_last_n :]:
                self.accept(token)

    def accept(self, token: int) -> None:
        """The token is part of the reply now."""
        if not self._penalises:
            return
        self._recent.append(token)
        self._counts[token] += 1
        if len(self._recent) > self._p.repeat_last_n:
            old = self._recent.pop(0)
            self._counts[old] -= 1
            if not self._counts[old]:
                del self._counts[old]

    def draw(self, logits: Row, index: int) -> Drawn:
        """The token at `index` of the reply. Changes nothing. Raises BadLogits."""
        row = self._adjusted(logits)
        token = self._token(row, index)
        if self._p.logprobs < 0:
            return Drawn(token)
        return _with_logprobs(logits, token, self._p.logprobs)

    def _adjusted(self, logits: Row) -> Row:
        """The row after bias and penalties; the row itself when there are none."""
        if not self._bias and not self._counts:
            return logits
        row = logits.copy()
        if self._bias:
            ids, values = self._bias
            row[ids] += values
        if self._counts:
            self._penalise(row)
        return row

    def _penalise(self, row: Row) -> None:
        ids = np.fromiter(self._counts.keys(), np.intp, len(self._counts))
        counts = np.fromiter(self._counts.values(), np.float32, len(self._counts))
        some = row[ids]
        repeat = np.float32(self._p.repeat_penalty)
        some = np.where(some <= 0, some * repeat, some / repeat)
        row[ids] = some - (
            counts * np.float32(self._p.frequency_penalty) + np.float32(self._p.presence_penalty)
        )

    def _token(self, row: Row, index: int) -> int:
        p = self._p
        likeliest = int(row.argmax())  # a NaN, where there is one
        if not math.isfinite(row[likeliest]):
            raise BadLogits("the most likely token has no finite logit")
        if p.temperature <= 0.0 or p.top_k == 1:
            return likeliest
        ids, values = self._candidates(row)
        values = _min_p(values, p.min_p)
        weights = np.exp((values - values[0]) / p.temperature)
        total = np.cumsum(weights)
        at = int(np.searchsorted(total, uniform(p.seed, index) * total[-1], side="right"))
        return int(ids[min(at, values.size - 1)])

    def _candidates(self, row: Row) -> tuple[Ids, NDArray[np.float64]]:
        """Ids and logits that top-k and top-p leave, the largest first, equals by id."""
        k = self._p.top_k
        limited = 0 < k < row.size
        ids = top(row, k) if limited else _all(row, self._p)
        values = row[ids].astype(np.float64)
        return ids, _top_p(values, self._p.top_p) if limited else values


def _bias(biases: dict[int, float], banned: Iterable[int]) -> tuple[Ids, Row] | None:
    values = dict(biases)
    values.update((token, -math.inf) for token in banned)
    if not values:
        return None
    ids = np.fromiter(values.keys(), np.intp, len(values))
    return ids, np.fromiter(values.values(), np.float32, len(values))


def top(row: Row, k: int) -> Ids:
    """Ids of the k largest, the largest first, equals by id.

    Of the maxima of many small groups the k-th largest is a bound that at least k values reach,
    and few more do: two passes over the row and a short sort instead of a partition of it all.
    Groups are strided (every n-th value), which numpy reduces fastest. No value may be NaN.
    """
    lanes = min(_LANES_MAX, row.size // (8 * k))
    if lanes < 2:
        return _sorted(row, np.arange(row.size))[:k]
    groups = row.size // lanes
    maxima = row[: lanes * groups].reshape(lanes, groups).max(axis=0)
    bound = np.partition(maxima, groups - k)[groups - k]
    if bound == -math.inf:  # fewer than k groups have a token that may be drawn
        return _sorted(row, np.arange(row.size))[:k]
    return _sorted(row, np.flatnonzero(row >= bound))[:k]


def _all(row: Row, p: Sampling) -> Ids:
    """The ids that matter when top-k is off: all, or those that top-p or min-p can leave."""
    largest = float(row.max())
    if p.min_p > 0.0 and p.top_p >= 1.0:
        ids = np.flatnonzero(row >= largest + math.log(p.min_p))
        return _sorted(row, ids if ids.size else np.arange(row.size))
    if p.top_p >= 1.0:
        return _sorted(row, np.arange(row.size))
    wanted = p.top_p * float(np.exp(row - np.float32(largest)).sum(dtype=np.float64))
    for k in (*_TOP_P_TRIES, row.size):
        ids = top(row, min(k, row.size))
        mass = np.cumsum(np.exp(row[ids].astype(np.float64) - largest))
        if mass[-1] >= wanted:
            break
    return ids[: int(np.searchsorted(mass, wanted)) + 1]


def _sorted(row: Row, ids: Ids) -> Ids:
    """The largest first; equals by id, as `ids` ascend."""
    values = row[ids]
    if ids.size <= _FEW:
        return ids[np.argsort(-values, kind="stable")]
    # numpy's stable argsort is forty times slower than its sort of integers: pack value and id
    bits = values.view(np.int32).astype(np.int64)
    ordered = np.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    packed = np.sort((-ordered << 32) | ids)
    return (packed & 0xFFFFFFFF).astype(np.intp)


def _top_p(values: NDArray[np.float64], p: float) -> NDArray[np.float64]:
    """The fewest of the largest whose probability reaches p."""
    if p >= 1.0:
        return values
    mass = np.cumsum(np.exp(values - values[0]))
    return values[: int(np.searchsorted(mass, p * mass[-1])) + 1]


def _min_p(values: NDArray[np.float64], p: float) -> NDArray[np.float64]:
    """Those at least p times as likely as the first."""
    if p <= 0.0:
        return values
    keep = int(np.searchsorted(-values, -(values[0] + math.log(p)), side="right"))
    return values[: max(1, keep)]


def _with_logprobs(logits: Row, token: int, n: int) -> Drawn:
    largest = float(logits.max())
    scale = largest + math.log(float(np.exp(logits.astype(np.float64) - largest).sum()))
    best = top(logits, n) if n > 0 else np.empty(0, np.intp)
    most = tuple((int(id), float(logits[id]) - scale) for id in best)
    return Drawn(token, float(logits[token]) - scale, most)
