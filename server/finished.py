"""Logs of runs that have ended, kept a while for readers that come late; bounded in number and
bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from hobnob.server import recovery
from hobnob.server.errors import Gone
from hobnob.server.live import LiveRun
from hobnob.server.log import Reader, RunLog
from hobnob.store.values import LoggedEvent


@dataclass(frozen=True, slots=True)
class Followable:
    """What a reader needs of a run. Not the prompt, which is larger than most replies."""

    id: str
    owner: str
    conversation: str
    message: str
    log: RunLog

    @classmethod
    def of(cls, live: LiveRun) -> Self:
        job = live.job
        return cls(job.id, job.owner, job.conversation, job.message, live.log)


class Finished:
    def __init__(self, max_runs: int, max_bytes: int):
        self._max_runs = max_runs
        self._max_bytes = max_bytes
        self._runs: dict[str, Followable] = {}  # oldest first
        self._bytes = 0

    def keep(self, run: Followable) -> None:
        """Older ones make room; one that is too large alone is not kept."""
        assert run.log.ended, f"run {run.id} has not ended"
        self._runs[run.id] = run
        self._bytes += run.log.size_bytes
        while self._runs and (len(self._runs) > self._max_runs or self._bytes > self._max_bytes):
            self._drop(next(iter(self._runs)))

    def find(self, run_id: str) -> Followable | None:
        return self._runs.get(run_id)

    def drop_conversation(self, owner: str, conversation: str) -> None:
        """Deleted means deleted: nothing of it stays in memory."""
        for run in list(self._runs.values()):
            if (run.owner, run.conversation) == (owner, conversation):
                self._drop(run.id)

    def _drop(self, run_id: str) -> None:
        self._bytes -= self._runs.pop(run_id).log.size_bytes


def stored_log(events: list[LoggedEvent] | None, message_id: str) -> RunLog:
    """Of a run that ended. Raises Gone where the log was pruned (None) or is damaged."""
    if events is None:
        raise Gone("The log of this run was pruned.", message_id=message_id)
    log = RunLog()
    try:
        log.publish(recovery.entries_of(events), ended=True)
    except recovery.LogUnreadable:
        raise Gone("The log of this run is damaged.", message_id=message_id) from None
    return log


def reader_of(log: RunLog, after: int, message_id: str) -> Reader:
    """From `after` on. Raises Gone for a cursor ahead of the log."""
    if after > log.last_seq:
        raise Gone(
            f"The log of this run ends at {log.last_seq}, before {after}: read it from the start, "
            "or read the stored message.",
            message_id=message_id,
        )
    return Reader(log, after)
