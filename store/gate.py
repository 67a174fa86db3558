"""The one gate between sqlite3's errors and the store's own (values.py).

Every result code of SQLite has its line in _BY_CODE; a test keeps the table complete. Extended
ones are there where they say more.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from hobnob.store.values import Damaged, Locked, StoreError, WriteFailed

_DISK = "The database cannot be used"
_BUG = "The database refused the request"

_BY_CODE: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_BUSY: (Locked, "Another program holds the database locked"),
    sqlite3.SQLITE_LOCKED: (Locked, "Another program holds the database locked"),
    sqlite3.SQLITE_FULL: (WriteFailed, "The disk is full"),
    sqlite3.SQLITE_IOERR: (WriteFailed, "The disk reported an error"),
    sqlite3.SQLITE_IOERR_SHMSIZE: (WriteFailed, "The disk is full"),  # no room for shared memory
    sqlite3.SQLITE_READONLY: (WriteFailed, "The database is read-only"),
    sqlite3.SQLITE_CANTOPEN: (WriteFailed, "The database cannot be opened"),
    sqlite3.SQLITE_PERM: (WriteFailed, _DISK),
    sqlite3.SQLITE_AUTH: (WriteFailed, _DISK),
    sqlite3.SQLITE_NOLFS: (WriteFailed, _DISK),
    sqlite3.SQLITE_NOMEM: (WriteFailed, _DISK),
    sqlite3.SQLITE_PROTOCOL: (WriteFailed, _DISK),
    sqlite3.SQLITE_INTERRUPT: (WriteFailed, "The database was closed meanwhile"),
    sqlite3.SQLITE_CORRUPT: (Damaged, "The database is damaged"),
    sqlite3.SQLITE_NOTADB: (Damaged, "The file is not a database"),
    sqlite3.SQLITE_FORMAT: (Damaged, "The file is not a database"),
    sqlite3.SQLITE_ERROR: (StoreError, _BUG),
    sqlite3.SQLITE_INTERNAL: (StoreError, _BUG),
    sqlite3.SQLITE_ABORT: (StoreError, _BUG),
    sqlite3.SQLITE_NOTFOUND: (StoreError, _BUG),
    sqlite3.SQLITE_EMPTY: (StoreError, _BUG),
    sqlite3.SQLITE_SCHEMA: (StoreError, _BUG),
    sqlite3.SQLITE_TOOBIG: (StoreError, "A value is too large for the database"),
    sqlite3.SQLITE_CONSTRAINT: (StoreError, _BUG),
    sqlite3.SQLITE_MISMATCH: (StoreError, _BUG),
    sqlite3.SQLITE_MISUSE: (StoreError, _BUG),
    sqlite3.SQLITE_RANGE: (StoreError, _BUG),
    sqlite3.SQLITE_NOTICE: (StoreError, _BUG),
    sqlite3.SQLITE_WARNING: (StoreError, _BUG),
}
_PRIMARY_MASK = 0xFF
"""The low byte of an extended result code is the primary one."""

FOREIGN_ERRORS = (sqlite3.Error, sqlite3.Warning, OverflowError, UnicodeEncodeError)
"""All that the sqlite3 module raises for values and files that it does not like."""


def translate(error: Exception) -> StoreError:
    """The store's error for one of FOREIGN_ERRORS."""
    if isinstance(error, UnicodeEncodeError):
        # Its own text would quote the user's.
        return StoreError("The text holds half a surrogate pair, which UTF-8 cannot express.")
    code = getattr(error, "sqlite_errorcode", None)
    code = code if code in _BY_CODE else (code or 0) & _PRIMARY_MASK
    kind, words = _BY_CODE.get(code, (StoreError, _BUG))
    return kind(f"{words} ({error}).")


@contextmanager
def gate() -> Iterator[None]:
    """Lets none of FOREIGN_ERRORS out untranslated."""
    try:
        yield
    except FOREIGN_ERRORS as error:
        raise translate(error) from error
