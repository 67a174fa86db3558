"""Which schema a database file has, read without changing a byte of it.

Knows the names of the migrations but not what they do, so that an up-to-date database opens
without importing sqlite-utils (which costs 0.2 s and pulls in numpy).
"""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path

from hobnob.store.values import Damaged, SchemaTooNew

MIGRATION_SET = "hobnob"
MIGRATION_NAMES = (
    "m001_initial",
    "m002_deletions",
    "m003_message_tree",
    "m004_pinned",
    "m005_temporary",
    "m006_cancel_asked",
)
"""All that this version knows, in order; append-only like migrations.py, and tested against it."""

APPLICATION_ID = 0x686F626E
"""`hobn` in the header of the file: what tells our databases from others."""


_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def require_file(path: Path) -> None:
    """Raises Damaged for what is there but is no regular file: to open it may take for ever, or
    do something. None at all is fine."""
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
    except OSError:
        return  # whoever opens it is told what is wrong
    if kind != stat.S_IFREG:
        raise Damaged(f"{path} is {_KINDS.get(kind, 'no file')}, where a database should be.")


def refuse_foreign_or_newer(path: Path, *, wait_s: float) -> None:
    """Raises SchemaTooNew or Damaged, the file left byte-identical. No file is fine."""
    if not path.exists() or path.stat().st_size == 0:
        return
    conn = connect_read_only(path, wait_s=wait_s)
    try:
        check(conn)
    finally:
        conn.close()


def connect_read_only(path: Path, *, wait_s: float) -> sqlite3.Connection:
    """A connection that cannot write; it may be closed by another thread than its user's. Raises
    Damaged, and sqlite3's errors."""
    require_file(path)
    conn = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro",
        uri=True,
        isolation_level=None,
        timeout=wait_s,
        check_same_thread=False,
    )
    conn.row_factory = sqlite3.Row
    conn.execute("PRAGMA query_only = ON")
    conn.execute("PRAGMA temp_store = MEMORY")
    return conn


def check(conn: sqlite3.Connection) -> None:
    """Raises SchemaTooNew or Damaged unless the database is empty, ours and not newer."""
    (application,) = conn.execute("PRAGMA application_id").fetchone()
    (tables,) = conn.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and application != APPLICATION_ID:
        raise Damaged("The file is a database of another program.")
    (version,) = conn.execute("PRAGMA user_version").fetchone()
    unknown = [name for name in applied(conn) if name not in MIGRATION_NAMES]
    if unknown or version > len(MIGRATION_NAMES):
        raise SchemaTooNew(
            "The database was written by a newer version of hobnob "
            f"(schema {version}, this version knows {len(MIGRATION_NAMES)}); it was left unchanged."
        )


def applied(conn: sqlite3.Connection) -> list[str]:
    """Names of the migrations that the database has had, in order."""
    known = "SELECT 1 FROM sqlite_master WHERE name = '_sqlite_migrations'"
    if conn.execute(known).fetchone() is None:
        return []
    rows = conn.execute(
        "SELECT name FROM _sqlite_migrations WHERE migration_set = ? ORDER BY rowid",
        (MIGRATION_SET,),
    )
    return [name for (name,) in rows]
