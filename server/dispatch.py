"""Live runs and the engine: who is in it, who waits for it, and what its news mean for each run.

The one listener of the engine. Hands runs over when it is ready, takes their outputs, brings
them back after a death, keeps the one that kills it from killing it again, and ends those that
have waited too long. Event loop thread only; never waits.
"""

from __future__ import annotations

import asyncio

from hobnob.server import wire
from hobnob.server.admission import Load
from hobnob.server.engine.protocol import Output, Stepped
from hobnob.server.engine.state import EnginePort, EngineState, EngineStatus
from hobnob.server.errors import PromptTooLong
from hobnob.server.journal import Journal
from hobnob.server.live import Ending, LiveRun, Phase, ReplayMismatch
from hobnob.server.quarantine import DEATHS, Quarantine
from hobnob.server.requests import RunSettings

_RUN_SECONDS_WEIGHT = 0.2
"""Of the newest run in the moving average of how long runs take."""


class Dispatch:
    def __init__(self, engine: EnginePort, journal: Journal, settings: RunSettings):
        self._engine = engine
        self._journal = journal
        self._settings = settings
        self._quarantine = Quarantine()
        self._runs: dict[str, LiveRun] = {}  # oldest first; until the end is settled
        self._timers: dict[str, asyncio.TimerHandle] = {}  # of runs in the engine's queue
        self._run_s = 0.0
        self._closing: wire.StreamError | None = None

    # ---- registry

    def find(self, run_id: str) -> LiveRun | None:
        return self._runs.get(run_id)

    @property
    def unended(self) -> list[LiveRun]:
        return [live for live in self._runs.values() if live.phase is not Phase.ENDED]

    @property
    def load(self) -> Load:
        unended = [live for live in self.unended if not live.job.yields]  # it is in nobody's way
        waiting = [live for live in unended if live.phase is not Phase.STARTED]
        return Load(
            running=len(unended) - len(waiting),
            waiting=len(waiting),
            waiting_tokens=sum(len(live.job.prompt) for live in waiting),
            run_s=self._run_s,
        )

    def enter(self, live: LiveRun) -> None:
        """Takes the run in; it starts when the engine and the others let it."""
        if not live.job.yields:
            for other in [one for one in self.unended if one.job.yields]:
                self.cancel(other)
        self._runs[live.id] = live
        if self._closing is not None:
            live.log.close(self._closing)
            return
        if live.sealable:
            self._journal.touch(live)
        if live.phase is Phase.ENDED:
            return
        status = self._engine.status
        if status.state is EngineState.FAILED:
            self.end(live, live.ending_here(wire.StopReason.ERROR, _failure_of(status)))
        elif status.state is EngineState.READY:
            self._go()
        else:
            live.log.tell(wire.Loading(live.job.model, status.load_done))

    def forget(self, live: LiveRun) -> None:
        """Its end is settled."""
        self._runs.pop(live.id, None)

    def end(self, live: LiveRun, ending: Ending) -> None:
        """Ends the run, whatever it is doing. The engine must be told by the caller."""
        self._stop_timer(live)
        if live.phase is Phase.STARTED and live.tokens:
            took = _now() - live.job.accepted_at - live.waited_s
            self._run_s += _RUN_SECONDS_WEIGHT * (took - self._run_s) if self._run_s else took
        live.finish(ending)
        self._journal.touch(live)
        if self._quarantine.ended(live.id):
            self._go()

    def cancel(self, live: LiveRun) -> None:
        """Idempotent. A run in the engine ends when the engine says so, within a step."""
        if live.phase is Phase.ENDED or live.cancelled:
            return
        live.cancelled = True
        if live.in_engine:
            self._engine.cancel(live.id)
        else:
            self.end(live, live.ending_here(wire.StopReason.CANCELLED))

    def drop(self, live: LiveRun) -> None:
        """Ends a run that nothing can come of any more."""
        if live.in_engine:
            self._engine.cancel(live.id)
        self.end(live, live.ending_here(wire.StopReason.CANCELLED))

    def close(self, error: wire.StreamError) -> None:
        """Readers end; the engine's news are no longer taken; the runs stay as they are."""
        self._closing = error
        for live in self._runs.values():
            self._stop_timer(live)
            live.log.close(error)

    # ---- the engine's news

    def on_stepped(self, stepped: Stepped) -> None:
        if self._closing is not None:
            return
        for place in stepped.places:
            live = self._present(place.run)
            if live is not None:
                live.log.tell(wire.Queued(place.position, place.eta_s))
        for prefill in stepped.prefills:
            live = self._present(prefill.run)
            if live is not None:
                self._started(live)
                live.log.tell(wire.Prefill(prefill.done, prefill.total, prefill.cached))
        for output in stepped.outputs:
            live = self._present(output.run)
            if live is not None:
                self._take(live, output)

    def on_death(self, reason: str, *, reading: bool) -> None:
        if self._closing is not None:
            return
        in_flight = [live for live in self.unended if live.in_engine]
        culprit = self._quarantine.died([live.id for live in in_flight], excused=reading)
        for live in in_flight:
            self._stop_timer(live)
            live.lose_engine()
            if live.id == culprit:
                self.end(live, live.ending_here(wire.StopReason.ERROR, _poison(reason)))
            elif live.cancelled or live.job.yields:
                self.end(live, live.ending_here(wire.StopReason.CANCELLED))
            else:
                live.log.tell(wire.Restarted(reason))

    def on_status(self, status: EngineStatus) -> None:
        if self._closing is not None:
            return
        if status.state is EngineState.READY:
            for live in self.unended:
                live.log.untell(wire.Loading)
            self._go()
        elif status.state is EngineState.FAILED:
            for live in self.unended:
                self.end(live, live.ending_here(wire.StopReason.ERROR, _failure_of(status)))
        else:
            for live in self.unended:
                live.log.tell(wire.Loading(live.job.model, status.load_done))

    # ---- in and out of the engine

    def _present(self, run_id: str) -> LiveRun | None:
        """The run if the engine may speak of it: it may have been ended on this side."""
        live = self._runs.get(run_id)
        return live if live is not None and live.in_engine else None

    def _go(self) -> None:
        """Hands over every run that waits and may go."""
        if self._engine.status.state is not EngineState.READY or self._closing is not None:
            return
        for live in self.unended:
            if live.phase is Phase.HELD and self._quarantine.may_run(live.id):
                self._hand_over(live)

    def _hand_over(self, live: LiveRun) -> None:
        ending = self._unfit(live, self._engine.status)
        if ending is not None:
            self.end(live, ending)
            return
        exact = bool(self._engine.status.exact(live.job.exact))
        self._engine.submit(live.submit(_now(), exact=exact))
        if live.stored:
            self._journal.attempt(live.id)
        if not live.tokens and self._settings.queue_timeout_s > 0:
            self._timers[live.id] = asyncio.get_running_loop().call_later(
                self._settings.queue_timeout_s, self._give_up, live
            )

    def _unfit(self, live: LiveRun, status: EngineStatus) -> Ending | None:
        """How the run ends if this engine cannot take it."""
        assert status.text is not None and status.ready is not None, "a ready engine says with what"
        if live.job.vocab_hash != status.text.vocab_hash:
            why = wire.Failure(
                "model_changed", "The reply was begun with another model and cannot go on."
            )
            return live.ending_here(wire.StopReason.ERROR, why)
        if len(live.job.prompt) + len(live.tokens) < status.ready.n_ctx:
            return None
        if live.tokens:
            return live.ending_here(wire.StopReason.CONTEXT)
        error = PromptTooLong(len(live.job.prompt), status.ready.n_ctx)
        return live.ending_here(wire.StopReason.ERROR, wire.Failure(error.code, error.message))

    def _started(self, live: LiveRun) -> None:
        self._stop_timer(live)
        live.start()

    def _take(self, live: LiveRun, output: Output) -> None:
        self._started(live)
        try:
            live.take(output)
        except ReplayMismatch:
            self._engine.cancel(live.id)
            why = wire.Failure("replay_mismatch", "The reply could not be continued unchanged.")
            self.end(live, live.ending_here(wire.StopReason.ERROR, why))
            return
        if output.finish is not None:
            self.end(live, live.ending_of(output.finish))
            return
        if live.sealable:
            self._journal.touch(live)
        if output.tokens and self._quarantine.moved(live.id):
            self._go()

    def _give_up(self, live: LiveRun) -> None:
        """The run has waited in the queue for too long; it must not run later."""
        self._timers.pop(live.id, None)
        self._engine.cancel(live.id)
        waited = self._settings.queue_timeout_s
        why = wire.Failure("queue_timeout", f"The run waited {waited:g} s for a free sequence.")
        self.end(live, live.ending_here(wire.StopReason.ERROR, why))

    def _stop_timer(self, live: LiveRun) -> None:
        timer = self._timers.pop(live.id, None)
        if timer is not None:
            timer.cancel()


def _failure_of(status: EngineStatus) -> wire.Failure:
    return status.failure or wire.Failure("model_unavailable", "The model cannot be loaded.")


def _poison(reason: str) -> wire.Failure:
    return wire.Failure(
        "engine_failed", f"The engine died {DEATHS} times while it worked on this reply: {reason}"
    )


def _now() -> float:
    return asyncio.get_running_loop().time()
