"""One live run: what it was given, how far it is, and what it has produced but not yet logged.

The producer's side. `take` and `finish` collect; `seal` turns what was collected into numbered
entries; the journal logs and publishes them. Event loop thread only.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import Enum

from hobnob.server import wire
from hobnob.server.engine.protocol import Finish, Logprob, Output, Sampling, Submit
from hobnob.server.log import LogEntry, Reader, RunLog
from hobnob.store.values import RunEnd

_STATUS = {
    wire.StopReason.END_TURN: wire.Status.COMPLETED,
    wire.StopReason.STOP_STRING: wire.Status.COMPLETED,
    wire.StopReason.MAX_TOKENS: wire.Status.LENGTH,
    wire.StopReason.CONTEXT: wire.Status.LENGTH,
    wire.StopReason.CANCELLED: wire.Status.CANCELLED,
    wire.StopReason.REFUSED: wire.Status.REFUSED,
    wire.StopReason.ERROR: wire.Status.FAILED,
}


class Phase(Enum):
    HELD = "held"  # accepted, not in the engine: it loads, restarts, or others go first
    SUBMITTED = "submitted"  # in the engine's queue
    STARTED = "started"  # in a sequence: its prompt is being read or its reply written
    ENDED = "ended"  # how it ends is decided; the end may still be on its way to the log


class ReplayMismatch(Exception):
    """The logged ids no longer make the text that was shown."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ends, before it is numbered."""

    stop_reason: str
    stop_string: str | None = None
    failure: wire.Failure | None = None
    usage: wire.Usage = field(default_factory=wire.Usage)
    timings: wire.Timings = field(default_factory=wire.Timings)
    exact: bool | None = None

    @property
    def status(self) -> str:
        return _STATUS[self.stop_reason]


@dataclass(frozen=True, slots=True)
class Sealed:
    """Numbered entries that follow those sealed before, and the end with the terminal one."""

    entries: list[LogEntry]
    end: RunEnd | None


@dataclass(frozen=True, slots=True)
class Job:
    """What a run was given; does not change."""

    id: str
    owner: str
    conversation: str
    message: str  # id of the reply
    model: str
    prompt: list[int]
    sampling: Sampling
    vocab_hash: str
    exact: bool | None  # None: as the engine has it by default
    interactive: bool
    accepted_at: float  # the loop's clock
    planned_s: float = 0.0
    yields: bool = False  # it ends as soon as any other run comes


