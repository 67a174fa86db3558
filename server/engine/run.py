"""A run as scheduler and memory see it: its tokens, its rank, and where its cells are. A value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hobnob.server.engine.cells import Ids
from hobnob.server.engine.model import State
from hobnob.server.engine.snapshots import Link


@dataclass(frozen=True, slots=True)
class Saved:
    """A stretch of the run's cells that is in RAM: from when it was put aside, or a snapshot."""

    start: int
    end: int
    exact: bool
    state: State
    beyond: int = 0
    """So many tokens more are in the state, which are not the run's."""
    link: Link | None = None
    """To the snapshot that it is from."""


@dataclass(slots=True, eq=False)
class Run:
    """Only the scheduler and the memory change one, and the step loop appends its tokens."""

    id: str
    tokens: list[int]
    """Prompt, ids emitted in earlier lives, ids drawn in this one."""
    n_prompt: int
    owner: str = "local"
    group: str = ""
    """Its conversation; without one nothing of it goes to disk."""
    interactive: bool = True
    exact: bool = False
    warm: bool = False
    """Nobody waits for it: it ends with its prompt, or when anybody else comes."""
    arrived: float = 0.0
    waiting_since: float | None = None
    """When it was queued; None: it is not."""
    waited: float = 0.0
    """Seconds in the queue before that."""
    seq: int | None = None
    """Its sequence, also while it is put aside and some of its cells are left."""
    saved: list[Saved] = field(default_factory=list)
    """Cut-off stretches, the one that comes next last."""
    links: list[Link] = field(default_factory=list)
    """Snapshots that are fetched for it while it waits."""
    fetch_until: float | None = None
    """When it stops waiting for them."""
    cached: int = 0
    """Tokens of the prompt that were resident when it was first admitted, or put back then."""
    admitted: bool = False
    """Whether it has ever been in a sequence."""
    put_aside: int = 0
    """How often."""
    suspect: bool = False
    """Whether its cells were lost in a broken step, which it or a neighbour broke, and it has not
    come as far again: until then it is computed alone."""
    turn: int = 0
    """Its place among all the parts of steps so far, when it was last a part of one."""
    _ids: Ids = field(default_factory=lambda: np.empty(0, np.int32))

    def ids(self) -> Ids:
        """The tokens as an array."""
        if self._ids.size != len(self.tokens):
            self._ids = np.array(self.tokens, np.int32)
        return self._ids

    def take(self, drawn: Sequence[int]) -> None:
        self.tokens.extend(drawn)
