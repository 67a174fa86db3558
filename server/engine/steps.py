"""The step loop: plan, decode, sample, say. The step thread's; sole user of model and scheduler.

One bad request costs one request: what fails in a step is pinned on the run that caused it, and
the others are computed again without it. Every run taken ends in exactly one `Finish`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hobnob.server.engine.breakers import Breakers
from hobnob.server.engine.drafter import Drafter
from hobnob.server.engine.form_grammar import FormError
from hobnob.server.engine.generation import Generation, Piece, joined
from hobnob.server.engine.memory import Memory
from hobnob.server.engine.model import Chunk, Decoded, Logits, Model, Outcome
from hobnob.server.engine.news import News, Work
from hobnob.server.engine.pacing import Pace
from hobnob.server.engine.protocol import (
    WARMED,
    Finish,
    Lookup,
    Output,
    Stats,
    Stepped,
    Submit,
)
from hobnob.server.engine.records import Records
from hobnob.server.engine.run import Run
from hobnob.server.engine.sampling import BadLogits
from hobnob.server.engine.scheduler import Budget, Plan, Scheduler
from hobnob.server.engine.speculation import Speculation
from hobnob.server.engine.threads import Threads
from hobnob.server.wire import StopReason

if TYPE_CHECKING:
    from hobnob.server.engine.constraint import Constraint

SAVE_STEPS = 8
"""One of so many busy steps also saves a stretch of a finished run."""

WARM_ROWS = 64
"""Of a warm-up's step while it is not known what a decode step costs."""

SAVE_SECONDS = 0.4
"""For what is not saved yet, when the process ends; then so many for the disk to take it:"""
WRITE_SECONDS = 0.8


@dataclass(frozen=True, slots=True)
class Words:
    """What the loop needs of the vocabulary."""

    n_vocab: int
    eog: Sequence[int]
    piece: Piece
    spelled: Piece
    """Control tokens' bytes too."""
    breakers: Callable[[Sequence[str]], Breakers]
    """The token sequences of texts that no repetition reaches across."""
    constraint: Callable[[Mapping[str, Any], Sequence[int]], Constraint]
    """What holds a reply with these tokens to a form. Raises FormError."""


@dataclass(frozen=True, slots=True)
class Limits:
    n_ctx: int
    n_running_max: int
    rows: int
    exact_rows: int = 0
    outputs: int = 0  # rows with logits; without drafts each run has one


def _groups(plan: Plan) -> list[list[int]]:
    """Numbers of chunks to decode together: suspects each alone, so that they harm nobody."""
    numbers = range(len(plan.runs))
    others = [i for i in numbers if not plan.runs[i].suspect]
    alone = [[i] for i in numbers if plan.runs[i].suspect]
    return [others, *alone] if others else alone


def _refused(submit: Submit, error: str) -> Output:
    """The only news of a run that asks for what there is not."""
    if submit.warm:
        return Output(submit.run, finish=Finish(WARMED))
    over = Finish(
        StopReason.ERROR,
        error_code="invalid_request",
        error=error,
        prompt_tokens=len(submit.prompt),
        completion_tokens=len(submit.emitted),
    )
    return Output(submit.run, finish=over)


