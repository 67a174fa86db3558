"""When what was deleted is overwritten: soon, once for a burst of deletions, and until it is done.

Overwriting merges the whole search index, so it waits for a moment without another deletion. A
reader or a full disk that is in the way is met again later; the mark in the database (upkeep.py)
outlives the process.
"""

from __future__ import annotations

import asyncio

from hobnob.store import upkeep
from hobnob.store.database import Database
from hobnob.store.values import Closed, Stale, StoreError

QUIET_SECONDS = 0.25
LONGEST_SECONDS = 5.0
"""A burst that does not end is not waited for any longer."""

RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 60.0

CLOSING_SECONDS = 1.0
"""How long closing waits for it. What is left is done after the next start."""


class Eraser:
    """Of one event loop."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._woken_at = 0.0
        self._merged: int | None = None  # the mark whose words the index has no more

    def wake(self) -> None:
        """Something was deleted, and is marked in the database."""
        self._woken_at = _now()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work(), name="erasing")

    async def erased(self) -> None:
        """Waits until nothing is left to do, however long something is in the way."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def close(self) -> None:
        """Does it now, if it can be done in time. Safe to call twice."""
        self._closing.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=CLOSING_SECONDS)
            self._task.cancel()

    async def _work(self) -> None:
        """Once more where something was deleted while the end was being looked for."""
        while True:
            woken_at = self._woken_at
            await self._work_once()
            if woken_at == self._woken_at or self._closing.is_set():
                return

    async def _work_once(self) -> None:
        begun_at = _now()
        while (
            rest_s := min(self._woken_at + QUIET_SECONDS, begun_at + LONGEST_SECONDS) - _now()
        ) > 0:
            if await self._closes_within(rest_s):
                break
        retry_s = RETRY_SECONDS
        while not await self._erase():
            if await self._closes_within(retry_s):
                return
            retry_s = min(retry_s * 2, LONGEST_RETRY_SECONDS)

    async def _erase(self) -> bool:
        """Whether nothing is left to do, or not by us."""
        try:
            mark = await self._db.read(upkeep.erasure_mark)
            if mark is None:
                return True
            if self._merged != mark:
                more = await self._db.write(lambda c: upkeep.merge_index(c, begin=True))
                while more:
                    more = await self._db.write(lambda c: upkeep.merge_index(c, begin=False))
                self._merged = mark
            if not await self._db.checkpoint():
                return False
            await self._db.write(lambda c: upkeep.clear_erasure_mark(c, mark))
            return await self._db.read(upkeep.erasure_mark) is None
        except (Closed, Stale):
            return True
        except StoreError:
            return False  # a full disk; the rows are gone, which is what the caller asked

    async def _closes_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._closing.wait()
        except TimeoutError:
            return False
        return True


def _now() -> float:
    return asyncio.get_running_loop().time()
