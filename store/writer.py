"""The one thread that writes the database, and owns its only connection that can.

Functions are run in the order of submission, each in its own transaction: all of it or nothing.
A function may be refused (Closed, Stale, WriteFailed) but is never left out in silence; the
thread goes on after a failed one. Checkpoints happen here when nothing is waiting, or past a
bound. (Not on a connection of their own: SQLite before 3.51.3 can lose a reset WAL to that.)
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hobnob.store import upkeep
from hobnob.store.connection import begin, open_writer
from hobnob.store.gate import gate
from hobnob.store.values import Closed, Stale, WriteFailed

MAX_WAITING = 10_000
"""Functions that may wait; callers await theirs, so reaching it means that the disk hangs."""

IDLE_SECONDS = 1.0
WAL_BOUND_BYTES = 16 * 1024 * 1024
"""A checkpoint costs an fsync (some 20 ms): when idle for a second, or past this much WAL."""

CLOSING_WAIT_SECONDS = 1.0
"""How long functions that still wait at close() may wait for another program's lock, together."""

Action = Callable[[sqlite3.Connection], Any]


@dataclass(slots=True)
class _Task:
    action: Action
    future: asyncio.Future[Any]
    transaction: bool
    durable: bool  # with `full`: on the disk itself when it is done


class Writer:
    def __init__(self, path: Path, *, wait_s: float, full: bool = False) -> None:
        """`full`: durable commits outlive a loss of power, for the price of an fsync each."""
        self._path = path
        self._wait_s = wait_s
        self._full = full
        self._queue: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._entry = threading.Lock()  # guards _closed and the order of the queue's end
        self._closed = False
        self._give_up_at: float | None = None  # monotonic; set by close()
        self._may_close = threading.Event()
        self._thread: threading.Thread | None = None
        # Of the thread alone:
        self._epoch = 0
        self._file: tuple[int, int] | None = None  # device and inode of what was opened
        self._wal = f"{os.path.realpath(path)}-wal"  # beside the file, not beside a link to it
        self._log: tuple[int, int] | None = None  # its device and inode
        self._wal_seen_bytes = 0
        self._checkpoint_at_bytes = WAL_BOUND_BYTES
        self._behind = False  # the WAL holds what the database file does not

    # ---- any thread with a running event loop ----

    async def open(self) -> None:
        """Starts the thread and waits for the open database. Raises StoreError."""
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._thread = threading.Thread(
            target=self._run, args=(opened,), name="store-writer", daemon=True
        )
        self._thread.start()
        await opened

    def submit(
        self, action: Action, *, transaction: bool, durable: bool = False
    ) -> asyncio.Future[Any]:
        """Queues the action now. Cancelling the future does not cancel the action."""
        with self._entry:
            if self._closed:
                raise Closed("The store is closed.")
            if self._queue.qsize() >= MAX_WAITING:
                raise WriteFailed("Too many writes are waiting for the disk.")
            future = asyncio.get_running_loop().create_future()
            task = _Task(action, future, transaction, durable and self._full)
            self._queue.put(task)
        return task.future

    def close(self) -> None:
        """Takes nothing more; what waits is still run. Returns at once, safe to call twice."""
        with self._entry:
            if not self._closed:
                self._closed = True
                self._give_up_at = time.monotonic() + CLOSING_WAIT_SECONDS
                self._queue.put(None)

    def join(self, timeout_s: float) -> bool:
        """Lets the thread close its connection once its queue is empty, and waits for its end.

        To be called when no reader has the file open any more: the last connection to close
        removes the WAL.
        """
        self._may_close.set()
        if self._thread is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # ---- the writer's thread ----

    def _run(self, opened: asyncio.Future[None]) -> None:
        try:
            with gate():
                conn, self._epoch = open_writer(self._path, wait_s=self._wait_s)
                self._file, self._log = _identity(self._path), _identity(Path(self._wal))
        except BaseException as error:
            self.close()
            _deliver(opened, None, error)
            return
        _deliver(opened, None, None)
        try:
            while (task := self._next(conn)) is not None:
                self._serve(conn, task)
            self._may_close.wait()
        finally:
            self._refuse_the_rest()  # where a fault of ours ends the thread
            conn.close()
            self._take_log_away()

    def _take_log_away(self) -> None:
        """Where another file has taken the database's place, SQLite leaves our log beside it, and
        would apply it to that one."""
        with suppress(OSError, WriteFailed):
            here = _identity(self._path)
            if here in (None, self._file) or _identity(Path(self._wal)) != self._log:
                return
            kept = upkeep.dated(self._path)
            for ending in ("-shm", "-wal"):  # without the log the other is made anew
                left = Path(f"{os.path.realpath(self._path)}{ending}")
                if left.exists():
                    left.rename(kept.with_name(f"{kept.name}{ending}"))

    def _refuse_the_rest(self) -> None:
        """Nobody may wait for a thread that has ended."""
        self.close()
        while True:
            try:
                task = self._queue.get_nowait()
            except queue.Empty:
                return
            if task is not None:
                _deliver(task.future, None, Closed("The thread that writes has ended."))

    def _next(self, conn: sqlite3.Connection) -> _Task | None:
        """The next task, after a checkpoint if it is long in coming; None at the end."""
        while self._behind:
            try:
                return self._queue.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                self._checkpoint(conn)
        return self._queue.get()

    def _serve(self, conn: sqlite3.Connection, task: _Task) -> None:
        try:
            with gate():
                with _synchronous(conn, full=task.durable):
                    run = self._in_transaction if task.transaction else _plainly
                    result = run(conn, task.action)
        except BaseException as error:
            _deliver(task.future, None, error)
        else:
            _deliver(task.future, result, None)
        if task.transaction:
            self._watch_wal(conn)

    def _in_transaction(self, conn: sqlite3.Connection, action: Action) -> Any:
        begin(conn, self._deadline())
        try:
            (epoch,) = conn.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone()
            if epoch != self._epoch:
                raise Stale("Another server has taken over the database.")
            if _identity(self._path) != self._file:  # SQLite would write on where nobody reads
                raise Stale(f"The database {self._path} was removed, or replaced by another file.")
            result = action(conn)
            conn.execute("COMMIT")
        except BaseException:
            if conn.in_transaction:
                conn.execute("ROLLBACK")
            raise
        return result

    def _deadline(self) -> Callable[[], float]:
        """When to stop waiting for another program's lock: sooner once the store closes."""
        own = time.monotonic() + self._wait_s
        return lambda: own if self._give_up_at is None else min(own, self._give_up_at)

    def _watch_wal(self, conn: sqlite3.Connection) -> None:
        self._behind = True
        size = self._wal_bytes()
        if size < self._wal_seen_bytes:  # SQLite has started it anew
            self._checkpoint_at_bytes = WAL_BOUND_BYTES
        self._wal_seen_bytes = size
        if size > self._checkpoint_at_bytes:
            self._checkpoint(conn)

    def _checkpoint(self, conn: sqlite3.Connection) -> None:
        try:
            busy, frames, moved = conn.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            self._behind = bool(busy) or frames != moved
        except sqlite3.Error:
            pass  # a full disk: the WAL still holds everything, and the next write tells the user
        # Where a reader held it up, not again with every write.
        self._checkpoint_at_bytes = self._wal_seen_bytes + WAL_BOUND_BYTES

    def _wal_bytes(self) -> int:
        try:
            return os.stat(self._wal).st_size
        except OSError:  # not there yet, or the file system is in trouble: the next write says so
            return 0


def _identity(path: Path) -> tuple[int, int] | None:
    """Of the file of that name; None where there is none. Raises WriteFailed."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise WriteFailed(f"The database cannot be used ({error.strerror}).") from error
    return found.st_dev, found.st_ino


@contextmanager
def _synchronous(conn: sqlite3.Connection, *, full: bool) -> Iterator[None]:
    """With `full`, a commit in here waits until the disk has it, and all that came before."""
    if not full:
        yield
        return
    conn.execute("PRAGMA synchronous = FULL")
    try:
        yield
    finally:
        conn.execute("PRAGMA synchronous = NORMAL")


def _plainly(conn: sqlite3.Connection, action: Action) -> Any:
    return action(conn)


def _deliver(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    """The outcome to whoever waits for it; dropped when nobody does any more."""

    def settle() -> None:
        if future.done():  # cancelled
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    try:
        future.get_loop().call_soon_threadsafe(settle)
    except RuntimeError:  # the loop is closed
        pass
