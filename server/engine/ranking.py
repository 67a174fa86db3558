"""The largest values of a row of logits, in order. Pure; no value may be NaN.

The order is everywhere the same: the largest first, equal ones by id.
"""

from __future__ import annotations

import math
from typing import overload

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.float32]
Ids = NDArray[np.intp]
Values = NDArray[np.float64]

_LANES_MAX = 128  # values whose maximum is taken at once when the largest few are looked for
_FEW = 1024  # up to so many values numpy's stable sort is the fastest


def top(row: Row, k: int) -> Ids:
    """Ids of the k largest."""
    bound = reached_by(row, k)
    return (all_of(row) if bound == -math.inf else at_least(row, bound))[:k]


def reached_by(row: Row, k: int) -> float:
    """A bound that at least k values reach, and few more do; minus infinity where none is found.

    Of the maxima of many small groups the k-th largest is one: two passes over the row and a
    short sort instead of a partition of it all. Groups are strided (every n-th value), which
    numpy reduces fastest.
    """
    lanes = min(_LANES_MAX, row.size // (8 * k))
    if lanes < 2:
        return -math.inf
    groups = row.size // lanes
    maxima = row[: lanes * groups].reshape(lanes, groups).max(axis=0)
    return float(np.partition(maxima, groups - k)[groups - k])


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


class ByValue:
    """The values that reach a bound in order, and whose they are, found for the one that is asked
    for: a sort of values alone takes a tenth of the time of `ordered`."""

    def __init__(self, row: Row, bound: float = -math.inf) -> None:
        self._row = row
        reaching = row >= bound
        n = int(np.count_nonzero(reaching))
        few = row[reaching] if n < row.size // 2 else row  # picking most of them out is slow
        self._sorted = np.sort(few)[::-1][:n]
        self._places: range | Ids = range(self._sorted.size)
        self.values: Values = self._sorted.astype(np.float64)

    @overload
    def __getitem__(self, at: int) -> int: ...

    @overload
    def __getitem__(self, at: slice | Ids) -> ByValue: ...

    def __getitem__(self, at: int | slice | Ids) -> int | ByValue:
        """The id of one; or some of them, by their places."""
        if isinstance(at, int):
            return self._id(int(self._places[at]))
        part = object.__new__(ByValue)
        part._row, part._sorted = self._row, self._sorted
        part._places = self._places[at] if isinstance(at, slice) else np.array(self._places)[at]
        part.values = self.values[at]
        return part

    def _id(self, place: int) -> int:
        value = self._sorted[place]
        larger = int(np.count_nonzero(self._row > value))
        return int(np.flatnonzero(self._row == value)[place - larger])


Order = Ids | ByValue
"""Ids in order; both are asked for one, or for some of them, by place."""
