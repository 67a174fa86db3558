"""Opening the database for writing: private files, settings, WAL, schema, a new epoch.

Safe against any number of processes that open the same file at once: one migrates, the others
wait for it. The last to open owns the file; the epoch tells the earlier ones.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from hobnob.store import schema, soundness
from hobnob.store.values import StoreError, WriteFailed

LOCK_SLICE_SECONDS = 0.25
"""SQLite's own wait for a lock; a longer wait repeats it, so that it can be given up."""

_MINIMUM_SQLITE = (3, 37, 0)  # STRICT tables

T = TypeVar("T")


def open_writer(path: Path, *, wait_s: float) -> tuple[sqlite3.Connection, int]:
    """The migrated database and its new epoch. Raises StoreError and sqlite3 errors.

    Belongs to the calling thread.
    """
    if sqlite3.sqlite_version_info < _MINIMUM_SQLITE:
        raise StoreError(f"SQLite {sqlite3.sqlite_version} is too old: 3.37 or newer is needed.")
    _make_private(path)
    schema.refuse_foreign_or_newer(path, wait_s=wait_s)
    conn = sqlite3.connect(path, isolation_level=None, timeout=LOCK_SLICE_SECONDS)
    conn.row_factory = sqlite3.Row
    try:
        return conn, _prepare(conn, time.monotonic() + wait_s)
    except BaseException:
        conn.close()
        raise


def begin(conn: sqlite3.Connection, deadline: Callable[[], float]) -> None:
    """BEGIN IMMEDIATE, waiting for other processes until the deadline, which may move."""
    patiently(lambda: conn.execute("BEGIN IMMEDIATE"), deadline)


def patiently(action: Callable[[], T], deadline: Callable[[], float]) -> T:
    """Repeats what found the database locked. Raises the last error after the deadline."""
    while True:
        try:
            return action()
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() >= deadline():
                raise
            time.sleep(0.01)  # some kinds of busy do not wait in SQLite


def _prepare(conn: sqlite3.Connection, deadline: float) -> int:
    for setting in (
        "foreign_keys = ON",
        "secure_delete = ON",  # deleted text is overwritten, not only unlinked
        "synchronous = NORMAL",
        "fullfsync = ON",  # macOS: an fsync that does not stop at the disk's own cache
        "wal_autocheckpoint = 0",  # see writer.py
        "journal_size_limit = 0",  # so that the WAL's size says how much is in it
        "temp_store = MEMORY",  # no copies of text in temporary files
    ):
        conn.execute(f"PRAGMA {setting}")
    _use_wal(conn, deadline)
    begin(conn, lambda: deadline)
    try:
        schema.check(conn)  # again: a newer version may have come in between
        if schema.applied(conn) != list(schema.MIGRATION_NAMES):
            # Here because it costs 0.2 s, which only a new or old database should pay.
            from hobnob.store.migrations import migrate

            migrate(conn)
        soundness.require(conn)
        (epoch,) = conn.execute(
            "UPDATE meta SET value = value + 1 WHERE key = 'epoch' RETURNING value"
        ).fetchone()
        conn.execute("COMMIT")
    except BaseException:
        if conn.in_transaction:
            conn.execute("ROLLBACK")
        raise
    return int(epoch)


def _use_wal(conn: sqlite3.Connection, deadline: float) -> None:
    def switch() -> str:
        return str(conn.execute("PRAGMA journal_mode = WAL").fetchone()[0])

    if patiently(switch, lambda: deadline) != "wal":
        raise WriteFailed("The folder of the database cannot hold a write-ahead log.")


def _make_private(path: Path) -> None:
    """The file 0600 before anything is in it, in a folder that is 0700 if we make it."""
    schema.require_file(path)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(fd, 0o600)
        finally:
            os.close(fd)
    except OSError as error:
        raise WriteFailed(f"The database {path} cannot be opened: {error.strerror}.") from error
