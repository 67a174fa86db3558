"""Who computes what in the next step: admission, order, fairness, and who is put aside.

Pure: the clock is passed in, and sequences are moved through `Memory`. `plan` says how many tokens
of each run the next step computes; `commit` takes what came of it. Decodes come first; prefills
share what the budget leaves. Interactive runs go before batch ones; within a class the owner
that was served least, then the run that waited longest for its size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from hobnob.server.engine.memory import Memory
from hobnob.server.engine.model import Chunk
from hobnob.server.engine.pacing import FLOOR_ROWS
from hobnob.server.engine.run import Run

HEADROOM_CELLS = 64
"""Cells left for each running run to grow when another is admitted."""

CALM_STEPS = 8
"""After a run was put aside, nobody is admitted for so many steps."""

LOOK_AHEAD = 16
"""So many waiting runs are looked at in a step: each costs a search for its prefix."""

PREFILL_SHARE = 4
"""Of the rows of a step one in so many, up to the floor, is not taken by decodes."""

OWNERS_REMEMBERED = 1024

PATIENCE_SECONDS = 30.0
"""A batch run that waited so long, in all, is served like an interactive one: nobody starves."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Bounds of one step, in tokens."""

    rows: int
    prefill_rows: int
    """Of these, for prefills while somebody decodes."""
    exact_rows: int = 0
    """Bound of a step with an exact run in it; 0: there are no exact steps."""
    outputs: int = 0
    """Bound on rows with logits; 0: there are no drafts."""


Propose = Callable[[Sequence[Run], int, int], list[list[int]]]
"""Runs, decodes of the step, most tokens wanted of all together → a draft for each."""


@dataclass(slots=True)
class Plan:
    """One step. `runs` and `chunks` go together."""

    runs: list[Run] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    admitted: list[Run] = field(default_factory=list)
    full: list[Run] = field(default_factory=list)
    """Runs that cannot go on even alone: the cells are too few. They are over."""

    @property
    def rows(self) -> int:
        return sum(len(chunk.tokens) for chunk in self.chunks)


