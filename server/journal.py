"""Logged before shown: what runs have collected → one append for all of them → publish.

What comes in while an append runs is merged into the next one; nothing waits for the disk but the
readers, and they not for long. When the store cannot write, or does not answer, the readers are
told first, the runs go on in memory, and the backlog is written, in order, as soon as writes work
again. One task owns the appending; there is one append at a time.
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

TROUBLED_PATIENCE_SECONDS = 0.05
"""How long readers wait for an append while the store is known to be in trouble."""

_FOR_GOOD = (Closed, Stale)
"""The writer has ended, or another server has taken over: its runs are no longer ours to show."""

_DELETED = "Its conversation was deleted."
_SLOW = "The reply is not being saved: the disk does not answer."


class LogStore(Protocol):
    """The two verbs of the store that the journal needs."""

    async def append(self, batch: list[Append]) -> list[str]: ...

    async def set_attempt(self, run_ids: list[str]) -> None: ...


@dataclass(frozen=True, slots=True)
class _Part:
    """What one run gives to an append; more may be owed by the time it is answered."""

    live: LiveRun
    append: Append


@dataclass(slots=True)
class _Answer:
    """What the store said to an append; parts in neither list are still owed."""

    taken: list[_Part] = field(default_factory=list)
    refused: list[tuple[_Part, str]] = field(default_factory=list)
    failure: WriteFailed | None = None


@dataclass(frozen=True, slots=True)
class _Write:
    """An append that is under way."""

    task: asyncio.Task[_Answer]
    begun_at: float
    attempts: list[str]


@dataclass(slots=True)
class _Outcome:
    """Runs that owe nothing any more."""

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
        patience_s: float,
    ):
        """`patience_s`: for so long readers wait for an append; then they are told, and shown
        what is not saved yet.

        `settled`: the run's end is published, and saved if it is to be saved. Once per run.

        `lost`: the store refuses this run's log for good (its conversation is gone); from here on
        the run is in memory only.
        """
        self._store = store
        self._retry_s = retry_s
        self._settled = settled
        self._lost = lost
        self._patience_s = patience_s
        self._dirty: dict[str, LiveRun] = {}
        self._attempts: list[str] = []
        self._owed: dict[str, LiveRun] = {}  # runs with a backlog
        self._write: _Write | None = None
        self._retry_at: float | None = None  # set while the store cannot write
        self._overdue = False  # the append under way takes longer than readers wait
        self._slow = False  # the last one took longer
        self._why = ""
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def saving(self) -> bool:
        """False while the store cannot write, or does not answer."""
        return self._retry_at is None and not self._overdue

    @property
    def owing(self) -> int:
        """Runs that have something which is not saved."""
        return len(self._owed)

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
        try:
            while True:
                await self._something_to_do()
                await self._round()
                if not (self._wake.is_set() or self._write):
                    self._idle.set()
        finally:
            if self._write is not None:
                self._write.task.cancel()

    async def drain(self, seconds: float) -> None:
        """Waits until all that was touched is logged or known to be unsaved, but not longer. What
        could not be saved before is tried once more: there may be room again."""
        if self._owed:
            self._retry_at = None if self._retry_at is None else 0.0
            self._stir()
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return  # what is not logged was not shown, or said to be unsaved

    def _stir(self) -> None:
        self._idle.clear()
        self._wake.set()

    async def _something_to_do(self) -> None:
        waiting = (self._owed or self._attempts) and self._write is None
        try:
            async with asyncio.timeout_at(self._retry_at if waiting else None):
                await self._wake.wait()
        except TimeoutError:
            return  # time to try the backlog again
        finally:
            self._wake.clear()

    async def _round(self) -> None:
        touched, self._dirty = list(self._dirty.values()), {}
        sealed = [(live, live.seal()) for live in touched]
        for live, part in sealed:
            live.backlog += part.entries
            live.backlog_end = part.end or live.backlog_end
            self._owed[live.id] = live
        outcome = await self._save()
        for live in self._owed.values():
            if not live.log.tells(wire.NotSaved):
                live.log.tell(wire.NotSaved(self._why))
        for live, part in sealed:
            live.log.publish(part.entries, ended=part.end is not None)
        for live in outcome.saved:
            live.log.untell(wire.NotSaved)
            if live.log.ended:
                self._settled(live)
        for live, why in outcome.refused:
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

    async def _save(self) -> _Outcome:
        """Goes on with saving what is owed, for as long as readers can wait for it."""
        outcome = _Outcome()
        if self._write is not None and self._write.task.done():
            self._take_answer(self._write, outcome)
        if self._due():
            troubled = self._slow or not self.saving
            patience_s = TROUBLED_PATIENCE_SECONDS if troubled else self._patience_s
            self._write = write = self._begin_write()
            done, _ = await asyncio.wait([write.task], timeout=patience_s)
            if done:
                self._take_answer(write, outcome)
            else:
                write.task.add_done_callback(lambda _: self._wake.set())
        if self._write is not None and self._retry_at is None:
            self._overdue, self._why = True, _SLOW
        return outcome

    def _due(self) -> bool:
        """Whether to try: a store that cannot write is not asked at every step."""
        if self._write is not None or not (self._owed or self._attempts):
            return False
        return self._retry_at is None or _now() >= self._retry_at

    def _begin_write(self) -> _Write:
        parts = [_Part(live, _append(live)) for live in self._owed.values()]
        attempts, self._attempts = self._attempts, []
        task = asyncio.create_task(self._ask(parts, attempts), name="append")
        return _Write(task, _now(), attempts)

    async def _ask(self, parts: list[_Part], attempts: list[str]) -> _Answer:
        """Appends what is owed, all runs at once. Raises _FOR_GOOD: nothing can be logged."""
        try:
            await self._note_attempts(attempts)
            if not parts:
                return _Answer()
            passed_over = set(await self._store.append([part.append for part in parts]))
        except _FOR_GOOD:
            raise
        except WriteFailed as error:
            return _Answer(failure=error)
        except StoreError:
            return await self._ask_for_each(parts)
        return _Answer(
            [part for part in parts if part.live.id not in passed_over],
            [(part, _DELETED) for part in parts if part.live.id in passed_over],
        )

    async def _ask_for_each(self, parts: list[_Part]) -> _Answer:
        """Something is wrong with one of them: the others must not suffer for it."""
        answer = _Answer()
        for part in parts:
            try:
                passed_over = await self._store.append([part.append])
            except _FOR_GOOD:
                raise
            except WriteFailed as error:
                answer.failure = error
                return answer
            except StoreError as error:
                answer.refused.append((part, str(error)))
            else:
                if passed_over:
                    answer.refused.append((part, _DELETED))
                else:
                    answer.taken.append(part)
        return answer

    async def _note_attempts(self, attempts: list[str]) -> None:
        """Counts hand-overs. Only for diagnosis, so only what hinders every write is an error."""
        if not attempts:
            return
        try:
            await self._store.set_attempt(attempts)
        except WriteFailed:
            raise
        except StoreError:
            pass
        attempts.clear()  # or a later try would count them again

    def _take_answer(self, write: _Write, outcome: _Outcome) -> None:
        self._write, self._overdue = None, False
        answer = write.task.result()
        for part in answer.taken:
            if self._paid(part):
                outcome.saved.append(part.live)
        for part, why in answer.refused:
            del self._owed[part.live.id]
            outcome.refused.append((part.live, why))
        self._slow = _now() - write.begun_at > self._patience_s
        if answer.failure is None:
            self._retry_at = None
            return
        self._attempts = write.attempts + self._attempts
        self._retry_at = _now() + self._retry_s
        self._why = f"The reply is not being saved: {answer.failure}"

    def _paid(self, part: _Part) -> bool:
        """The store has this part. Whether the run owes nothing any more."""
        live = part.live
        del live.backlog[: len(part.append.events)]
        if part.append.end is not None:
            live.backlog_end = None
        if live.backlog or live.backlog_end is not None:
            return False
        del self._owed[live.id]
        return True


def _append(live: LiveRun) -> Append:
    return Append(live.id, [logged(entry) for entry in live.backlog], live.backlog_end)


def logged(entry: LogEntry) -> LoggedEvent:
    """As the store takes it."""
    payload = entry.payload
    return LoggedEvent(entry.seq, payload.TYPE, wire.dump(payload), entry.tokens)


def _now() -> float:
    return asyncio.get_running_loop().time()