class LiveRun:
    __slots__ = (
        "job",
        "stored",
        "phase",
        "cancelled",
        "log",
        "tokens",
        "backlog",
        "backlog_end",
        "waited_s",
        "_exact",
        "_replaying",
        "_text",
        "_next_seq",
        "_new_payloads",
        "_new_text",
        "_new_tokens",
        "_new_logprobs",
        "_ending",
    )

    def __init__(self, job: Job, *, stored: bool):
        self.job = job
        self.stored = stored  # False: in memory only
        self.phase = Phase.HELD
        self.cancelled = False  # the engine was told, or will not be given it again
        self.log = RunLog()
        self.tokens: list[int] = []  # every id received
        self.backlog: list[LogEntry] = []  # published, but the store could not take them
        self.backlog_end: RunEnd | None = None
        self.waited_s = 0.0  # from acceptance to the hand-over to the engine
        self._exact: bool | None = None  # all that was computed so far; None: nothing was
        self._replaying = False
        self._text: list[str] = []  # every text received
        self._next_seq = 1
        self._new_payloads: list[wire.Payload] = []
        self._new_text: list[str] = []
        self._new_tokens: list[int] = []
        self._new_logprobs: list[Logprob] = []
        self._ending: Ending | None = None

    @property
    def id(self) -> str:
        return self.job.id

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def in_engine(self) -> bool:
        return self.phase in (Phase.SUBMITTED, Phase.STARTED)

    def read(self, after: int = 0) -> Reader:
        return Reader(self.log, after)

    # ---- life

    def open(self, context: wire.Context, start: wire.MessageStart) -> None:
        """The events before the first delta."""
        self._new_payloads += [context, start, wire.BlockStart(index=0)]

    def restore(self, entries: list[LogEntry]) -> None:
        """Takes up what an earlier server logged. Before anything else of this run."""
        self.log.publish(entries)
        self._next_seq = len(entries) + 1
        for entry in entries:
            self.tokens += entry.tokens
            if isinstance(entry.payload, wire.BlockDelta):
                self._text.append(entry.payload.text)
            elif isinstance(entry.payload, wire.MessageStart):
                self._exact = entry.payload.exact

    def submit(self, now: float, *, exact: bool = False) -> Submit:
        """The hand-over to an engine, with the ids that it need not draw again. `exact`: it is
        to compute them in bit-equal steps."""
        assert self.phase is Phase.HELD, f"run {self.id} is {self.phase.value}"
        self.phase = Phase.SUBMITTED
        if not self.tokens:
            self.waited_s = now - self.job.accepted_at
        self._replaying = bool(self.tokens)
        before = bool(self._exact) if self.tokens else True  # not known: nothing is promised
        self._exact = before and exact and self.job.sampling.reproducible
        return Submit(
            run=self.id,
            prompt=self.job.prompt,
            sampling=self.job.sampling,
            emitted=list(self.tokens),
            owner=self.job.owner,
            interactive=self.job.interactive,
            exact=exact,
            group=self.job.conversation,
        )

    def start(self) -> None:
        """The engine has taken it into a sequence."""
        assert self.in_engine, f"run {self.id} is {self.phase.value}"
        self.phase = Phase.STARTED
        self.log.untell(wire.Queued)

    def lose_engine(self) -> None:
        """The engine that had it is gone."""
        if self.in_engine:
            self.phase = Phase.HELD
            self.log.untell(wire.Queued, wire.Prefill)

    def take(self, output: Output) -> None:
        """Collects one step's news. Raises ReplayMismatch; the run must then be ended."""
        if self._replaying and output.replayed is not None:
            self._replaying = False
            self._add_text(self._beyond_shown(output.replayed))
        self.tokens += output.tokens
        self._new_tokens += output.tokens
        self._new_logprobs += output.logprobs
        self._add_text(output.text)
        if output.tokens:
            self.log.untell(wire.Loading, wire.Queued, wire.Prefill)

    def finish(self, ending: Ending) -> None:
        """Decides how it ends; the events follow with the next `seal`."""
        assert self.phase is not Phase.ENDED, f"run {self.id} has ended before"
        self.phase = Phase.ENDED
        self._ending = ending

    def ending_of(self, finish: Finish) -> Ending:
        """The engine's end in our words."""
        failure = None
        if finish.reason == wire.StopReason.ERROR:
            failure = wire.Failure(
                finish.error_code or "engine_failed", finish.error or "The engine gave up on it."
            )
        usage = wire.Usage(finish.prompt_tokens, finish.cached_tokens, finish.completion_tokens)
        timings = wire.Timings(
            queued_s=self.waited_s + finish.queued_s,
            planned_s=self.job.planned_s,
            prefill_s=finish.prefill_s,
            first_decode_s=finish.first_decode_s,
            decode_s=finish.decode_s,
            token_p50_s=finish.token_p50_s,
            token_p99_s=finish.token_p99_s,
            token_max_s=finish.token_max_s,
            drafted=finish.drafted,
            accepted=finish.accepted,
            decoded=finish.decoded,
        )
        return Ending(finish.reason, finish.stop_string, failure, usage, timings, self._exact)

    def ending_here(self, stop_reason: str, failure: wire.Failure | None = None) -> Ending:
        """An end that the engine has no part in."""
        usage = wire.Usage(len(self.job.prompt), 0, len(self.tokens))
        timings = wire.Timings(queued_s=self.waited_s, planned_s=self.job.planned_s)
        return Ending(stop_reason, None, failure, usage, timings, self._exact)

    # ---- sealing

    @property
    def sealable(self) -> bool:
        return bool(self._new_payloads or self._new_text or self._ending is not None)

    def seal(self) -> Sealed:
        """Numbers what was collected: at most one delta, however many steps it took.

        Ids whose text is still held back wait for the next delta, or go with the end.
        """
        entries = [self._number(payload) for payload in self._new_payloads]
        self._new_payloads = []
        if self._new_text:
            delta = wire.BlockDelta(index=0, text="".join(self._new_text))
            entries.append(self._number(delta, self._new_tokens, self._new_logprobs))
            self._new_text, self._new_tokens, self._new_logprobs = [], [], []
        end = None
        if self._ending is not None:
            entries += [self._number(payload) for payload in _end_payloads(self._ending)]
            end = self._run_end(self._ending)
            self._ending = None
        return Sealed(entries, end)

    def _number(
        self,
        payload: wire.Payload,
        tokens: list[int] | None = None,
        logprobs: list[Logprob] | None = None,
    ) -> LogEntry:
        seq, self._next_seq = self._next_seq, self._next_seq + 1
        return LogEntry(seq, payload, tokens or [], logprobs or [])

    def _run_end(self, ending: Ending) -> RunEnd:
        text = self.text
        failure = ending.failure
        return RunEnd(
            status=ending.status,
            stop_reason=ending.stop_reason,
            text=text,
            blocks=[{"type": "text", "text": text}] if text else [],
            tokens=list(self.tokens),
            error=None if failure is None else f"{failure.code}: {failure.message}",
            usage=asdict(ending.usage),
            timings=asdict(ending.timings),
        )

    def _add_text(self, text: str) -> None:
        if text:
            self._text.append(text)
            self._new_text.append(text)

    def _beyond_shown(self, replayed: str) -> str:
        """What a replay makes showable beyond what was shown; normally nothing."""
        shown = self.text
        if not replayed.startswith(shown):
            raise ReplayMismatch
        return replayed[len(shown) :]


def _end_payloads(ending: Ending) -> list[wire.Payload]:
    return [
        wire.BlockStop(index=0),
        wire.MessageDelta(
            ending.stop_reason, ending.stop_string, ending.usage, ending.timings, ending.exact
        ),
        wire.MessageStop(ending.status, ending.stop_reason, ending.failure),
    ]