class Scheduler:
    def __init__(self, memory: Memory, *, n_running_max: int) -> None:
        self._memory = memory
        self._n_running_max = n_running_max
        self._waiting: list[Run] = []
        self._running: list[Run] = []
        self._served: dict[str, float] = {}
        self._floor = 0.0
        """What whoever was active had been served at least, at any time so far."""
        self._step = self._turns = 0
        self._now = 0.0
        self._calm_until = 0
        self.fetching = False
        """Whether a run that would have been admitted waits for what is being read for it."""

    # ---- reading ------------------------------------------------------------------------------

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def decoding(self) -> int:
        """Runs that take one row of the next step."""
        return sum(self._missing(run) == 1 for run in self._running)

    @property
    def runs(self) -> list[Run]:
        """Those that are running."""
        return list(self._running)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        return not self._running and not self._waiting

    def queue(self, now: float) -> list[Run]:
        """The waiting runs, who is next first."""
        return sorted(self._waiting, key=lambda run: self._admission_key(run, now))

    def check_integrity(self) -> None:
        """Raises AssertionError unless everything adds up."""
        seqs = [run.seq for run in self._running]
        assert None not in seqs and len(set(seqs)) == len(seqs), "two runs share a sequence"
        assert len(self._running) <= self._n_running_max, "more runs than sequences"
        assert all(run.waiting_since is not None for run in self._waiting), "a run waits unseen"
        self._memory.check_integrity([*self._running, *self._waiting])

    # ---- changing -----------------------------------------------------------------------------

    def add(self, run: Run) -> None:
        """Queues a run; it has at least one token and fits the cells alone."""
        active = {other.owner for other in (*self._running, *self._waiting)}
        if len(self._served) > OWNERS_REMEMBERED:
            self._served = {owner: self._served[owner] for owner in active}
        if run.owner not in active:  # who was away, or comes new, has no credit for it
            self._raise_floor()
            self._served[run.owner] = max(self._served.get(run.owner, 0.0), self._floor)
        self._wait(run, run.arrived)

    def fail(self, run: Run) -> None:
        """Takes the run out with its cells, which may be damaged."""
        self._leave(run)
        self._memory.drop(run)

    def plan(self, now: float, budget: Budget) -> Plan:
        """The next step. Its chunks fit the budget and the free cells."""
        plan = Plan()
        self._now = now
        self._step += 1
        self._admit(plan, now)
        rows = self._rows(budget)
        self._plan_decodes(plan, rows)
        self._plan_prefills(plan, now, budget, rows)
        if not plan.chunks and self._running:
            self._unstick(plan)
        return plan

    def draft(self, plan: Plan, budget: Budget, propose: Propose) -> None:
        """Adds drafts to a step of decodes alone, as far as nobody has to give cells for them."""
        if any(len(chunk.tokens) > 1 or not chunk.outputs for chunk in plan.chunks):
            return
        most = min(self._rows(budget), budget.outputs, self._memory.fillable) - plan.rows
        asked = [i for i, run in enumerate(plan.runs) if not run.suspect]
        if most <= 0 or not asked:
            return
        drafts = propose([plan.runs[i] for i in asked], len(plan.chunks), most)
        for i, drafted in zip(asked, drafts, strict=True):
            if drafted:
                chunk = plan.chunks[i]
                plan.chunks[i] = Chunk(
                    chunk.seq, chunk.start, [*chunk.tokens, *drafted], 1 + len(drafted)
                )

    def commit(self, plan: Plan, run: Run, *, exact: bool, rejected: int = 0) -> None:
        """The run's chunk of the plan was computed; so many drafted tokens at its end are not
        what the run says."""
        chunk = plan.chunks[plan.runs.index(run)]
        kept = len(chunk.tokens) - rejected
        self._memory.computed(run, kept, exact=exact, rejected=rejected)
        if chunk.outputs:  # it has come past what broke
            run.suspect = False
        self._served[run.owner] += kept
        self._turns += 1
        run.turn = self._turns

    def end(self, run: Run) -> None:
        """The run is over, or is not wanted any more, wherever it is; what it computed stays as
        a cached prefix."""
        self._leave(run)
        self._memory.keep(run)

    def settle(self) -> None:
        """After a step that broke off: every sequence is as long as it was counted to be, or
        its run starts again from its tokens, and alone, since it may have been the cause."""
        for run in self.runs:
            if not self._memory.settle(run):
                self._leave(run)
                self._memory.drop(run)
                run.suspect = True
                run.put_aside += 1
                self._wait(run, self._now)

    def no_room(self) -> Run | None:
        """The model found fewer cells than were counted: frees some. Returns a run that is over
        because it could not go on even alone."""
        if self._memory.reclaim():
            return None
        if len(self._running) > 1:
            self._put_aside(self._victim(self._running))
            self._memory.reclaim()  # its cells are not needed by who made them
            return None
        return self._end_alone() if self._running else None

    # ---- admission ----------------------------------------------------------------------------

    def _admit(self, plan: Plan, now: float) -> None:
        self.fetching = False
        if not self._waiting or len(self._running) >= self._n_running_max:
            return
        if self._running and self._step < self._calm_until:
            return
        for run in self.queue(now)[:LOOK_AHEAD]:
            if len(self._running) >= self._n_running_max:
                return
            if self._memory.prefix_on_the_way(run, self._running):
                continue  # others may go on; this one waits for the cells it can share
            if self._running and not self._fits(run):
                return  # strict order from here on, or a large run would wait for ever
            if not self._memory.fetched(run, now):
                self.fetching = True
                continue  # the disk is slower than the others are
            self._waiting.remove(run)
            if run.waiting_since is not None:
                run.waited += now - run.waiting_since
            run.waiting_since = None
            self._memory.attach(run)
            if not run.admitted:
                run.cached = min(self._memory.length(run), run.n_prompt)
                run.admitted = True
            self._running.append(run)
            plan.admitted.append(run)

    def _fits(self, run: Run) -> bool:
        """Whether the cells hold all that is admitted, and some growth."""
        promised = sum(self._missing(other) for other in self._running)
        headroom = HEADROOM_CELLS * (len(self._running) + 1)
        if run.put_aside:  # coming back too early would put somebody aside again
            headroom += self._memory.cells.total // 16
        return self._memory.need(run) + promised + headroom <= self._memory.room()

    def _admission_key(self, run: Run, now: float) -> tuple[bool, bool, float, float]:
        return (
            self._is_low(run, now),
            not run.put_aside,
            self._served.get(run.owner, 0.0),
            run.arrived,
        )

    def _is_low(self, run: Run, now: float) -> bool:
        """Whether it gives way to others: in the queue, in the step, and where cells run out."""
        waiting = 0.0 if run.waiting_since is None else now - run.waiting_since
        return not run.interactive and run.waited + waiting < PATIENCE_SECONDS

    # ---- the step -----------------------------------------------------------------------------

    def _missing(self, run: Run) -> int:
        """Tokens of the run that are not in its cells yet; 1 when it decodes."""
        return len(run.tokens) - self._memory.length(run)

    def _rows(self, budget: Budget) -> int:
        exact = budget.exact_rows and any(run.exact for run in self._running)
        return min(budget.rows, budget.exact_rows) if exact else budget.rows

    @staticmethod
    def _reserve(rows: int) -> int:
        """Rows of so many that decodes leave to prefills, so that these always move."""
        return min(FLOOR_ROWS, max(1, rows // PREFILL_SHARE), rows - 1)

    def _plan_decodes(self, plan: Plan, rows: int) -> None:
        if any(self._missing(run) > 1 for run in self._running):
            rows -= self._reserve(rows)
        while True:
            decoding = [run for run in self._running if self._missing(run) == 1]
            decoding.sort(key=lambda run: run.turn)  # if there are too many, in turns
            decoding = decoding[:rows]
            if not decoding or self._memory.make_room(len(decoding)):
                break
            if not self._relieve(plan):
                return
        for run in decoding:
            self._put(plan, run, 1)

    def _plan_prefills(self, plan: Plan, now: float, budget: Budget, rows: int) -> None:
        decodes = len(plan.chunks)
        left = min(rows - decodes, budget.prefill_rows if decodes else rows)
        prefills = [run for run in self._running if run not in plan.runs]
        while prefills and left > 0:
            prefills.sort(key=lambda run: self._prefill_key(run, now))
            run = prefills.pop(0)
            n = self._prefill_tokens(run, left, planned=plan.rows)
            if n > 0:
                self._put(plan, run, n)
                left -= n

    def _prefill_tokens(self, run: Run, left: int, *, planned: int) -> int:
        """How many of the run's tokens come next, after saved stretches have been put back."""
        if run.saved:
            self._memory.continue_saved(run, planned)
        n = min(left, self._missing(run))
        if run.saved:
            n = min(n, run.saved[-1].start - self._memory.length(run))
        if self._memory.make_room(planned + n):
            return n
        return min(n, self._memory.fillable - planned)

    def _prefill_key(self, run: Run, now: float) -> tuple[bool, bool, float, float]:
        """Within an owner a short prompt overtakes a long one, which it delays little; the longer
        a run waited, the less it is overtaken. Decodes that were left out come last."""
        waited = max(0.0, now - run.arrived)
        return (
            self._missing(run) == 1,
            self._is_low(run, now),
            self._served[run.owner],
            self._missing(run) / (1.0 + waited),
        )

    def _put(self, plan: Plan, run: Run, n: int) -> None:
        assert run.seq is not None
        start = self._memory.length(run)
        last = start + n == len(run.tokens)
        chunk = Chunk(run.seq, start, run.tokens[start : start + n], int(last))
        plan.runs.append(run)
        plan.chunks.append(chunk)

    # ---- too few cells ------------------------------------------------------------------------

    def _relieve(self, plan: Plan) -> bool:
        """Puts one run aside, or ends the only one. False when nobody is left."""
        if len(self._running) > 1:
            self._put_aside(self._victim(self._running))
        elif self._running:
            plan.full.append(self._end_alone())
        return bool(self._running)

    def _unstick(self, plan: Plan) -> None:
        """Nothing could be planned: prefills hold all cells. One gives way."""
        self._relieve(plan)

    def _victim(self, runs: Iterable[Run]) -> Run:
        """The newest run of the lowest class."""
        return min(runs, key=lambda run: (not self._is_low(run, self._now), -run.arrived))

    def _put_aside(self, run: Run) -> None:
        self._running.remove(run)
        run.put_aside += 1
        self._wait(run, self._now)
        self._memory.park(run)
        self._calm_until = self._step + CALM_STEPS

    def _end_alone(self) -> Run:
        run = self._running.pop()
        self._memory.keep(run)
        return run

    def _raise_floor(self) -> None:
        active = {run.owner for run in (*self._running, *self._waiting)}
        if active:
            self._floor = max(self._floor, min(self._served[owner] for owner in active))

    def _wait(self, run: Run, since: float) -> None:
        run.waiting_since = since
        self._waiting.append(run)

    def _leave(self, run: Run) -> None:
        self._raise_floor()
        for runs in (self._running, self._waiting):
            if run in runs:
                runs.remove(run)
