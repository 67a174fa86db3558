"""Looking after the file: erasing what was deleted, checking, backing up.

Deleting rows leaves their words in the index until its segments are merged, and their pages in
the WAL until it is emptied. The mark in `meta` says that this is still to be done.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from hobnob.store import schema, soundness
from hobnob.store.values import Closed, Damaged, WriteFailed

COMPANIONS = ("-wal", "-shm", "-journal")
"""Files that belong to the one they are named after; SQLite applies a WAL or a journal to whatever
has its name, so it must never be left beside another database."""

ROOM_LEFT_BYTES = 32 * 1024 * 1024
"""Stays free on the history's disk when a copy is made there."""

MERGE_PAGES = 256
"""Index pages merged in one transaction, so that other writes get in between."""

COPY_PAGES = 1024
"""Copied at once: after so many it is asked whether to go on."""
CHECK_INSTRUCTIONS = 100_000
"""Of SQLite's machine: after so many a check is asked whether to go on."""

Stop = Callable[[], bool]
_CLOSED = "The store was closed meanwhile."


def _never() -> bool:
    return False


def mark_for_erasure(conn: sqlite3.Connection) -> None:
    """Belongs into the transaction that deletes."""
    conn.execute(
        "INSERT INTO meta (key, value) SELECT 'erase', value FROM meta WHERE key = 'change'"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    )


def erasure_mark(conn: sqlite3.Connection) -> int | None:
    row = conn.execute("SELECT value FROM meta WHERE key = 'erase'").fetchone()
    return None if row is None else int(row[0])


def clear_erasure_mark(conn: sqlite3.Connection, mark: int) -> None:
    """Unless there was another deletion meanwhile."""
    conn.execute("DELETE FROM meta WHERE key = 'erase' AND value = ?", (mark,))


def merge_index(conn: sqlite3.Connection, *, begin: bool) -> bool:
    """A piece of merging the index into one segment, which drops deleted words. True: go on."""
    before = conn.total_changes
    conn.execute(
        "INSERT INTO messages_index (messages_index, rank) VALUES ('merge', ?)",
        (-MERGE_PAGES if begin else MERGE_PAGES,),
    )
    return conn.total_changes - before >= 2  # as FTS5's manual says


def problems_of_index(conn: sqlite3.Connection, *, stop: Stop = _never) -> list[str]:
    """Needs a connection that may write, though it writes nothing. Raises Closed on `stop`."""
    try:
        with _breaking_off(conn, stop):
            conn.execute(
                "INSERT INTO messages_index (messages_index, rank) VALUES ('integrity-check', 1)"
            )
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR):
            raise
        return ["The search index does not fit the messages."]
    return []


def problems_of_file(conn: sqlite3.Connection) -> list[str]:
    """What SQLite's own checks find, and which parts are not as they should be, a sentence each."""
    problems = soundness.missing(conn)
    problems += _problems(conn, "integrity_check", references=not problems)
    return problems + soundness.foreign(conn)


def _problems(conn: sqlite3.Connection, pragma: str, *, references: bool) -> list[str]:
    try:
        lines = [str(line) for (line,) in conn.execute(f"PRAGMA {pragma}")]
        problems = [] if lines == ["ok"] else [f"The pages are damaged: {line}." for line in lines]
        rows = conn.execute("PRAGMA foreign_key_check") if references else []
        for table, row, other, _ in rows:
            problems.append(f"Row {row} of {table} refers to a row of {other} that is not there.")
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise
        return [f"The pages are damaged: {error}."]  # too much so for the checks themselves
    return problems


def back_up(conn: sqlite3.Connection, target: Path, *, stop: Stop = _never) -> None:
    """One state of the database as one file (0600), put in place when it is complete and its
    pages are sound: a copy of a damaged database must not replace the last good one.

    Runs beside the writer; conn is a reader's, outside a transaction. Once `stop` says so it
    breaks off. Raises Closed, Damaged, WriteFailed.
    """
    own = next(file for _, name, file in conn.execute("PRAGMA database_list") if name == "main")
    part = part_of(target)
    try:
        if target.exists() and os.path.samefile(own, target):
            raise WriteFailed("A backup cannot go into the database itself.")
        part.unlink(missing_ok=True)
        _make_sure_of_room(conn, own, target)
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        _copy(conn, part, stop)
        os.replace(part, target)
    except OSError as error:
        raise WriteFailed(f"The backup {target} cannot be written: {error.strerror}.") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _make_sure_of_room(conn: sqlite3.Connection, own: str, target: Path) -> None:
    """A copy on the history's own disk must not fill it: replies are being saved there."""
    (pages,), (page_bytes,) = (
        conn.execute(f"PRAGMA {what}").fetchone() for what in ("page_count", "page_size")
    )
    needed, free = pages * page_bytes, shutil.disk_usage(target.parent).free
    kept = ROOM_LEFT_BYTES if os.stat(own).st_dev == os.stat(target.parent).st_dev else 0
    if free < needed + kept:
        raise WriteFailed(
            f"There is not enough room for a copy in {target.parent}: it takes "
            f"{needed / 1e6:.1f} MB, and {max(0, free - kept) / 1e6:.1f} MB can be used."
        )


def dated(database: Path) -> Path:
    """The name under which what was there before is kept beside the database."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")
    return database.with_name(f"{database.stem}-{stamp}{database.suffix}")


def part_of(target: Path) -> Path:
    """Where a file lies until it is complete."""
    return target.with_name(f"{target.name}.part")


def copy_of(database: Path) -> Path:
    """Where a copy lies while it is being made for a client."""
    return database.with_name(f"{database.name}.copy")


def restored(database: Path) -> Path:
    """Where a backup lies while it is being checked, before it takes the database's place."""
    return database.with_name(f"{database.name}.restoring")


def remove_copies(database: Path) -> None:
    """What a process leaves that is killed while it makes one may hold what was deleted since."""
    for copy in (copy_of(database), restored(database)):
        for ending in ("", ".part", *COMPANIONS):
            with suppress(OSError):
                copy.with_name(f"{copy.name}{ending}").unlink(missing_ok=True)


@contextmanager
def _breaking_off(conn: sqlite3.Connection, stop: Stop) -> Iterator[None]:
    """Statements in here end with Closed once `stop` says so."""
    conn.set_progress_handler(stop, CHECK_INSTRUCTIONS)
    try:
        yield
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_INTERRUPT and stop():
            raise Closed(_CLOSED) from error
        raise
    finally:
        conn.set_progress_handler(None, 0)


def _copy(conn: sqlite3.Connection, part: Path, stop: Stop) -> None:
    def look(*_: int) -> None:
        if stop():
            raise Closed(_CLOSED)

    with closing(sqlite3.connect(part, isolation_level=None)) as copy:
        conn.execute("BEGIN")  # one state for all steps: SQLite begins anew with every write else
        try:
            conn.execute("SELECT 1 FROM sqlite_master").fetchone()
            conn.backup(copy, pages=COPY_PAGES, progress=look)
        finally:
            if conn.in_transaction:
                conn.execute("ROLLBACK")
        # One file that can be read anywhere, also from read-only folders.
        copy.execute("PRAGMA journal_mode = DELETE")
    with closing(schema.connect_read_only(part, wait_s=0)) as copy, _breaking_off(copy, stop):
        schema.check(copy)
        problems = _problems(copy, "quick_check", references=False)  # a look at each page
        problems = problems or soundness.missing(copy) + soundness.foreign(copy)
    if problems:
        raise Damaged(f"What was to be copied is damaged, so nothing was replaced: {problems[0]}")
    fd = os.open(part, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
