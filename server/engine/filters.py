"""Which candidates a draw may still take. Pure.

Candidates are logits as float64, the largest first; each filter answers with those that it leaves
or with how to find them, and leaves at least one. The formulas are those of the samplers of the
same names in llama.cpp's src/llama-sampler.cpp.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from hobnob.server.engine.ranking import Row, Values

XTC_THRESHOLD_MAX = 0.5
"""Above it at most one candidate can reach the threshold, so nothing is ever excluded."""


def probabilities(values: Values) -> Values:
    weights: Values = np.exp(values - values[0])
    weights /= weights.sum()
    return weights


def sigma_bound(row: Row, n: float) -> float:
    """Top-n-sigma (Tang et al. 2024, "Top-nσ: Not All Logits Are You Need"): the logit that a
    candidate must reach: the largest minus n standard deviations of all that may be drawn."""
    finite = row[row > -math.inf]
    return float(finite.max()) - n * float(finite.std(dtype=np.float64))


def typical(values: Values, p: float) -> NDArray[np.bool_]:
    """Locally typical sampling (Meister et al. 2022): marks the candidates whose surprise is
    nearest to the expected one, as few as together are likelier than p."""
    chance = probabilities(values)
    possible = chance > 0
    surprise = np.full(values.size, math.inf)
    np.negative(np.log(chance, where=possible, out=surprise), where=possible, out=surprise)
    expected = float((chance[possible] * surprise[possible]).sum())
    order = np.argsort(np.abs(surprise - expected), kind="stable")
    enough = int(np.searchsorted(np.cumsum(chance[order]), p, side="right")) + 1
    kept = np.zeros(values.size, np.bool_)
    kept[order[:enough]] = True
    return kept & possible


def top_p(values: Values, p: float) -> Values:
    """Nucleus sampling (Holtzman et al. 2019): the fewest of the largest that reach p."""
    if p >= 1.0:
        return values
    mass = np.cumsum(np.exp(values - values[0]))
    return values[: int(np.searchsorted(mass, p * mass[-1])) + 1]


def min_p(values: Values, p: float) -> Values:
    """Min-p (Nguyen et al. 2024): those at least p times as likely as the first."""
    if p <= 0.0:
        return values
    least = values[0] + math.log(p)
    if values[-1] >= least:
        return values
    keep = int(np.searchsorted(-values, -least, side="right"))
    return values[: max(1, keep)]


def excluded_top(values: Values, threshold: float) -> int:
    """Exclude top choices, XTC (p-e-w, text-generation-webui pull request 6335): how many of the
    first to leave out: all that reach the threshold but the least likely of them."""
    if threshold > XTC_THRESHOLD_MAX:
        return 0
    return max(0, int((probabilities(values) >= threshold).sum()) - 1)
