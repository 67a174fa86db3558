"""Between cells and snapshots: what of finished runs' cells is saved, and what a run gets back.

Saves a few stretches a step, so that none waits for long: what belongs to a conversation soon after
its run, one at a time; anything else when it is about to be evicted. Decides whether a run is
better served by what was saved than by computing it. The step thread's; `Memory` puts the
stretches back.
"""

from __future__ import annotations

from hobnob.server.engine.cells import Cells, Ids
from hobnob.server.engine.model import Model
from hobnob.server.engine.restoring import Restoring
from hobnob.server.engine.run import Run, Saved
from hobnob.server.engine.snapshots import SEGMENT_TOKENS, TAIL_TOKENS, Link, Snapshots

STRETCHES_AT_ONCE = 8
"""Saved in a step before evictions, all of them together; what is beyond is computed again."""

NEW_SHARE = 8
"""Of what is put back, one token in so many at least must not be resident: the others would lie
in the cells twice."""

PATIENCE_SECONDS = 10.0
"""For files to be read; then the run computes its prompt."""

FORGOTTEN_MAX = 10_000


class Keeper:
    def __init__(
        self, model: Model, cells: Cells, snapshots: Snapshots, restoring: Restoring
    ) -> None:
        self._restoring = restoring
        self._model = model
        self._cells = cells
        self._snapshots = snapshots
        self._bytes_per_token = 0
        self._stretches_left = STRETCHES_AT_ONCE
        self._groups: dict[int, str] = {}  # of cached sequences
        self._due: dict[int, None] = {}  # the ones that may have stretches to write, in order
        self._forgotten: dict[str, None] = {}

    # ---- saving -------------------------------------------------------------------------------

    def begin_step(self) -> None:
        self._stretches_left = STRETCHES_AT_ONCE

    def cached(self, seq: int, group: str) -> None:
        """The sequence's run is over."""
        self._groups[seq] = group
        if group and self._snapshots.on_disk:
            self._due[seq] = None

    def released(self, seq: int) -> None:
        """The sequence is somebody's again, or gone."""
        self._groups.pop(seq, None)
        self._due.pop(seq, None)

    def save_due(self) -> bool:
        """Saves one stretch that shall outlive the process; False: there is nothing to do now."""
        while self._due and self._can_take():
            seq = next(iter(self._due))
            if self._save_next(seq):
                return True
            del self._due[seq]
        return False

    def before_cut(self, seq: int) -> None:
        """A cached sequence is about to lose its end."""
        while self._stretches_left and self._can_take() and self._save_next(seq):
            self._stretches_left -= 1

    def forget(self, group: str) -> list[int]:
        """Drops all that was saved of the group, for good; its cached sequences."""
        self._forgotten[group] = None
        if len(self._forgotten) > FORGOTTEN_MAX:
            del self._forgotten[next(iter(self._forgotten))]
        self._snapshots.forget(group)
        return [seq for seq, its in self._groups.items() if its == group]

    def is_forgotten(self, group: str) -> bool:
        """Whether the run's conversation was deleted while it was still here."""
        return group in self._forgotten

    # ---- bringing back ------------------------------------------------------------------------

    def reach(self, owner: str, ids: Ids, resident: int, *, exact: bool) -> int:
        """How far a run with these tokens, `resident` of them in the cells, would be brought."""
        kept = self._best(self._lacking(owner, ids, resident, exact=exact), resident)
        return kept[-1].end if kept else resident

    def fetched(self, run: Run, resident: int, now: float) -> bool:
        """Whether the run has what it is given in RAM; False while files are being read."""
        if run.saved or run.suspect:
            return True
        if run.fetch_until is None:
            run.fetch_until = now + PATIENCE_SECONDS
        if not run.links:
            links = self._worth_it(run, resident)
            if not links:
                return True
            if not self._snapshots.pin(links):  # others are being read first
                return now >= run.fetch_until
            run.links = links
        if self._snapshots.ready(run.links):
            return True
        if now < run.fetch_until:
            return False
        self.let_go(run)
        return True

    def take(self, run: Run, resident: int) -> None:
        """Gives the run, whose sequence holds its first `resident` tokens, what was fetched."""
        run.fetch_until = None
        found = [link for link in run.links if link.end > resident]
        there = [link for link in found if link.segment.state is not None]  # not damaged
        kept = self._best(there, resident)
        self._snapshots.unpin([link for link in run.links if link not in kept])
        run.links = []
        if kept:
            self._snapshots.used(kept[-1].segment)
            run.saved = [saved for link in reversed(kept) if (saved := _stretch(link))]

    def let_go(self, run: Run) -> None:
        """The run does not need what was fetched for it."""
        self._snapshots.unpin(run.links)
        run.links = []
        run.fetch_until = None

    def put_back(self, saved: Saved) -> None:
        """A stretch that came from the snapshots is in the cells, or not needed."""
        if saved.link is not None:
            self._snapshots.unpin([saved.link])

    # ---- inside -------------------------------------------------------------------------------

    def _can_take(self) -> bool:
        held = self._snapshots
        return held.keeps and held.can_take(SEGMENT_TOKENS * self._bytes_per_token)

    def _save_next(self, seq: int) -> bool:
        """Saves the sequence's next stretch; False when there is none."""
        ids, owner = self._cells.tokens(seq), self._cells.owner(seq)
        exact = self._cells.exact(seq)
        at, parent = self._snapshots.covered(owner, ids, exact=exact == ids.size)
        end = min(at + SEGMENT_TOKENS, ids.size)
        if end - at < TAIL_TOKENS:
            return False
        state = self._model.save(seq, at, end)
        if state is None:
            return False
        self._bytes_per_token = state.size // (end - at)
        return self._snapshots.add(
            parent, ids[at:end], state, exact=exact >= end, group=self._groups[seq]
        )

    def _lacking(self, owner: str, ids: Ids, resident: int, *, exact: bool) -> list[Link]:
        """What a run lacks of the chain that its tokens begin with, and that can be held."""
        links = self._snapshots.match(owner, ids[:-1], exact=exact)
        links = [link for link in links if link.end > resident]
        while links and sum(link.segment.entry.size for link in links) > self._snapshots.pinnable:
            links.pop()
        return links

    def _worth_it(self, run: Run, resident: int) -> list[Link]:
        """What the run lacks, as far as it is sooner put back than computed."""
        links = self._lacking(run.owner, run.ids(), resident, exact=run.exact)
        kept = self._best(links, resident)
        if links and not kept:
            self._snapshots.doubt()
        return kept

    def _best(self, links: list[Link], resident: int) -> list[Link]:
        """As many of the first ones as save most time."""
        won = most = 0.0
        kept = 0
        for n, link in enumerate(links, 1):
            reading = self._snapshots.seconds_to_read(link.segment)
            new = link.end - max(link.start, resident)
            won += self._restoring.won(new, link.segment.ids.size, reading)
            all_new, all_back = link.end - resident, link.end - links[0].start
            if won > most and NEW_SHARE * all_new >= all_back:
                most, kept = won, n
        return links[:kept]


def _stretch(link: Link) -> Saved | None:
    state, exact = link.segment.state, link.segment.entry.exact
    return state if state is None else Saved(link.start, link.end, exact, state, link.beyond, link)
