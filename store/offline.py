"""The database file while no server has it open: copied, checked, put back from a copy.

Blocking, and for whoever holds the server's lock. Raises the errors of values.py.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from hobnob.store import changes, schema, soundness, upkeep
from hobnob.store.gate import gate
from hobnob.store.upkeep import COMPANIONS
from hobnob.store.values import Damaged, Locked, StoreError, WriteFailed

LOCK_WAIT_SECONDS = 5.0

_NO_LINKS = (errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""How file systems say that they have no hard links, or no more of this file."""


def back_up(path: Path, target: Path) -> None:
    """One state of the database as one file; replaces an earlier one."""
    with gate(), closing(schema.connect_read_only(path, wait_s=LOCK_WAIT_SECONDS)) as conn:
        upkeep.back_up(conn, target)


def check(path: Path) -> list[str]:
    """What is wrong with the database, a sentence each. Slow."""
    try:
        with gate(), _opened(path) as conn:
            return _unusable(conn) or soundness.odd_rows(conn)
    except StoreError as error:
        return [str(error)]


def odd_rows(path: Path) -> list[str]:
    """What is in a sound database that hobnob never wrote, a sentence for each kind."""
    with gate(), closing(schema.connect_read_only(path, wait_s=LOCK_WAIT_SECONDS)) as conn:
        return soundness.odd_rows(conn)


def _unusable(conn: sqlite3.Connection) -> list[str]:
    schema.check(conn)
    return upkeep.problems_of_file(conn) + upkeep.problems_of_index(conn)


def restore(source: Path, path: Path) -> Path | None:
    """Puts a copy of `source` in the place of the database, once it is found sound.

    Odd rows keep nobody from the others. The old database stays beside it under a dated name,
    which is returned; None if there was none. At every moment one of the two is in its place,
    whole: what a process that is killed leaves is the one or the other.
    """
    path = Path(os.path.realpath(path))  # where it is a link, the file that it leads to
    schema.require_file(path)
    fresh = upkeep.restored(path)
    upkeep.remove_copies(path)  # of a restore that was killed: its journal would go into this one
    try:
        _copy_checked(source, path, fresh)
        old = _kept_beside(path)
        os.replace(fresh, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise WriteFailed(f"{path} cannot be replaced: {error.strerror}.") from error
    finally:
        upkeep.remove_copies(path)
    return old


def _copy_checked(source: Path, path: Path, fresh: Path) -> None:
    with suppress(OSError):
        if os.path.samefile(source, path):
            raise WriteFailed("That is the database itself.")
    if not source.exists():
        raise Damaged(f"There is no file {source}.")
    with gate(), closing(schema.connect_read_only(source, wait_s=LOCK_WAIT_SECONDS)) as conn:
        (tables,) = conn.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if not tables:
            raise Damaged(f"{source} holds no history.")
        schema.check(conn)
        if problems := soundness.missing(conn) + soundness.foreign(conn):
            raise _refused(source, problems)
        upkeep.back_up(conn, fresh)
    with gate(), _opened(fresh) as conn:
        if problems := _unusable(conn):
            raise _refused(source, problems)
        if applied := schema.applied(conn):
            conn.execute("BEGIN IMMEDIATE")
            if "m002_deletions" in applied:
                changes.forget_deletions(conn)
            changes.begin_anew(conn, time.time_ns() // 1_000_000)
            conn.execute("COMMIT")
    # Its age decides whether replies that were under way still go on.
    stamp = source.stat()
    os.utime(fresh, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))


def _refused(source: Path, problems: list[str]) -> Damaged:
    return Damaged(f"{source} is damaged, so nothing was changed: {problems[0]}")


def _kept_beside(path: Path) -> Path | None:
    """The old database under a dated name as well, still in its place. Its WAL leaves that place,
    for SQLite would apply it to the new one; so nothing may be in it that can be used."""
    kept = upkeep.dated(path)
    there = path.exists()
    if there:
        _empty_wal(path)
        _name_again(path, kept)
    for companion in COMPANIONS:  # of a damaged database, or of one that was removed
        left = path.with_name(f"{path.name}{companion}")
        if left.exists():
            left.rename(kept.with_name(f"{kept.name}{companion}"))
    return kept if there else None


def _empty_wal(path: Path) -> None:
    """Moves into the database what is only in its WAL. Raises Locked, WriteFailed."""
    try:
        with gate(), _opened(path) as conn:
            conn.execute("SELECT 1 FROM sqlite_master").fetchone()  # rolls back what was broken off
            (busy, _, _) = conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                raise Locked("Another program is using the database, so nothing was changed.")
    except StoreError as error:
        if isinstance(error, WriteFailed) and not isinstance(error, Damaged):
            raise  # the disk is full, say: then a later try finds all of it as it was


def _name_again(path: Path, kept: Path) -> None:
    """A second name for the file, or where the file system has no such thing a copy."""
    try:
        os.link(path, kept)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        part = upkeep.part_of(upkeep.restored(path))
        with open(path, "rb") as whole, open(part, "xb", opener=_private) as copy:
            shutil.copyfileobj(whole, copy)
        shutil.copystat(path, part)
        _sync(part)
        os.replace(part, kept)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that may write, to a file that is there; nothing is migrated."""
    schema.require_file(path)
    conn = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        isolation_level=None,
        timeout=LOCK_WAIT_SECONDS,
    )
    with closing(conn):
        conn.row_factory = sqlite3.Row
        conn.execute("PRAGMA temp_store = MEMORY")
        yield conn


def _sync_folder(folder: Path) -> None:
    _sync(folder, os.O_DIRECTORY)


def _sync(path: Path, kind: int = 0) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | kind)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
