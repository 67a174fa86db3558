"""Runs in and out of the cells: accounting and model changed in one move, so that they agree.

Owns the `Cells`, the model's sequences and the saved states of runs that were put aside. It
promises that a run's sequence always holds a prefix of the run's tokens. It does not decide who
runs: the scheduler does. The step thread's; pure but for the model that it is given.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hobnob.server.engine.cells import Cells, Cut, Holding, Ids, Match, common_length
from hobnob.server.engine.keeping import Keeper
from hobnob.server.engine.model import Model, State
from hobnob.server.engine.pacing import Pace
from hobnob.server.engine.protocol import Stats
from hobnob.server.engine.restoring import Restoring
from hobnob.server.engine.run import Run, Saved
from hobnob.server.engine.snapshots import Snapshots

PARKED_TRIM_CELLS = 256
"""A run that was put aside loses its cells in stretches of at least this many."""

COMPACTION_SHARE = 8
"""Before all cells are moved, one in so many is made free, so that it lasts for a while."""

IDLE_COMPACTION_SHARE = 4
"""With nobody running they are moved when one in so many is lost."""

STRETCHES_A_STEP = 4
"""Put back in a step that also decodes: each is a copy of hundreds of cells."""

WORTH_WAITING_CELLS = 8
"""A run waits for another that computes the same prefix when that saves at least this many."""


@dataclass(slots=True)
class Counts:
    """What happened since the start."""

    evicted_cells: int = 0
    saved: int = 0
    restored: int = 0
    restored_tokens: int = 0  # from snapshots
    moved_cells: int = 0  # by compaction
    recomputed_cells: int = 0  # of put-aside runs, where saving was not possible


class Memory:
    """There must be more sequence ids than runs that are ever live at once."""

    def __init__(
        self,
        model: Model,
        cells: Cells,
        *,
        cached_max: int,
        saved_bytes_max: int,
        snapshots: Snapshots | None = None,
        restoring: Restoring | None = None,
        spare_memory: Callable[[], int] = lambda: sys.maxsize,
    ) -> None:
        """`saved_bytes_max`: of states in RAM, snapshots included; these give way first.
        `restoring`: what it costs to put a snapshot back; None: nothing. `spare_memory`: bytes
        that may be taken for the moment in which all cells are moved."""
        self.cells = cells
        self.counts = Counts()
        self.saved_bytes = 0
        self._model = model
        self._cached_max = cached_max
        self._saved_bytes_max = saved_bytes_max
        self._spare_memory = spare_memory
        self.snapshots = snapshots or Snapshots(b"", ram_max=0)
        self._keeper = Keeper(model, cells, self.snapshots, restoring or Restoring(Pace(1)))
        self._bytes_per_cell = 0
        self._parked: list[Run] = []

    # ---- reading ------------------------------------------------------------------------------

    @property
    def fillable(self) -> int:
        """Cells that can be filled without freeing or moving any."""
        lost = self._model.top if self._model.ordered else self.cells.used
        return self.cells.total - lost

    def length(self, run: Run) -> int:
        """Leading tokens of the run that are in its cells."""
        return 0 if run.seq is None else self.cells.length(run.seq)

    def room(self) -> int:
        """Cells that `make_room` could free."""
        return self.cells.free + self.cells.cached + self._parked_cells()

    def need(self, run: Run) -> int:
        """Cells of `room` that admitting the run and computing all its tokens takes."""
        match = self._best(run)
        if match is None:
            return len(run.tokens)
        missing = len(run.tokens) - match.length
        if match.seq == run.seq:
            return missing + self.cells.private(run.seq)
        return missing + self.cells.pinned_by(match)

    def resident(self, owner: str, tokens: Sequence[int], *, exact: bool) -> int:
        """Leading tokens that a run with these would find in the cells or in the snapshots."""
        ids = np.array(tokens, np.int32)
        match = self._match(owner, ids, exact=exact)
        return self._keeper.reach(owner, ids, match.length if match else 0, exact=exact)

    def stats(self) -> Stats:
        """What concerns cells and saved states."""
        cells, counts, kept = self.cells, self.counts, self.snapshots
        return Stats(
            cells_used=cells.used,
            cells_cached=cells.cached,
            cells_total=cells.total,
            evicted_cells=counts.evicted_cells,
            saved=counts.saved,
            restored=counts.restored,
            moved_cells=counts.moved_cells,
            saved_bytes=self.saved_bytes,
            snapshot_ram_bytes=kept.ram_bytes,
            snapshot_disk_bytes=kept.disk_bytes,
            snapshot_written_bytes=kept.written_bytes,
            restored_tokens=counts.restored_tokens,
            snapshot_ram_max=kept.ram_budget,
            snapshot_disk_max=kept.disk_budget,
        )

    def prefix_on_the_way(self, run: Run, others: Iterable[Run]) -> bool:
        """Whether one of the others is about to compute much of this run's prefix anyway."""
        match = self._best(run)
        resident = match.length if match else 0
        for other in others:
            if other.owner != run.owner or (run.exact and not other.exact):
                continue
            shared = min(common_length(other.ids(), run.ids()), len(run.tokens) - 1)
            if self.length(other) < shared and shared - resident >= WORTH_WAITING_CELLS:
                return self.cells.can_cut
        return False

    def check_integrity(self, runs: Sequence[Run]) -> None:
        """Raises AssertionError unless cells, model, snapshots and these, all the live runs, add
        up: so what belongs to nobody any more is found as well."""
        self.cells.check_integrity()
        self.snapshots.check_integrity()
        for seq, length in self.cells.lengths().items():
            assert self._model.length(seq) == length, "model and count differ"
        held = sorted(run.seq for run in runs if run.seq is not None)
        bound = {seq for seq in held if self.cells.holding(seq) is not Holding.CACHED}
        assert len(bound) == len(held), "two runs share a sequence, or one has a finished run's"
        assert held == self.cells.held(), "cells are held for a run that there is not"
        for run in runs:
            known = self.cells.tokens(run.seq).tolist() if run.seq is not None else []
            assert known == run.tokens[: len(known)], "a sequence holds another run's tokens"
            parked = run.seq is not None and self.cells.holding(run.seq) is Holding.PARKED
            assert parked == (run in self._parked), "a run is put aside only by half"
        saved = [one for run in runs for one in run.saved]
        ours = sum(one.state.size for one in saved if one.link is None)
        assert self.saved_bytes == ours, "saved states are miscounted"
        links = [link for run in runs for link in run.links]
        links += [one.link for one in saved if one.link is not None]
        self.snapshots.check_pins(links)

    # ---- runs ---------------------------------------------------------------------------------

    def fetched(self, run: Run, now: float) -> bool:
        """Whether the run can be attached; False while files are being read for it."""
        match = self._best(run)
        return self._keeper.fetched(run, match.length if match else 0, now)

    def attach(self, run: Run) -> None:
        """Gives the run a live sequence with the longest prefix there is, and the snapshots that
        go further."""
        self._attach(run)
        self._keeper.take(run, self.length(run))

    def _attach(self, run: Run) -> None:
        match = self._best(run)
        if run.seq is not None:
            if match is None or match.seq == run.seq:
                self._unpark(run)
                self.cells.hold(run.seq, Holding.LIVE)
                return
            self._forget_cells(run)
        if match is None:
            run.seq = self._new(run.owner)
        elif self.cells.holding(match.seq) is Holding.CACHED and (
            match.length == self.cells.length(match.seq)
        ):
            self._keeper.released(match.seq)
            self.cells.hold(match.seq, Holding.LIVE)
            run.seq = match.seq
        else:
            run.seq = self._forked(match)

    def continue_saved(self, run: Run, reserved: int) -> None:
        """Puts saved stretches back that the sequence has reached, where `reserved` cells stay
        free; a stretch for which there is no room is forgotten, to be computed again."""
        assert run.seq is not None
        most = STRETCHES_A_STEP if reserved else len(run.saved)
        while run.saved and most:
            saved, length = run.saved[-1], self.cells.length(run.seq)
            if length < saved.start:
                return
            run.saved.pop()
            room = saved.end - saved.start + saved.beyond + reserved
            if length < saved.end and self.make_room(room):
                most -= 1
                self._restore(run, saved, length)
            self._put_back(saved)

    def computed(self, run: Run, n: int, *, exact: bool, rejected: int = 0) -> None:
        """The model has computed the run's next `n` tokens, and drafted ones that are not its."""
        assert run.seq is not None
        at = self.cells.length(run.seq)
        self.cells.append(run.seq, run.tokens[at : at + n], exact=exact)
        if rejected:
            self._model.cut(run.seq, at + n)

    def settle(self, run: Run) -> bool:
        """After a step that broke off: makes the model's sequence as long as it is counted to
        be. False when some of it is lost."""
        assert run.seq is not None
        length = self.cells.length(run.seq)
        self._model.cut(run.seq, length)
        return self._model.length(run.seq) == length

    def park(self, run: Run) -> None:
        """Puts the run aside; its cells stay until others need them."""
        assert run.seq is not None
        self.cells.hold(run.seq, Holding.PARKED)
        self._parked.append(run)

    def keep(self, run: Run) -> None:
        """The run is over; its cells stay for whoever starts the same way."""
        self._drop_saved(run)
        self._unpark(run)
        if run.seq is None:
            return
        seq, run.seq = run.seq, None
        if not self.cells.length(seq) or self._keeper.is_forgotten(run.group):
            self._model.cut(seq, 0)
            self.cells.close(seq)
            return
        self.cells.hold(seq, Holding.CACHED)
        self._keeper.cached(seq, run.group)
        self._evict(self.cells.cached - self._cached_max)

    def drop(self, run: Run) -> None:
        """The run is over and nothing of its cells can be trusted."""
        self._drop_saved(run)
        if run.seq is not None:
            self._forget_cells(run)

    # ---- snapshots ----------------------------------------------------------------------------

    def begin_step(self) -> None:
        """Takes in what the disk has done; what a step may save begins anew."""
        self.snapshots.poll()
        self._keeper.begin_step()

    def save_due(self) -> bool:
        """Takes note of what the disk has done, and saves one stretch of a finished run; False
        when there is nothing to save now."""
        self.snapshots.poll()
        return self._keeper.save_due()

    def forget(self, group: str) -> None:
        """The conversation was deleted: nothing of it stays, here or on disk."""
        for seq in self._keeper.forget(group):
            self._keeper.released(seq)
            self._model.cut(seq, 0)
            self.cells.close(seq)

    def is_forgotten(self, group: str) -> bool:
        """Whether the conversation was deleted."""
        return self._keeper.is_forgotten(group)

    # ---- room ---------------------------------------------------------------------------------

    def make_room(self, cells: int) -> bool:
        """Until so many can be filled: frees cached cells, then those of put-aside runs, and
        moves the rest together where freed cells cannot be filled again."""
        if self.fillable >= cells:
            return True
        wanted = cells
        if self._model.ordered:  # moving all for a few cells would soon be due again
            wanted = max(cells, self.cells.total // COMPACTION_SHARE)
        self._evict(wanted - self.cells.free)
        for run in sorted(self._parked, key=lambda run: (run.interactive, -run.arrived)):
            if self.cells.free >= cells:
                break
            self._trim_parked(run, cells - self.cells.free)
        if self.fillable < cells <= self.cells.free:
            self._compact()
        return self.fillable >= cells

    def tidy(self) -> None:
        """With nothing else to do: moves the cells together if many are lost in between."""
        if self.cells.free - self.fillable > self.cells.total // IDLE_COMPACTION_SHARE:
            self._compact()

    def reclaim(self) -> bool:
        """The model found fewer cells than were counted: moves the cells together and, where that
        gains none, frees all in which nobody computes. False when no more can be filled."""
        before = self.fillable
        self._compact_if_lost()
        if self.fillable == before:
            self.evict_all()
            for run in self._parked[:]:
                self._trim_parked(run, self.cells.total)
            self._compact_if_lost()
        return self.fillable > before

    def evict_all(self) -> bool:
        """Frees all cached cells; False when there were none."""
        return self._evict(self.cells.cached)

    # ---- inside -------------------------------------------------------------------------------

    def _best(self, run: Run) -> Match | None:
        match = self._match(run.owner, run.ids(), exact=run.exact)
        if run.seq is None:
            return match
        own = self.cells.length(run.seq)
        usable = not run.exact or self.cells.exact(run.seq) == own
        if own and usable and own >= (match.length if match else 0):
            return Match(run.seq, own)
        return match

    def _match(self, owner: str, ids: Ids, *, exact: bool) -> Match | None:
        match = self.cells.match(owner, ids, exact=exact)
        if match and not self._model.reaches(match.seq, match.length):
            return None  # an honest full prefill
        return match

    def _new(self, owner: str) -> int:
        self._free_id()
        return self.cells.open(owner)

    def _forked(self, match: Match) -> int:
        holding = self.cells.holding(match.seq)
        self.cells.hold(match.seq, Holding.LIVE)  # not to be evicted for its own id
        self._free_id()
        self.cells.hold(match.seq, holding)
        seq = self.cells.fork(match.seq, match.length)
        self._model.copy(match.seq, seq, match.length)
        return seq

    def _free_id(self) -> None:
        """Makes an id free: a cached sequence's, else that of a run that was put aside."""
        if self.cells.ids_free:
            return
        cut = self.cells.evict_id(self._keeper.before_cut)
        if cut is not None:
            self._follow([cut])
            return
        run = min(self._parked, key=lambda run: (run.interactive, -run.arrived))
        self._trim_parked(run, self.cells.total)

    def _evict(self, cells: int) -> bool:
        if cells <= 0:
            return False
        before = self.cells.used
        self._follow(self.cells.evict(cells, self._keeper.before_cut))
        self.counts.evicted_cells += before - self.cells.used
        return self.cells.used < before

    def _compact_if_lost(self) -> None:
        if self.cells.free > self.fillable:
            self._compact()

    def _compact(self) -> None:
        """Moves all cells together, each sequence in its order and shared cells still shared.
        The states are in RAM meanwhile. What cannot be put back is computed again."""
        moves = self.cells.sharing()
        states = self._lifted(moves)
        self._model.clear()
        for (seq, base, shared), state in zip(moves, states, strict=True):
            there = min(shared, self.cells.length(base))
            if there:
                self._model.copy(base, seq, there)
            restored = there == shared and state is not None and self._model.restore(seq, state)
            if not restored:
                self.cells.cut(seq, there)
        self.counts.moved_cells += self.cells.used

    def _lifted(self, moves: list[tuple[int, int, int]]) -> list[State | None]:
        """What each sequence holds beside what it shares with its base, in RAM. None where that
        is nothing, or more than there is memory: cached prefixes are given up first."""
        use = {seq: self.cells.holding(seq) is not Holding.CACHED for seq, _, _ in moves}
        for seq, base, _ in reversed(moves):  # a base comes before who shares it
            use[base] = use[base] or use[seq]
        room = self._spare_memory()
        states: list[State | None] = [None] * len(moves)
        for n in sorted(range(len(moves)), key=lambda n: not use[moves[n][0]]):
            seq, _, shared = moves[n]
            cells = self.cells.length(seq) - shared
            if not cells or cells * self._bytes_per_cell > room:
                continue
            state = self._model.save(seq, shared)
            if state is not None and state.size <= room:
                self._bytes_per_cell = state.size // cells
                room -= state.size
                states[n] = state
        return states

    def _follow(self, cuts: list[Cut]) -> None:
        for cut in cuts:
            if not cut.length:
                self._keeper.released(cut.seq)
            self._model.cut(cut.seq, cut.length)

    def _cut(self, seq: int, length: int) -> bool:
        if not self._model.cut(seq, length):
            return False
        self.cells.cut(seq, length)
        return True

    def _parked_cells(self) -> int:
        return sum(self.cells.private(run.seq) for run in self._parked if run.seq is not None)

    def _trim_parked(self, run: Run, cells: int) -> None:
        """Cuts the end of a put-aside run's cells, saving it where the budget allows."""
        assert run.seq is not None
        private, end = self.cells.private(run.seq), self.cells.length(run.seq)
        take = max(cells, PARKED_TRIM_CELLS)
        if not self.cells.can_cut or private - take < PARKED_TRIM_CELLS:
            take = private
        if take:
            self._save(run, end - take, end)
        if take == private:  # what is left is held by others too, who keep or save it
            self._forget_cells(run)
        else:
            self._cut(run.seq, end - take)

    def _save(self, run: Run, start: int, end: int) -> None:
        assert run.seq is not None
        expected = (end - start) * self._bytes_per_cell
        state = None
        if self.saved_bytes + expected <= self._saved_bytes_max:
            state = self._model.save(run.seq, start)
        if state is None or self.saved_bytes + state.size > self._saved_bytes_max:
            self.counts.recomputed_cells += end - start
            return
        self._bytes_per_cell = state.size // (end - start)
        exact = self.cells.exact(run.seq) >= end
        run.saved.append(Saved(start, end, exact, state))
        self._count_saved(state.size)
        self.counts.saved += 1

    def _restore(self, run: Run, saved: Saved, length: int) -> None:
        """Appends the stretch to the run's cells, instead of any that reach into it."""
        assert run.seq is not None
        if not self._cut(run.seq, saved.start) or not self._model.restore(run.seq, saved.state):
            return
        if saved.beyond:
            self._model.cut(run.seq, saved.end)
        stretch = run.tokens[saved.start : saved.end]
        self.cells.append(run.seq, stretch, exact=saved.exact)
        self.counts.restored += saved.link is None
        if saved.link is not None:
            self.counts.restored_tokens += saved.end - length
            if not run.put_aside:
                run.cached = min(run.cached + saved.end - length, run.n_prompt)

    def _put_back(self, saved: Saved) -> None:
        """The stretch is in the cells, or not needed."""
        if saved.link is not None:
            self._keeper.put_back(saved)
        else:
            self._count_saved(-saved.state.size)

    def _drop_saved(self, run: Run) -> None:
        for saved in run.saved:
            self._put_back(saved)
        run.saved.clear()
        self._keeper.let_go(run)

    def _count_saved(self, size: int) -> None:
        self.saved_bytes += size
        self.snapshots.limit_ram(self._saved_bytes_max - self.saved_bytes)

    def _unpark(self, run: Run) -> None:
        if run in self._parked:
            self._parked.remove(run)

    def _forget_cells(self, run: Run) -> None:
        assert run.seq is not None
        self._unpark(run)
        self._model.cut(run.seq, 0)
        self.cells.close(run.seq)
        run.seq = None
