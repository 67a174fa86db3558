"""Runs that have ended, kept a while for readers that come late; bounded in number and bytes."""

from __future__ import annotations

from hobnob.server.live import LiveRun


class Finished:
    def __init__(self, max_runs: int, max_bytes: int):
        self._max_runs = max_runs
        self._max_bytes = max_bytes
        self._runs: dict[str, LiveRun] = {}  # oldest first
        self._bytes = 0

    def keep(self, live: LiveRun) -> None:
        """Older ones make room; one that is too large alone is not kept."""
        assert live.log.ended, f"run {live.id} has not ended"
        self._runs[live.id] = live
        self._bytes += live.log.size_bytes
        while self._runs and (len(self._runs) > self._max_runs or self._bytes > self._max_bytes):
            self._drop(next(iter(self._runs)))

    def find(self, run_id: str) -> LiveRun | None:
        return self._runs.get(run_id)

    def drop_conversation(self, owner: str, conversation: str) -> None:
        """Deleted means deleted: nothing of it stays in memory."""
        for live in list(self._runs.values()):
            if (live.job.owner, live.job.conversation) == (owner, conversation):
                self._drop(live.id)

    def _drop(self, run_id: str) -> None:
        self._bytes -= self._runs.pop(run_id).log.size_bytes
