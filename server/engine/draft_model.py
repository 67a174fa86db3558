"""A small model that drafts for a large one of the same vocabulary. The step thread's.

It keeps a sequence for each run that it drafts for, in step with the run's tokens: rejected ones
are cut, missing ones read in bounded chunks. Its cells are bounded too; the sequences that were
not used for longest are given up, those of runs that are over stay until then, for what the same
owner asks next. What it drafts is only ever compared with what the large model says.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hobnob.server.engine.drafter import Drafter, Trust
from hobnob.server.engine.model import Chunk, Decoded, Model, Outcome
from hobnob.server.engine.pacing import Pace
from hobnob.server.engine.sources import Source
from hobnob.server.engine.threads import Threads

NEAR_TOKENS = 4
"""Not read so far: they are computed with the first draft."""
READ_TOKENS = 256
"""Read at once at the most; not fewer than the next, if so many are missing."""
READ_TOKENS_MIN = 16
MEASURED_ROWS = 64
MEASURED_STEPS = 3

_PRIOR = 0.6  # acceptance that is expected of a draft model

log = logging.getLogger("hobnob.engine")


@dataclass(slots=True, eq=False)
class _Sequence:
    """Of the draft model's context."""

    seq: int
    tokens: list[int] = field(default_factory=list)  # that its cells hold
    agreed: int = 0  # of these, known to be the run's
    owner: str = ""
    group: str = ""
    drafter: Drafter | None = None  # None: the run is over
    used: int = 0


