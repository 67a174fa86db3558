"""A run of an earlier server, rebuilt from the store so that it can go on or be ended. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hobnob.server import sampling_options, wire
from hobnob.server.live import Job, LiveRun
from hobnob.server.log import LogEntry
from hobnob.store.values import Append, LoggedEvent, Run, RunEnd

INTERRUPTED = "interrupted"
"""Failure code of a run that was in flight too long ago to go on by itself."""


class LogUnreadable(Exception):
    """An event of the log, or what is kept with the run, is of no known type or form."""


def restore(run: Run, events: Sequence[LoggedEvent], *, now: float) -> LiveRun:
    """The live run as it was when its last event was logged. Raises LogUnreadable."""
    try:
        options, context = sampling_options.from_params(run.params), _context(run)
    except (msgspec.ValidationError, TypeError, ValueError, AttributeError) as error:
        raise LogUnreadable(f"the options of run {run.id}: {error}") from error
    job = Job(
        id=run.id,
        owner=run.owner,
        conversation=run.conversation,
        message=run.message,
        model=run.model,
        prompt=run.prompt,
        sampling=options.sampling,
        vocab_hash=run.vocab_hash,
        exact=options.exact,
        interactive=run.interactive,
        accepted_at=now,
    )
    live = LiveRun(job, stored=True)
    live.restore(entries_of(events))
    if not events:
        live.open(context, start_of(job, exact=None))
    return live


def start_of(job: Job, *, exact: bool | None) -> wire.MessageStart:
    return wire.MessageStart(
        run=job.id,
        conversation=job.conversation,
        message=job.message,
        model=job.model,
        seed=job.sampling.seed,
        exact=exact,
    )


def unreadable_end(run: Run, events: Sequence[LoggedEvent]) -> Append:
    """Ends a run whose log cannot be read, so that it has its terminal event like any other."""
    failure = wire.Failure("log_unreadable", "The log of this reply is damaged.")
    stop = wire.MessageStop(wire.Status.FAILED, wire.StopReason.ERROR, failure)
    texts = [wire.load(event.type, event.data) for event in events]
    text = "".join(payload.text for payload in texts if isinstance(payload, wire.BlockDelta))
    seq = events[-1].seq + 1 if events else 1
    end = RunEnd(
        status=stop.status,
        stop_reason=stop.stop_reason,
        text=text,
        blocks=[{"type": "text", "text": text}] if text else [],
        tokens=[],
        error=f"{failure.code}: {failure.message}",
    )
    return Append(run.id, [LoggedEvent(seq, stop.TYPE, wire.dump(stop))], end)


def entries_of(events: Sequence[LoggedEvent]) -> list[LogEntry]:
    """A whole log as entries. Raises LogUnreadable."""
    for number, event in enumerate(events, start=1):
        if event.seq != number:
            raise LogUnreadable(f"event {event.seq} is in the place of {number}")
    return [_entry(event) for event in events]


def _entry(event: LoggedEvent) -> LogEntry:
    payload = wire.load(event.type, event.data)
    if payload is None:
        raise LogUnreadable(f"event {event.seq} is a {event.type}")
    return LogEntry(event.seq, payload, event.tokens)


def _context(run: Run) -> wire.Context:
    """The first event, kept with the run in case it was never logged."""
    kept = run.params.get("context", {})
    return wire.Context(
        prompt_tokens=len(run.prompt),
        n_ctx=int(kept.get("n_ctx", 0)),
        included=int(kept.get("included", 0)),
        left_out=[str(id_) for id_ in kept.get("left_out", [])],
    )
