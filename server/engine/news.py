"""What the step loop has to say: outputs, progress and places in one frame, and when it is due.

Keeps the records of the steps and makes the statistics. The step thread's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from hobnob.server.engine.memory import Memory
from hobnob.server.engine.protocol import Output, Place, PrefillProgress, Record, Stats, Stepped
from hobnob.server.engine.records import Records
from hobnob.server.engine.run import Run
from hobnob.server.engine.scheduler import Plan, Scheduler
from hobnob.server.engine.speculation import Speculation
from hobnob.server.engine.threads import Threads

SILENCE_SECONDS = 1.0
"""Steps that have no other news are told of this often: whoever listens knows that it goes on."""

_WEIGHT = 0.2  # of the newest run, in how long one takes


@dataclass(frozen=True, slots=True)
class Work:
    """The rows of a step, by what they were for."""

    decodes: int
    prefill_rows: int
    drafted: int
    accepted: int  # of these

    @classmethod
    def of(cls, plan: Plan, accepted: int) -> Work:
        decodes = sum(len(chunk.tokens) == max(1, chunk.outputs) for chunk in plan.chunks)
        drafted = sum(max(0, chunk.outputs - 1) for chunk in plan.chunks)
        return cls(decodes, plan.rows - decodes - drafted, drafted, accepted)


class News:
    def __init__(
        self,
        memory: Memory,
        scheduler: Scheduler,
        threads: Threads,
        speculation: Speculation | None,
        *,
        n_running_max: int,
        clock: Callable[[], float],
        emit: Callable[[Stepped], None],
        video: Callable[[], tuple[int, int]],
    ) -> None:
        self._memory = memory
        self._scheduler = scheduler
        self._threads = threads
        self._speculation = speculation
        self._n_running_max = n_running_max
        self._clock = clock
        self._emit = emit
        self._video = video
        self._outputs: list[Output] = []
        self._prefills: list[PrefillProgress] = []
        self._places: dict[str, int] = {}
        self._service_s: float | None = None
        self._warming = 0
        self._said_at = clock()
        self.records = Records(clock())

    @property
    def pending(self) -> bool:
        """Whether a run has news that was not said yet."""
        return bool(self._outputs)

    # ---- taking in ----------------------------------------------------------------------------

    def add(self, output: Output) -> None:
        """A run's, to be said with the next frame."""
        self._outputs.append(output)

    def progress(self, run: Run) -> None:
        """Some of the run's prompt was read."""
        if not run.warm:
            done = min(self._memory.length(run), len(run.tokens))
            self._prefills.append(PrefillProgress(run.id, done, len(run.tokens), run.cached))

    def served(self, seconds: float) -> None:
        """A run has ended that took so long in all."""
        known = self._service_s
        self._service_s = seconds if known is None else known + _WEIGHT * (seconds - known)

    def record(self, work: Work, *, began: float, decode_s: float, threads: int) -> None:
        """A step has computed something. Its overhead goes on until the record is closed."""
        counts, cells = self._memory.counts, self._memory.cells
        self.records.open(
            Record(
                at=began,
                decodes=work.decodes,
                prefill_rows=work.prefill_rows,
                running=self._scheduler.running,
                waiting=self._scheduler.waiting,
                cells_used=cells.used,
                cells_cached=cells.cached,
                threads=threads,
                decode_s=decode_s,
                overhead_s=0.0,
                evicted=counts.evicted_cells,
                saved=counts.saved,
                restored=counts.restored,
                drafted=work.drafted,
                accepted=work.accepted,
            )
        )

    # ---- saying -------------------------------------------------------------------------------

    def say(self, *, computed: bool, warming: int) -> bool:
        """Sends a frame if there is anything to say. `warming`: runs that nobody waits for."""
        self._warming = warming
        places, now = self._new_places(), self._clock()
        silent = computed and now - self._said_at >= SILENCE_SECONDS
        if not (self._outputs or self._prefills or places or silent):
            return False
        self._said_at = now
        records = self.records.due(now, resting=self._scheduler.idle)
        self._emit(Stepped(self._outputs, self._prefills, places, self.stats(), records))
        self._outputs, self._prefills = [], []
        return True

    def say_stats(self) -> None:
        """They have changed without a step."""
        self._emit(Stepped(stats=self.stats()))

    def stats(self) -> Stats:
        last = self.records[-1] if self.records else None
        free, total = self._video()
        return msgspec.structs.replace(
            self._memory.stats(),
            running=max(0, self._scheduler.running - self._warming),
            waiting=self._scheduler.waiting,
            prefill_tps=self.records.prefill_tps,
            decode_tps=self.records.decode_tps,
            steps=self.records.count,
            decode_s=last.decode_s if last else 0.0,
            overhead_s=last.overhead_s if last else 0.0,
            threads=self._threads.count,
            drafted=self._speculation.drafted if self._speculation else 0,
            accepted=self._speculation.accepted if self._speculation else 0,
            video_free=free,
            video_total=total,
        )

    def _new_places(self) -> list[Place]:
        queue = self._scheduler.queue(self._clock()) if self._scheduler.waiting else []
        now = {run.id: n for n, run in enumerate(queue, 1)}
        changed = [Place(id, n, self._eta(n)) for id, n in now.items() if self._places.get(id) != n]
        self._places = now
        return changed

    def _eta(self, position: int) -> float | None:
        if self._service_s is None:
            return None
        return round(self._service_s * position / self._n_running_max, 1)
