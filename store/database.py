"""The database file as the store uses it: functions that write, functions that read.

Writes go one after the other through the writer's thread (writer.py). Reads run side by side on
a few threads, each with a read-only connection, each seeing one state of the database. All of
sqlite3's errors come out as the store's (gate.py).
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar, cast

from hobnob.store import schema
from hobnob.store.gate import gate
from hobnob.store.values import Closed, Stale
from hobnob.store.writer import Writer

LOCK_WAIT_SECONDS = 30.0
"""How long a write waits while another program holds the database locked."""

READERS = 3
READ_LOCK_WAIT_SECONDS = 5.0
"""Readers only meet locks while another process recovers or closes the database."""

CLOSE_READERS_SECONDS = 0.5
CLOSE_WRITER_SECONDS = 3.0

T = TypeVar("T")
Function = Callable[[sqlite3.Connection], T]


class Database:
    """Of one event loop. `open` first; `close` may be called at any time and again."""

    def __init__(
        self,
        path: Path,
        *,
        wait_s: float = LOCK_WAIT_SECONDS,
        full: bool = False,
        on_taken_over: Callable[[Stale], None] = lambda _: None,
    ) -> None:
        """`full`: writes that ask for it outlive a loss of power (writer.py). `on_taken_over` is
        called with each write that is refused as Stale."""
        self.path = Path(os.path.realpath(path))  # copies of it and its WAL lie there, not at links
        self._on_taken_over = on_taken_over
        self._writer = Writer(path, wait_s=wait_s, full=full)
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="store-reader")
        self._local = threading.local()
        self._readers: list[sqlite3.Connection] = []
        self._closed = False

    async def open(self) -> None:
        """Creates and migrates the file. Raises SchemaTooNew, Damaged, WriteFailed."""
        await self._writer.open()

    def write(self, function: Function[T], *, durable: bool = False) -> asyncio.Future[T]:
        """Runs function(connection) in a transaction of its own, after all earlier calls.

        What it raises rolls everything back and comes out here. Queued by the call itself;
        cancelling the wait does not cancel the write.
        """
        future = self._writer.submit(function, transaction=True, durable=durable)
        future.add_done_callback(self._written)
        return future

    def outside(self, function: Function[T]) -> asyncio.Future[T]:
        """Runs function(writer's connection) between transactions, for what can't be in one."""
        return self._writer.submit(function, transaction=False)

    async def read(self, function: Function[T]) -> T:
        """Runs function(connection) on one state of the database, beside the writer."""

        def consistently(conn: sqlite3.Connection) -> T:
            conn.execute("BEGIN")
            try:
                return function(conn)
            finally:
                if conn.in_transaction:
                    conn.execute("ROLLBACK")

        return await self.with_reader(consistently)

    async def with_reader(self, function: Function[T]) -> T:
        """Runs function(read-only connection), outside a transaction."""
        if self._closed:
            raise Closed("The store is closed.")

        def run() -> T:
            if self._closed:  # while this one waited for a thread
                raise Closed("The store is closed.")
            with gate():
                return function(self._reader())

        return await asyncio.get_running_loop().run_in_executor(self._pool, run)

    async def checkpoint(self) -> bool:
        """Moves all of the WAL into the file and empties it; False if a reader is in the way."""

        def truncate(conn: sqlite3.Connection) -> bool:
            busy, _, _ = conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return not busy

        return await self.outside(truncate)

    async def close(self) -> None:
        """Runs what was submitted, then lets go of the file. Bounded, and safe to call twice."""
        self._closed = True
        self._writer.close()
        await asyncio.to_thread(self._close_readers)
        await asyncio.to_thread(self._writer.join, CLOSE_WRITER_SECONDS)

    def closing(self) -> bool:
        """Whether readers are to come to an end. From any thread."""
        return self._closed

    def _written(self, future: asyncio.Future[Any]) -> None:
        error = None if future.cancelled() else future.exception()
        if isinstance(error, Stale):
            self._on_taken_over(error)

    # ---- the readers' threads ----

    def _reader(self) -> sqlite3.Connection:
        conn = getattr(self._local, "conn", None)
        if conn is None:
            conn = schema.connect_read_only(self.path, wait_s=READ_LOCK_WAIT_SECONDS)
            self._local.conn = conn
            self._readers.append(conn)
        return cast(sqlite3.Connection, conn)

    def _close_readers(self) -> None:
        done = threading.Event()
        impatience = threading.Thread(target=self._interrupt_readers, args=(done,), daemon=True)
        impatience.start()
        self._pool.shutdown(wait=True)
        done.set()
        impatience.join()
        while self._readers:
            self._readers.pop().close()

    def _interrupt_readers(self, done: threading.Event) -> None:
        """Again and again: an interrupt ends one statement, and a function may have several."""
        while not done.wait(CLOSE_READERS_SECONDS):
            for conn in list(self._readers):
                conn.interrupt()
