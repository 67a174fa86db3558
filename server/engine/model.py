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

    def decode(self, chunks: Sequence[Chunk], threads: int) -> Decoded:
        """Computes one step of all chunks at once."""

    def length(self, seq: int) -> int:
        """Tokens in the sequence, asked of the library itself."""

    def cut(self, seq: int, length: int) -> bool:
        """Shortens the sequence to `length` tokens; 0 empties it, which always works."""

    def copy(self, source: int, target: int, length: int) -> None:
        """Gives the empty sequence `target` the first `length` tokens of `source`, sharing cells."""

    def save(self, seq: int, start: int) -> State | None:
        """The cells from position `start` on as bytes; None when that is not possible."""

    def restore(self, seq: int, state: State) -> bool:
        """Puts saved cells after those that the sequence holds; on False nothing changed."""
