"""Samplers that steer by what they drew before: mirostat 1 and 2, adaptive-p.

Their state depends on the logits of every token before, which are not kept: a reply that is taken
up by a new engine begins again with the state of a first token. So they are outside the promise
that the same seed gives the same reply, and such replies say `exact: false`. A run that is only
put aside keeps its state. Formulas: llama.cpp's src/llama-sampler.cpp.
"""

from __future__ import annotations

import math

import numpy as np

from hobnob.server.engine.filters import probabilities
from hobnob.server.engine.protocol import Sampling
from hobnob.server.engine.ranking import Order, Row, Values, at_least, top

_ESTIMATE_TOKENS = 100  # most likely ones from which mirostat 1 estimates the distribution's shape
_PEAK, _SHARPNESS, _WIDTH = 5.0, 10.0, 0.3  # of adaptive-p's curve


def pick(weights: Values, u: float) -> int:
    """The place that u, in [0, 1), falls on when each place is as wide as its weight."""
    total = np.cumsum(weights)
    at = int(np.searchsorted(total, u * total[-1], side="right"))
    return min(at, weights.size - 1)


class Mirostat:
    """Mirostat (Basu et al. 2021): keeps the mean surprise near tau bits. It takes the place of
    every other filter: only bias and temperature come before it.

    Version 1 estimates a Zipf exponent and takes as many candidates as give the wanted surprise;
    version 2 leaves out candidates with a surprise over mu.
    """

    def __init__(self, version: int, tau: float, eta: float) -> None:
        self._version = version
        self._tau = tau
        self._eta = eta
        self.mu = 2.0 * tau
        self._seen: tuple[int, float] | None = None  # token, its surprise in bits

    def draw(self, row: Row, temperature: float, u: float) -> int:
        """Changes nothing that a later draw depends on: `accept` does."""
        largest = float(row.max())
        if temperature <= 0.0:
            ids = top(row, 1)
        elif self._version == 1:
            ids = top(row, self._count(row, temperature))
        else:
            scaled = (row - np.float32(largest)) / np.float32(temperature)
            log_total = math.log(float(np.exp(scaled).sum(dtype=np.float64)))
            bound = largest + temperature * (log_total - self.mu * math.log(2.0))
            ids = at_least(row, bound) if bound <= largest else top(row, 1)
        values = row[ids].astype(np.float64)
        chance = probabilities(values / temperature if temperature > 0.0 else values)
        at = pick(chance, u)
        token = int(ids[at])
        self._seen = token, -math.log2(chance[at])
        return token

    def accept(self, token: int) -> None:
        if self._seen is not None and self._seen[0] == token:
            self.mu -= self._eta * (self._seen[1] - self._tau)
        self._seen = None

    def _count(self, row: Row, temperature: float) -> int:
        """How many candidates give a surprise of mu, if likelihood falls with rank by a power."""
        best = row[top(row, min(_ESTIMATE_TOKENS, row.size))].astype(np.float64) / temperature
        best = best[best > -math.inf]
        if best.size < 2:
            return 1
        ranks = np.arange(1, best.size)
        steps = np.log((ranks + 1) / ranks)
        exponent = float((steps * (best[:-1] - best[1:])).sum() / (steps * steps).sum())
        if exponent <= 0.0:
            return row.size
        return _candidates(exponent, self.mu, row.size)


def _candidates(exponent: float, mu: float, n_vocab: int) -> int:
    """k = (eps * 2^mu / (1 - n_vocab^-eps))^(1/exponent), eps = exponent - 1; by logarithms, since
    mu has no bound."""
    eps, log_n = exponent - 1.0, math.log(n_vocab)
    near_one = abs(eps) < 1e-6
    ratio = 1.0 / log_n if near_one else eps / -math.expm1(-eps * log_n)
    log_k = (math.log(ratio) + mu * math.log(2.0)) / exponent
    return n_vocab if log_k >= log_n else max(1, int(math.exp(log_k)))


class AdaptiveP:
    """Adaptive-p (llama.cpp pull request 17927): prefers candidates whose probability is near a
    target, and moves the target so that the mean of what was drawn meets it."""

    def __init__(self, target: float, decay: float) -> None:
        self._target = target
        self._decay = decay
        self.weighted_sum = target / (1.0 - decay)
        self.total_weight = 1.0 / (1.0 - decay)
        self._seen: tuple[int, float] | None = None  # token, its probability before the change

    def draw(self, ids: Order, values: Values, u: float) -> int:
        """Of candidates that the filters left, temperature applied. Changes nothing that a later
        draw depends on: `accept` does."""
        original = probabilities(values)
        aim = min(1.0, max(0.0, 2.0 * self._target - self.weighted_sum / self.total_weight))
        distance = np.abs(original - aim) / _WIDTH
        changed = _PEAK - _SHARPNESS * distance * distance / (1.0 + distance)
        weights = np.exp(changed - changed.max())
        weights[values == -math.inf] = 0.0
        at = pick(weights, u)
        token = int(ids[at])
        self._seen = token, float(original[at])
        return token

    def accept(self, token: int) -> None:
        if self._seen is not None and self._seen[0] == token:
            self.weighted_sum = self._seen[1] + self._decay * self.weighted_sum
            self.total_weight = 1.0 + self._decay * self.total_weight
        self._seen = None


def mirostat_of(p: Sampling) -> Mirostat | None:
    return Mirostat(p.mirostat, p.mirostat_tau, p.mirostat_eta) if p.mirostat else None


def adaptive_of(p: Sampling) -> AdaptiveP | None:
    wanted = p.adaptive_target >= 0.0 and not p.mirostat
    return AdaptiveP(p.adaptive_target, p.adaptive_decay) if wanted else None