class DraftModel(Source):
    def __init__(
        self,
        model: Model,
        *,
        n_seqs: int,
        n_cells: int,
        window: int,
        rows: int,
        eog: Sequence[int],
        threads: Threads,
        clock: Callable[[], float],
    ) -> None:
        """`window`: tokens of one sequence at the most; `rows`: of one decode."""
        self._model = model
        self._n_cells = n_cells
        self._window = window
        self._rows = rows
        self._eog = frozenset(eog)
        self._threads = threads
        self._clock = clock
        self._pace = Pace(rows)
        self._sequences = [_Sequence(seq) for seq in range(n_seqs)]
        self._of: dict[Drafter, _Sequence] = {}
        self._trust = Trust(_PRIOR)
        self._trusts: dict[Drafter, Trust] = {}
        self._uses = 0
        self._broken = False

    def measure(self) -> None:
        """What its steps cost, before anybody waits for one. Empties it."""
        rows = min(MEASURED_ROWS, self._rows, self._window // 2, self._n_cells // 2)
        for _ in range(2):  # the first also pays for what is made once
            self._model.clear()
            began = self._clock()
            self._decode([Chunk(0, 0, [1] * rows)])
            self._pace.observe(0, rows, self._clock() - began)
        for n in range(MEASURED_STEPS):
            began = self._clock()
            self._decode([Chunk(0, rows + n, [1], 1)])
            self._pace.observe(1, 0, self._clock() - began)
        self._model.clear()

    # ---- Source -------------------------------------------------------------------------------

    def chance(self, drafter: Drafter) -> float:
        if self._broken or len(drafter.tokens) >= self._window:
            return 0.0
        return float(self._trust_in(drafter))

    def seconds(self, drafters: int, tokens: int) -> float:
        one = self._pace.decode_seconds(drafters)
        return float("inf") if one is None else one * tokens

    def follow(self, drafter: Drafter, seconds: float) -> bool:
        sequence = self._sequence(drafter)
        if sequence is None:
            return False
        missing = len(drafter.tokens) - len(sequence.tokens)
        if missing <= NEAR_TOKENS:
            return True
        n = min(missing - 1, self._readable(seconds))
        if n < min(missing - 1, READ_TOKENS_MIN) or not self._make_room(n, [sequence]):
            return False
        began = self._clock()
        start = len(sequence.tokens)
        part = list(drafter.tokens[start : start + n])
        if self._decode([Chunk(sequence.seq, start, part)]) is not None:
            sequence.tokens += part
            sequence.agreed = len(sequence.tokens)
        took = self._clock() - began
        self.spent_s += took
        self._pace.observe(0, n, took)
        return len(drafter.tokens) - len(sequence.tokens) <= NEAR_TOKENS and not self._broken

    def draft(self, drafters: Sequence[Drafter], most: int) -> list[list[int]]:
        began = self._clock()
        drafts: dict[Drafter, list[int]] = {drafter: [] for drafter in drafters}
        going = self._first_chunks(drafters, most)
        for n in range(most):
            if not going:
                break
            plain = all(len(chunk.tokens) == 1 for _, chunk in going)
            step = self._clock()
            decoded = self._decode([chunk for _, chunk in going])
            if decoded is None:
                break
            if plain:
                self._pace.observe(len(going), 0, self._clock() - step)
            following = []
            for (drafter, chunk), row in zip(going, decoded.logits, strict=True):
                sequence = self._of[drafter]
                sequence.tokens += chunk.tokens
                token = int(row.argmax())
                drafts[drafter].append(token)
                room = len(sequence.tokens) < self._window
                if token not in self._eog and room and n + 1 < most:
                    following.append(
                        (drafter, Chunk(sequence.seq, len(sequence.tokens), [token], 1))
                    )
            going = following
        self.spent_s += self._clock() - began
        return [drafts[drafter] for drafter in drafters]

    def learn(self, drafter: Drafter, drafted: int, accepted: int) -> None:
        known = self._trusts.get(drafter)  # none where the run has ended with this step
        for trust in [self._trust] if known is None else [self._trust, known]:
            for _ in range(accepted):
                trust.see(True)
            if accepted < drafted:
                trust.see(False)

    def left(self, drafter: Drafter) -> None:
        self._trusts.pop(drafter, None)
        sequence = self._of.pop(drafter, None)
        if sequence is not None:
            self._cut(sequence, self._agreed(sequence, drafter))
            sequence.drafter = None

    def doubt(self) -> None:
        self._trust = Trust((float(self._trust) + _PRIOR) / 2)

    def forget(self, group: str) -> None:
        for sequence in self._sequences:
            if sequence.group == group:
                self._give_up(sequence)

    # ---- sequences ----------------------------------------------------------------------------

    def _trust_in(self, drafter: Drafter) -> Trust:
        return self._trusts.setdefault(drafter, Trust(float(self._trust)))

    def _readable(self, seconds: float) -> int:
        per_row = self._pace.seconds_per_prefill_row
        if per_row is None:
            return 0
        return int(min(READ_TOKENS, self._rows, seconds / per_row))

    def _sequence(self, drafter: Drafter) -> _Sequence | None:
        """The run's, with nothing in it that the run does not say."""
        sequence = self._of.get(drafter)
        if sequence is None:
            sequence = self._take(drafter)
            if sequence is None:
                return None
        self._uses += 1
        sequence.used = self._uses
        self._cut(sequence, self._agreed(sequence, drafter))
        return sequence

    def _agreed(self, sequence: _Sequence, drafter: Drafter) -> int:
        """How many of its tokens are the run's; one is always left to be computed."""
        most = min(len(sequence.tokens), len(drafter.tokens) - 1)
        at = min(sequence.agreed, most)
        while at < most and sequence.tokens[at] == drafter.tokens[at]:
            at += 1
        return at

    def _cut(self, sequence: _Sequence, length: int) -> None:
        if length < len(sequence.tokens):
            self._model.cut(sequence.seq, length)
            del sequence.tokens[length:]
        sequence.agreed = length

    def _take(self, drafter: Drafter) -> _Sequence | None:
        """One for a run that has none: the owner's that begins most alike, else an empty one,
        else the one that was not used for longest."""
        idle = [one for one in self._sequences if one.drafter is None]
        for one in idle:
            one.agreed = 0
        alike = [one for one in idle if one.owner == drafter.owner and one.tokens]
        best = max(alike, key=lambda one: self._agreed(one, drafter), default=None)
        if best is None or self._agreed(best, drafter) < READ_TOKENS_MIN:
            best = min(idle or self._sequences, key=lambda one: (len(one.tokens) > 0, one.used))
            self._give_up(best)
        best.drafter, best.owner, best.group = drafter, drafter.owner, drafter.group
        self._of[drafter] = best
        return best

    def _give_up(self, sequence: _Sequence) -> None:
        if sequence.drafter is not None:
            self._of.pop(sequence.drafter, None)
        sequence.drafter = None
        self._cut(sequence, 0)

    def _make_room(self, rows: int, kept: Sequence[_Sequence]) -> bool:
        """Cells for so many rows more, if need be others'."""
        while sum(len(one.tokens) for one in self._sequences) + rows > self._n_cells:
            others = [one for one in self._sequences if one.tokens and one not in kept]
            if not others:
                return False
            self._give_up(min(others, key=lambda one: one.used))
        return True

    def _first_chunks(self, drafters: Sequence[Drafter], most: int) -> list[tuple[Drafter, Chunk]]:
        """What was said since, for as many of the runs as there are rows and cells for."""
        chunks: list[tuple[Drafter, Chunk]] = []
        rows, kept = 0, list[_Sequence]()
        for drafter in drafters:
            sequence = self._of.get(drafter)
            if sequence is None:
                continue
            start = len(sequence.tokens)
            missing = list(drafter.tokens[start:])
            if rows + len(missing) > self._rows or len(drafter.tokens) > self._window:
                continue
            need = rows + len(missing) + most * (len(kept) + 1)
            if not self._make_room(need, [*kept, sequence]):
                continue
            rows += len(missing)
            kept.append(sequence)
            chunks.append((drafter, Chunk(sequence.seq, start, missing, 1)))
        return chunks

    def _decode(self, chunks: Sequence[Chunk]) -> Decoded | None:
        """None where it failed: then nothing is kept, and after a fault nothing drafted again."""
        decoded = self._model.decode(chunks, self._threads.count)
        if decoded.outcome is Outcome.OK:
            return decoded
        if decoded.outcome is not Outcome.NO_ROOM:
            self._broken = True
            log.warning("the draft model is not used any more: it could not compute a step")
        self._model.clear()
        for sequence in self._sequences:
            sequence.tokens.clear()
            sequence.agreed = 0
        return None
