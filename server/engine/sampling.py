"""The draw of a token from a row of logits.

What a form forbids is out from the beginning (constraint.py). Then the samplers run in the order
of llama.cpp's default chain (common/common.h and common/sampling.cpp there): logit bias, penalties,
DRY, top-n-sigma, top-k, typical-p, top-p, min-p, XTC, temperature, draw. Adaptive-p replaces the
draw; mirostat replaces everything but bias and temperature.
Temperature 0 takes the most likely token that is left; equal logits are ordered by id.

The random number for the i-th generated token is u = n / 2**53, where n is the first 53 bits of
the 8-byte BLAKE2b digest (read as a big-endian integer) of seed, i and draw, each as 8 bytes
little-endian; i counts from 0, and draw is 0 for the token and 1 for XTC's chance. So the draw
depends on (logits, parameters, seed, i, tokens before) and nothing else, but for mirostat and
adaptive-p, which feedback.py explains.

Draws run one after the other: 16 of them took 1.0 ms together with the default options and 2.0 ms
with penalties, of 49,152 logits each on a 2-core machine, so threads were not tried. With top-k
off and a flat row they took 39 ms while ids were sorted, and a third of that since values are.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hobnob.server.engine import feedback, filters
from hobnob.server.engine.breakers import NONE, Breakers
from hobnob.server.engine.dry import dry_of
from hobnob.server.engine.protocol import Sampling
from hobnob.server.engine.ranking import ByValue, Ids, Order, Row, Values, reached_by, top

if TYPE_CHECKING:
    from hobnob.server.engine.constraint import Constraint

_XTC_DRAW = 1  # number of XTC's draw for a place
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
        self,
        sampling: Sampling,
        tokens: Sequence[int],
        banned: Iterable[int] = (),
        breakers: Breakers = NONE,
        constraint: Constraint | None = None,
    ) -> None:
        """`tokens`: prompt and what was generated. `banned` are never drawn."""
        self._p = sampling
        self._constraint = constraint
        self._bias = _bias(sampling.logit_bias, banned)
        self._dry = dry_of(sampling, tokens, breakers)
        self._mirostat = feedback.mirostat_of(sampling)
        self._adaptive = feedback.adaptive_of(sampling)
        self._chained = sampling.typical_p < 1.0 or sampling.top_n_sigma > 0.0
        self._excludes = sampling.xtc_probability > 0.0
        self._penalises = (
            sampling.repeat_last_n > 0
            and not sampling.mirostat
            and (
                sampling.repeat_penalty != 1.0
                or sampling.presence_penalty != 0.0
                or sampling.frequency_penalty != 0.0
            )
        )
        self._recent: list[int] = []
        self._counts: Counter[int] = Counter()
        if self._penalises:
            for token in tokens[-sampling.repeat_last_n :]:
                self._count(token)

    def accept(self, token: int) -> None:
        """The token is part of the reply now."""
        if self._constraint is not None:
            self._constraint.accept(token)
        if self._penalises:
            self._count(token)
        if self._dry is not None:
            self._dry.accept(token)
        if self._mirostat is not None:
            self._mirostat.accept(token)
        if self._adaptive is not None:
            self._adaptive.accept(token)

    def _count(self, token: int) -> None:
        self._recent.append(token)
        self._counts[token] += 1
        if len(self._recent) > self._p.repeat_last_n:
            old = self._recent.pop(0)
            self._counts[old] -= 1
            if not self._counts[old]:
                del self._counts[old]

    def draw(self, logits: Row, index: int) -> Drawn:
        """The token at `index` of the reply. Changes nothing. Raises BadLogits and FormError."""
        row = self._adjusted(logits)
        token = self._token(row, index)
        if self._p.logprobs < 0:
            return Drawn(token)
        return _with_logprobs(logits, token, self._p.logprobs)

    def _adjusted(self, logits: Row) -> Row:
        """The row with what may be drawn, after bias, penalties and DRY; the row itself when
        there are none."""
        if self._constraint is not None:
            row = self._constraint.masked(logits)
        elif not self._bias and not self._counts and self._dry is None:
            return logits
        else:
            row = logits.copy()
        if self._bias:
            ids, values = self._bias
            row[ids] += values
        if self._counts:
            self._penalise(row)
        if self._dry is not None:
            self._dry.penalise(row)
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
        if self._mirostat is not None:
            return self._mirostat.draw(row, p.temperature, uniform(p.seed, index))
        if p.top_k == 1 or (p.temperature <= 0.0 and not self._excludes):
            return likeliest
        ids, values = self._candidates(row)
        values = filters.min_p(values, p.min_p)
        if self._excludes and uniform(p.seed, index, _XTC_DRAW) <= p.xtc_probability:
            first = filters.excluded_top(values, p.xtc_threshold)
            ids, values = ids[first:], values[first:]
        if p.temperature <= 0.0:
            return int(ids[0])
        scaled = values - values[0]
        scaled /= p.temperature
        u = uniform(p.seed, index)
        if self._adaptive is not None:
            return self._adaptive.draw(ids[: values.size], scaled, u)
        return int(ids[feedback.pick(np.exp(scaled, out=scaled), u)])

    def _candidates(self, row: Row) -> tuple[Order, Values]:
        """Ids and logits that the filters up to top-p leave; there may be more ids than logits,
        and fewer of both than top-p leaves, but none that min-p would leave too."""
        p = self._p
        limited = 0 < p.top_k < row.size
        if self._chained:
            return self._chain(row, limited)
        if not limited:
            return _all(row, p)
        ids = top(row, p.top_k)
        return ids, filters.top_p(row[ids].astype(np.float64), p.top_p)

    def _chain(self, row: Row, limited: bool) -> tuple[Order, Values]:
        """As `_candidates`, with what comes before top-p and needs all of its candidates."""
        p = self._p
        bound = filters.sigma_bound(row, p.top_n_sigma) if p.top_n_sigma > 0.0 else -math.inf
        ids: Order
        if limited:
            ids = top(row, p.top_k)
            ids = ids[row[ids] >= bound]
            values = row[ids].astype(np.float64)
        else:
            ids = ByValue(row, bound)
            values = ids.values
        if p.typical_p < 1.0:
            kept = np.flatnonzero(filters.typical(values, p.typical_p))
            ids, values = ids[kept], values[kept]
        return ids, filters.top_p(values, p.top_p)


def _bias(biases: dict[int, float], banned: Iterable[int]) -> tuple[Ids, Row] | None:
    values = dict(biases)
    values.update((token, -math.inf) for token in banned)
    if not values:
        return None
    ids = np.fromiter(values.keys(), np.intp, len(values))
    return ids, np.fromiter(values.values(), np.float32, len(values))


def _all(row: Row, p: Sampling) -> tuple[Order, Values]:
    """The candidates that matter when top-k is off: all, or those that top-p and min-p leave."""
    largest = float(row.max())
    least = largest + math.log(p.min_p) if p.min_p > 0.0 else -math.inf
    if p.top_p >= 1.0:
        ids = ByValue(row, least)
        return ids, ids.values
    wanted = p.top_p * float(np.exp(row - np.float32(largest)).sum(dtype=np.float64))
    for k in (*(k for k in _TOP_P_TRIES if k >= wanted), row.size):  # none weighs more than 1
        bound = max(least, reached_by(row, k))
        ids = ByValue(row, bound)
        mass = ids.values - largest
        np.cumsum(np.exp(mass, out=mass), out=mass)
        if mass[-1] >= wanted or bound == least:
            break
    return ids, ids.values[: int(np.searchsorted(mass, wanted)) + 1]


def _with_logprobs(logits: Row, token: int, n: int) -> Drawn:
    largest = float(logits.max())
    scale = largest + math.log(float(np.exp(logits - np.float32(largest)).sum(dtype=np.float64)))
    best = top(logits, n) if n > 0 else np.empty(0, np.intp)
    most = tuple((int(id), float(logits[id]) - scale) for id in best)
    return Drawn(token, float(logits[token]) - scale, most)
