"""The store's database in memory, on one thread: real SQL, and faults where a test wants them.

Stands in for `store.database.Database`. A commit happens between two waits whose length the seed
chooses; the disk can be full, and the process can die after any commit, before its answer. What
was committed stays for the next life.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import deque
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from hobnob.store.gate import gate
from hobnob.store.migrations import migrate
from hobnob.store.values import WriteFailed

PAUSES = [0.0] * 12 + [0.001, 0.02, 0.3, 4.0]


_MEMORY = """
CREATE TEMP TABLE deleted (run TEXT);
CREATE TEMP TRIGGER remember AFTER DELETE ON runs BEGIN
    INSERT INTO deleted VALUES (old.id);
END;
"""


@cache
def _template() -> sqlite3.Connection:
    conn = _connect()
    conn.execute("BEGIN")
    migrate(conn)
    conn.execute("COMMIT")
    return conn


def _connect() -> sqlite3.Connection:
    conn = sqlite3.connect(":memory:", isolation_level=None)
    conn.row_factory = sqlite3.Row
    conn.execute("PRAGMA foreign_keys = ON")
    return conn


class SimulatedDatabase:
    def __init__(self, dice: random.Random) -> None:
        self.path = Path("simulated")
        self.conn = _connect()
        _template().backup(self.conn)
        self.conn.executescript(_MEMORY)
        self.full = False
        self.dies_in: int | None = None
        """Commits left until the process dies, after the commit and before its answer."""
        self.dead = False
        self.commits = 0
        self._hangs_until = 0.0
        self._dice = dice
        self._unanswered: list[asyncio.Future[Any]] = []
        self._waiting: deque[tuple[Callable[[Any], Any], asyncio.Future[Any]]] = deque()

    def revive(self) -> None:
        """The next process opens the file, in the running loop; the disk has room again."""
        self.death: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.dead = self.full = False
        self._hangs_until = 0.0
        self.dies_in = None
        self._waiting.clear()
        self._unanswered.clear()

    def hang(self, seconds: float) -> None:
        """Nothing is written for so long, and nothing fails."""
        self._hangs_until = asyncio.get_running_loop().time() + seconds

    def dispose(self) -> None:
        self.conn.close()

    def was_deleted(self, run: str) -> bool:
        return bool(scalar(self.conn, "SELECT count(*) FROM temp.deleted WHERE run = ?", run))

    # ---- the face of Database

    async def open(self) -> None:
        return None

    async def close(self) -> None:
        return None

    async def checkpoint(self) -> bool:
        return True

    def write(
        self, function: Callable[[sqlite3.Connection], Any], *, durable: bool = False
    ) -> asyncio.Future[Any]:
        future = asyncio.get_running_loop().create_future()
        self._unanswered.append(future)
        self._waiting.append((function, future))
        if len(self._waiting) == 1:
            self._later(self._commit_next)
        return future

    async def read(self, function: Callable[[sqlite3.Connection], Any]) -> Any:
        await asyncio.sleep(self._pause())
        if self.dead:
            await self._forever()
        with gate():
            result = function(self.conn)
        await asyncio.sleep(self._pause())
        return result

    # ---- inside

    async def _forever(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self._unanswered.append(future)  # or the task that waits for it is collected
        await future

    def _pause(self) -> float:
        return self._dice.choice(PAUSES)

    def _later(self, call: Callable[..., object], *arguments: object) -> None:
        asyncio.get_running_loop().call_later(self._pause(), call, *arguments)

    def _commit_next(self) -> None:
        if self.dead or not self._waiting:
            return
        loop = asyncio.get_running_loop()
        if self._hangs_until > loop.time():
            loop.call_at(self._hangs_until, self._commit_next)
            return
        function, future = self._waiting.popleft()
        result, error = self._transaction(function)
        if not self.dead:
            self._later(_settle, future, result, error)
            if self._waiting:
                self._later(self._commit_next)

    def _transaction(self, function: Callable[[Any], Any]) -> tuple[Any, BaseException | None]:
        if self.full:
            return None, WriteFailed("The disk is full.")
        self.conn.execute("BEGIN IMMEDIATE")
        try:
            with gate():
                result = function(self.conn)
        except Exception as error:
            self.conn.execute("ROLLBACK")
            return None, error
        self.conn.execute("COMMIT")
        self.commits += 1
        if self.dies_in is not None:
            self.dies_in -= 1
            self.dead = self.dies_in <= 0
            if self.dead and not self.death.done():
                self.death.set_result(None)
        return result, None


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def scalar(conn: sqlite3.Connection, sql: str, *values: object) -> Any:
    with closing(conn.execute(sql, values)) as found:
        row = found.fetchone()
    return None if row is None else row[0]
