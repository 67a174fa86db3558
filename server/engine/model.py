"""What the step loop needs of a model, as values and one protocol.

`llama.Model` is the real one, a scripted one drives the tests. No policy is in here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float32]
"""One row per output in batch order; valid until the next call of the model."""

State = NDArray[np.uint8]
"""Cells of a sequence as bytes."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens of one sequence in a step. The last `outputs` of them give logits."""

    seq: int
    start: int  # position of the first token = number of tokens that the sequence holds
    tokens: list[int]
    outputs: int = 0


class Outcome(Enum):
    """How a decode went (`llama_decode` of llama.h)."""

    OK = auto()
    NO_ROOM = auto()  # no cells for the batch; nothing changed
    REFUSED = auto()  # one of the chunks is not valid; nothing changed
    FAILED = auto()  # the computation broke off; some of the chunks may be in the cells


@dataclass(frozen=True, slots=True)
class Decoded:
    outcome: Outcome
    logits: Logits
    seconds: float  # inside the library, its wait for the device included


class Model(Protocol):
    """Sequences over one pool of cells. One thread owns it."""

    can_cut: bool
    """Whether a sequence can be shortened and shared in part (not so for recurrent models)."""

    ordered: bool
    """Whether cells are only ever filled upwards, so that each sequence lies in its own order:
    attention adds up in the order of the cells, and another order gives other last bits."""

    @property
    def top(self) -> int:
        """Where an ordered model fills on. Cells freed below it are lost until `clear`."""

    def decode(self, chunks: Sequence[Chunk], threads: int, *, exact: bool = False) -> Decoded:
        """Computes one step of all chunks at once. `exact`: with the same bits as in any other
        step that is small enough."""

    def length(self, seq: int) -> int:
        """Tokens in the sequence, asked of the library itself."""

    def cut(self, seq: int, length: int) -> bool:
        """Shortens the sequence to `length` tokens; 0 empties it, which always works."""

    def copy(self, source: int, target: int, length: int) -> None:
        """Gives the empty `target` the first `length` tokens of `source`, sharing cells."""

    def reaches(self, seq: int, length: int) -> bool:
        """Whether the sequence can be gone on with from there (a sliding window may be past)."""

    def clear(self) -> None:
        """Empties all sequences."""

    def save(self, seq: int, start: int, end: int | None = None) -> State | None:
        """The cells from position `start` on, or up to `end`, as bytes; None when that is not
        possible."""

    def restore(self, seq: int, state: State) -> bool:
        """Puts saved cells after those that the sequence holds; on False nothing changed."""