class Steps:
    def __init__(
        self,
        model: Model,
        memory: Memory,
        words: Words,
        limits: Limits,
        *,
        pace: Pace,
        threads: Threads,
        clock: Callable[[], float],
        emit: Callable[[Stepped], None],
        speculation: Speculation | None = None,
        video: Callable[[], tuple[int, int]] = lambda: (0, 0),
    ) -> None:
        """`video`: free and all bytes of the GPUs in use."""
        self._speculation = speculation
        self._drafted: list[tuple[Drafter, int, int]] = []  # in this step: rows, accepted
        self._model = model
        self._memory = memory
        self._scheduler = Scheduler(memory, n_running_max=limits.n_running_max)
        self._words = words
        self._limits = limits
        self._pace = pace
        self._threads = threads
        self._clock = clock
        self._live: dict[str, Generation] = {}
        self._unsaid = False  # the statistics changed without a step
        self._decode_s = 0.0
        self._source_s = 0.0  # of the step, spent on making drafts
        self._news = News(
            memory,
            self._scheduler,
            threads,
            speculation,
            n_running_max=limits.n_running_max,
            clock=clock,
            emit=emit,
            video=video,
        )

    @property
    def records(self) -> Records:
        return self._news.records

    def stats(self) -> Stats:
        return self._news.stats()

    @property
    def idle(self) -> bool:
        """Nothing to compute and nothing to say."""
        return self._scheduler.idle and not self._news.pending

    @property
    def fetching(self) -> bool:
        """Whether the next step waits for the disk and for nothing else."""
        return self._scheduler.fetching and not self._scheduler.running

    def tidy(self) -> bool:
        """To be called before a wait for commands; False when there is nothing left to do."""
        self._threads.rest()
        self._memory.tidy()
        if self._memory.save_due():
            self._unsaid = True
            return True
        if self._unsaid:
            self._unsaid = False
            self._news.say_stats()
        return False

    def close(self) -> None:
        """Saves what can be saved in a moment: the process ends."""
        until = self._clock() + SAVE_SECONDS
        for run in self._scheduler.runs:
            self._scheduler.end(run)
        while self._clock() < until and self._memory.save_due():
            pass
        self._memory.snapshots.close(WRITE_SECONDS)

    def forget(self, group: str) -> None:
        """The conversation was deleted: of runs that are not over yet nothing stays either."""
        self._memory.forget(group)
        if self._speculation is not None:
            self._speculation.forget(group)
        self._unsaid = True

    def resident(self, asked: Lookup) -> int:
        """Leading tokens of the prompt that a run would find, now."""
        return self._memory.resident(asked.owner, asked.prompt, exact=asked.exact)

    def check_integrity(self) -> None:
        """Raises AssertionError unless everything adds up. Between steps only."""
        self._scheduler.check_integrity()
        assert self._scheduler.running + self._scheduler.waiting == len(self._live), "a run is lost"

    # ---- commands -----------------------------------------------------------------------------

    def submit(self, submit: Submit) -> None:
        """Takes a run; one that cannot be begun ends at once. A run that is live is left alone."""
        if submit.run in self._live:
            return
        self._drop_warm()
        if submit.warm and self._live:
            self._news.add(Output(submit.run, finish=Finish(WARMED)))
            return
        if not self._knows(submit):  # nothing is made of it: every token is looked up for that
            self._news.add(_refused(submit, "A token id is not in the model's vocabulary."))
            return
        try:
            constraint = self._constraint(submit)
        except FormError as unfit:
            self._news.add(_refused(submit, str(unfit)))
            return
        made = Generation(
            submit,
            piece=self._words.piece,
            spelled=self._words.spelled,
            breakers=self._words.breakers,
            constraint=constraint,
            eog=self._words.eog,
            n_ctx=self._limits.n_ctx,
            now=self._clock(),
        )
        refusal = self._refusal(submit)
        if refusal is not None and submit.warm:
            self._news.add(made.finish(WARMED))
            return
        if refusal is not None:
            code, error = refusal
            self._news.add(made.finish(StopReason.ERROR, code=code, error=error))
            return
        reason = made.over()
        if reason is not None:
            self._news.add(made.finish(reason))
            return
        self._live[submit.run] = made
        self._scheduler.add(made.run)

    def cancel(self, id: str) -> None:
        """Ends the run now; nothing happens when it is over already."""
        made = self._live.pop(id, None)
        if made is None:
            return
        self._scheduler.end(made.run)
        self._left(made)
        self._news.add(made.finish(StopReason.CANCELLED))

    def _drop_warm(self) -> None:
        """Somebody came: what a warm-up has computed so far is kept, the rest is not."""
        for made in [made for made in self._live.values() if made.run.warm]:
            self._scheduler.end(made.run)
            self._end(made.run, WARMED)

    def _constraint(self, submit: Submit) -> Constraint | None:
        form = submit.sampling.response_format
        return self._words.constraint(form, submit.emitted) if form and not submit.warm else None

    def _refusal(self, submit: Submit) -> tuple[str, str] | None:
        prompt = submit.prompt
        if not prompt:
            return "empty_prompt", "The prompt is empty."
        if len(prompt) >= self._limits.n_ctx:
            return "context_length_exceeded", (
                f"The prompt has {len(prompt)} tokens, more than the context window of "
                f"{self._limits.n_ctx} can hold."
            )
        return None

    def _knows(self, submit: Submit) -> bool:
        """Whether all its token ids are in the vocabulary."""
        ids = (*submit.prompt, *submit.emitted, *submit.sampling.logit_bias)
        return not ids or (min(ids) >= 0 and max(ids) < self._words.n_vocab)

    # ---- the step -----------------------------------------------------------------------------

    def step(self) -> bool:
        """One step and its frame. False when nothing was computed, ended or said."""
        began = self._clock()
        self.records.close(began)
        self._memory.begin_step()
        self._decode_s = self._source_s = 0.0
        self._drafted = []
        budget = self._budget()
        plan = self._scheduler.plan(began, budget)
        if self._speculation is not None:
            self._scheduler.draft(plan, budget, self._propose)
        for run in plan.admitted:
            self._live[run.id].admitted(began)
        for run in plan.full:
            self._end(run, StopReason.CONTEXT)
        threads = self._threads.choose(began)
        if plan.chunks:
            if self.records.count % SAVE_STEPS == 0:
                self._memory.save_due()
            computing = self._clock()  # cells that were moved, saved or put back are not its cost
            for members in _groups(plan):
                self._compute(plan, members)
            work = Work.of(plan, sum(accepted for _, _, accepted in self._drafted))
            self._learn(work, self._clock() - computing)
            decode_s = self._decode_s + self._source_s
            self._news.record(work, began=began, decode_s=decode_s, threads=threads)
        if self._scheduler.idle or self.fetching:  # a wait follows that is no part of the step
            self.records.close(self._clock())
        computed = bool(plan.chunks)
        return self._news.say(computed=computed, warming=self._warming) or computed

    def _budget(self) -> Budget:
        rows = self._limits.rows
        if self._warming:  # whoever comes waits for the chunk under way, so it is a small one
            known = self._pace.decode_seconds(1) is not None
            rows = min(rows, self._pace.prefill_rows(1) if known else WARM_ROWS)
        decoding = self._scheduler.decoding
        return Budget(
            rows=rows,
            prefill_rows=self._pace.prefill_rows(decoding, self._scheduler.running - decoding),
            exact_rows=self._limits.exact_rows,
            outputs=self._limits.outputs,
        )

    def _propose(self, runs: Sequence[Run], decodes: int, most: int) -> list[list[int]]:
        assert self._speculation is not None
        asked = []
        for run in runs:
            made = self._live[run.id]
            own = 0 if run.warm else made.room - 1  # one token more is drawn than was drafted
            asked.append((made.drafter, max(0, own)))
        before = self._speculation.spent_s
        drafts = self._speculation.drafts(asked, decodes, most)
        self._source_s = self._speculation.spent_s - before
        return drafts

    def _compute(self, plan: Plan, members: list[int]) -> None:
        """Decodes the plan's chunks with these numbers; on failure, halves to find the cause."""
        members = [i for i in members if self._is_current(plan, i)]
        if not members:
            return
        chunks = [plan.chunks[i] for i in members]
        threads = self._threads.count
        wanted = self._limits.exact_rows > 0 and any(plan.runs[i].exact for i in members)
        decoded = self._model.decode(chunks, threads, exact=wanted)
        self._decode_s += decoded.seconds
        if decoded.outcome is Outcome.OK:
            rows = sum(len(chunk.tokens) for chunk in chunks)
            exact = rows <= self._limits.exact_rows and (wanted or rows > 1 or threads == 1)
            self._advance(plan, members, decoded, exact)
        elif self._without_drafts(plan, members):
            if decoded.outcome is Outcome.FAILED:
                self._scheduler.settle()
            self._compute(plan, members)
        elif decoded.outcome is Outcome.NO_ROOM:
            over = self._scheduler.no_room()
            if over is not None:
                self._end(over, StopReason.CONTEXT)
        else:
            self._halve(plan, members, decoded.outcome)

    def _without_drafts(self, plan: Plan, members: list[int]) -> bool:
        """Takes the drafts out: they shall neither cost a run its place nor bring it down. False
        when there were none."""
        found = [i for i in members if plan.chunks[i].outputs > 1]
        for i in found:
            chunk = plan.chunks[i]
            plan.chunks[i] = Chunk(chunk.seq, chunk.start, chunk.tokens[: 1 - chunk.outputs], 1)
        return bool(found)

    def _is_current(self, plan: Plan, i: int) -> bool:
        """Whether the run still stands where the plan was made for: others' trouble may have
        ended it or put it aside."""
        run, chunk = plan.runs[i], plan.chunks[i]
        return run.seq == chunk.seq and self._memory.length(run) == chunk.start

    def _halve(self, plan: Plan, members: list[int], outcome: Outcome) -> None:
        if len(members) == 1:
            run = plan.runs[members[0]]
            self._fail(run, "llama.cpp could not compute the run's next tokens.")
        if outcome is Outcome.FAILED:
            self._scheduler.settle()
        if len(members) > 1:
            middle = (len(members) + 1) // 2
            self._compute(plan, members[:middle])
            self._compute(plan, members[middle:])

    def _advance(self, plan: Plan, members: list[int], decoded: Decoded, exact: bool) -> None:
        now = self._clock()
        row = 0
        for i in members:
            run, chunk = plan.runs[i], plan.chunks[i]
            if chunk.outputs and run.warm:
                self._scheduler.commit(plan, run, exact=exact)
                self._scheduler.end(run)
                self._end(run, WARMED)
                row += chunk.outputs
            elif chunk.outputs:
                self._draw(plan, i, decoded.logits[row : row + chunk.outputs], now, exact)
                row += chunk.outputs
            else:
                self._scheduler.commit(plan, run, exact=exact)
            if len(chunk.tokens) > max(1, chunk.outputs) and run.id in self._live:
                self._news.progress(run)

    def _draw(self, plan: Plan, i: int, logits: Logits, now: float, exact: bool) -> None:
        """Draws at each row for as long as the draft said the same."""
        run, chunk = plan.runs[i], plan.chunks[i]
        made = self._live[run.id]
        made.prefilled(now)
        drafted = chunk.tokens[len(chunk.tokens) - chunk.outputs + 1 :]
        outputs: list[Output] = []
        reason: str | None = None
        broken: BadLogits | FormError | None = None
        for row, guess in zip(logits, [*drafted, None], strict=True):
            try:
                drawn = made.draw(row)
            except (BadLogits, FormError) as error:
                broken = error
                break
            output, reason = made.accept(drawn)
            outputs.append(output)
            if reason is not None or drawn.token != guess:
                break
        if outputs:
            made.spoke(len(outputs), self._clock())
        said = joined(outputs) if outputs else None
        if broken is not None:
            self._fail(run, f"The model's output is not usable: {broken}.", said)
            return
        assert said is not None
        accepted = len(outputs) - 1
        if drafted:
            made.guessed(len(drafted), accepted)
            self._drafted.append((made.drafter, len(drafted), accepted))
        self._scheduler.commit(plan, run, exact=exact, rejected=len(drafted) - accepted)
        if reason is None:
            self._news.add(said)
            return
        self._scheduler.end(run)
        self._end(run, reason, said)

    # ---- ends ---------------------------------------------------------------------------------

    def _end(self, run: Run, reason: str, output: Output | None = None) -> None:
        """The last news of a run that has left the scheduler."""
        made = self._live.pop(run.id)
        if run.warm:
            self._news.add(made.finish(WARMED))
            return
        self._left(made, whole=True)
        self._news.add(made.finish(reason, output))
        self._news.served(self._clock() - run.arrived)

    def _fail(self, run: Run, error: str, output: Output | None = None) -> None:
        self._scheduler.fail(run)
        if run.warm:
            self._end(run, WARMED)
            return
        made = self._live.pop(run.id)
        self._left(made)
        self._news.add(made.finish(StopReason.ERROR, output, code="engine_failed", error=error))

    def _left(self, made: Generation, *, whole: bool = False) -> None:
        """The run is over; `whole`: with a reply that may be said again."""
        if self._speculation is None:
            return
        forgotten = self._memory.is_forgotten(made.run.group)
        if whole and not forgotten:
            self._speculation.ended(made.drafter)
        else:
            self._speculation.left(made.drafter)
        if forgotten:
            self._speculation.forget(made.run.group)

    # ---- inside -------------------------------------------------------------------------------

    @property
    def _warming(self) -> int:
        """Runs that nobody waits for: one, and alone, or none."""
        return sum(made.run.warm for made in self._live.values())

    def _learn(self, work: Work, seconds: float) -> None:
        """What the step's rows alone took."""
        if not work.drafted:
            self._pace.observe(work.decodes, work.prefill_rows, seconds)
        if self._speculation is not None:
            self._speculation.observe(self._drafted, work.decodes, seconds)
