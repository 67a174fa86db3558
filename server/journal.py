"""Logged before shown: what runs have collected → one append for all of them → publish.

What comes in while an append runs is merged into the next one; nothing waits for the disk but the
readers. When the store cannot write, the readers are told first, the runs go on in memory, and
the backlog is written, in order, as soon as writes work again. One task owns the appending.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from hobnob.server import wire
from hobnob.server.live import LiveRun
from hobnob.server.log import LogEntry
from hobnob.store.values import Append, Closed, LoggedEvent, Stale, StoreError, WriteFailed

_FOR_GOOD = (Closed, Stale)
"""The writer has ended, or another server has taken over: its runs are no longer ours to show."""

_DELETED = "Its conversation was deleted."


class LogStore(Protocol):
    """The two verbs of the store that the journal needs."""

    async def append(self, batch: list[Append]) -> list[str]: ...

    async def set_attempt(self, run_ids: list[str]) -> None: ...


@dataclass(frozen=True, slots=True)
class _Written:
    """What became of the runs that owed something; those in neither list still owe it."""

    saved: list[LiveRun] = field(default_factory=list)
    refused: list[tuple[LiveRun, str]] = field(default_factory=list)


class Journal:
    def __init__(
        self,
        store: LogStore,
        *,
        retry_s: float,
        settled: Callable[[LiveRun], None],
        lost: Callable[[LiveRun, str], None],
    ):
        """`settled`: the run's end is published, and saved if it is to be saved. Once per run.

        `lost`: the store refuses this run's log for good (its conversation is gone); from here on
        the run is in memory only.
        """
        self._store = store
        self._retry_s = retry_s
        self._settled = settled
        self._lost = lost
        self._dirty: dict[str, LiveRun] = {}
        self._attempts: list[str] = []
        self._owed: dict[str, LiveRun] = {}  # runs with a backlog
        self._retry_at: float | None = None  # set while the store cannot write
        self._why = ""
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def saving(self) -> bool:
        """False while the store cannot write."""
        return self._retry_at is None

    def touch(self, live: LiveRun) -> None:
        """The run has something to seal. A run in memory only is published at once."""
        if not live.stored:
            self._show(live)
            return
        self._dirty[live.id] = live
        self._stir()

    def attempt(self, run_id: str) -> None:
        """Notes that the run was handed to an engine."""
        self._attempts.append(run_id)
        self._stir()

    async def run(self) -> None:
        """Works until cancelled."""
        while True:
            await self._something_to_do()
            await self._round()
            if not (self._dirty or self._attempts):
                self._idle.set()

    async def drain(self, seconds: float) -> None:
        """Waits until all that was touched is logged or known to be unsaved, but not longer."""
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return  # what is not logged was not shown; it is generated again

    def _stir(self) -> None:
        self._idle.clear()
        self._wake.set()

    async def _something_to_do(self) -> None:
        try:
            async with asyncio.timeout_at(self._retry_at if self._owed else None):
                await self._wake.wait()
        except TimeoutError:
            return  # time to try the backlog again
        finally:
            self._wake.clear()

    async def _round(self) -> None:
        await self._note_attempts()
        touched, self._dirty = list(self._dirty.values()), {}
        sealed = [(live, live.seal()) for live in touched]
        for live, part in sealed:
            live.backlog += part.entries
            live.backlog_end = part.end or live.backlog_end
            self._owed[live.id] = live
        result = await self._write_backlog() if self._due() else _Written()
        for live in self._owed.values():
            if not live.log.tells(wire.NotSaved):
                live.log.tell(wire.NotSaved(self._why))
        for live, part in sealed:
            live.log.publish(part.entries, ended=part.end is not None)
        for live in result.saved:
            live.log.untell(wire.NotSaved)
            if live.log.ended:
                self._settled(live)
        for live, why in result.refused:
            self._give_up(live, why)

    def _give_up(self, live: LiveRun, why: str) -> None:
        """From here on the run is in memory only."""
        live.stored = False
        live.backlog, live.backlog_end = [], None
        if live.log.ended:
            self._settled(live)
            return
        if self._dirty.pop(live.id, None) is not None:
            self._show(live)
        if not live.log.ended:
            self._lost(live, why)

    def _show(self, live: LiveRun) -> None:
        """Publishes what a run in memory only has collected."""
        part = live.seal()
        live.log.publish(part.entries, ended=part.end is not None)
        if live.log.ended:
            self._settled(live)

    # ---- the store

    def _due(self) -> bool:
        """Whether to try: a store that cannot write is not asked at every step."""
        now = asyncio.get_running_loop().time()
        return bool(self._owed) and (self._retry_at is None or now >= self._retry_at)

    async def _write_backlog(self) -> _Written:
        """Appends what is owed, all runs at once."""
        owed = list(self._owed.values())
        try:
            passed_over = set(await self._store.append([_append(live) for live in owed]))
        except _FOR_GOOD:
            raise  # this server can log nothing any more
        except WriteFailed as error:
            self._note_failure(error)
            return _Written()
        except StoreError:
            return await self._write_each(owed)
        self._note_answered(owed)
        return _Written(
            [live for live in owed if live.id not in passed_over],
            [(live, _DELETED) for live in owed if live.id in passed_over],
        )

    async def _write_each(self, owed: list[LiveRun]) -> _Written:
        """Something is wrong with one of them: the others must not suffer for it."""
        result = _Written()
        for live in owed:
            try:
                passed_over = await self._store.append([_append(live)])
            except _FOR_GOOD:
                raise
            except WriteFailed as error:
                self._note_failure(error)
                return result
            except StoreError as error:
                result.refused.append((live, str(error)))
            else:
                if passed_over:
                    result.refused.append((live, _DELETED))
                else:
                    result.saved.append(live)
            self._note_answered([live])
        return result

    def _note_answered(self, runs: list[LiveRun]) -> None:
        """The store has taken what these owed, or will never take it."""
        self._retry_at = None
        for live in runs:
            live.backlog = []
            live.backlog_end = None
            del self._owed[live.id]

    def _note_failure(self, error: StoreError) -> None:
        self._retry_at = asyncio.get_running_loop().time() + self._retry_s
        self._why = f"The reply is not being saved: {error}"

    async def _note_attempts(self) -> None:
        """Counts hand-overs. Only for diagnosis, so a failing store is not told to anyone."""
        attempts, self._attempts = self._attempts, []
        if not attempts:
            return
        try:
            await self._store.set_attempt(attempts)
        except StoreError:
            return


def _append(live: LiveRun) -> Append:
    return Append(live.id, [logged(entry) for entry in live.backlog], live.backlog_end)


def logged(entry: LogEntry) -> LoggedEvent:
    """As the store takes it."""
    payload = entry.payload
    return LoggedEvent(entry.seq, payload.TYPE, wire.dump(payload), entry.tokens)
