"""The largest values of a row of logits, in order. Pure; no value may be NaN.

The order is everywhere the same: the largest first, equal ones by id.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.float32]
Ids = NDArray[np.intp]
Values = NDArray[np.float64]

_LANES_MAX = 128  # values whose maximum is taken at once when the largest few are looked for
_FEW = 1024  # up to so many values numpy's stable sort is the fastest


def top(row: Row, k: int) -> Ids:
    """Ids of the k largest.

    Of the maxima of many small groups the k-th largest is a bound that at least k values reach,
    and few more do: two passes over the row and a short sort instead of a partition of it all.
    Groups are strided (every n-th value), which numpy reduces fastest.
    """
    lanes = min(_LANES_MAX, row.size // (8 * k))
    if lanes < 2:
        return all_of(row)[:k]
    groups = row.size // lanes
    maxima = row[: lanes * groups].reshape(lanes, groups).max(axis=0)
    bound = np.partition(maxima, groups - k)[groups - k]
    if bound == -math.inf:  # fewer than k groups have a token that may be drawn
        return all_of(row)[:k]
    return at_least(row, float(bound))[:k]


def all_of(row: Row) -> Ids:
    """All ids."""
    return ordered(row, np.arange(row.size))


def at_least(row: Row, bound: float) -> Ids:
    """Ids of the values that reach the bound."""
    return ordered(row, np.flatnonzero(row >= bound))


def ordered(row: Row, ids: Ids) -> Ids:
    """The ids, which must ascend, in order."""
    values = row[ids]
    if ids.size <= _FEW:
        return ids[np.argsort(-values, kind="stable")]
    # numpy's stable argsort is forty times slower than its sort of integers: pack value and id
    bits = values.view(np.int32).astype(np.int64)
    comparable = np.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    packed = np.sort((-comparable << 32) | ids)
    return (packed & 0xFFFFFFFF).astype(np.intp)
