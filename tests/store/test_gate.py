from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

from hobnob.store import gate
from hobnob.store.values import Damaged, Locked, StoreError, WriteFailed

STORE = Path(gate.__file__).parent

# Result codes that are no errors, and constants of other kinds that share the prefix and have
# no underscore more, so that they look like result codes.
NOT_ERRORS = {"OK", "ROW", "DONE"}
OTHERS = set(
    "DENY IGNORE ATTACH DETACH DELETE INSERT PRAGMA READ SELECT TRANSACTION UPDATE ANALYZE REINDEX"
    " FUNCTION SAVEPOINT RECURSIVE".split()
)


def result_codes() -> dict[str, int]:
    names = (name.removeprefix("SQLITE_") for name in dir(sqlite3) if name.startswith("SQLITE_"))
    primary = {name for name in names if "_" not in name} - NOT_ERRORS - OTHERS
    return {name: getattr(sqlite3, f"SQLITE_{name}") for name in primary}


def error(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("words of SQLite")
    error.sqlite_errorcode = code
    return error


def test_every_result_code_of_sqlite_has_its_error() -> None:
    codes = result_codes()
    assert len(codes) > 25
    missing = [name for name, code in codes.items() if code not in gate._BY_CODE]
    assert missing == []


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_FULL, WriteFailed),
        (sqlite3.SQLITE_IOERR_WRITE, WriteFailed),
        (sqlite3.SQLITE_READONLY_DBMOVED, WriteFailed),
        (sqlite3.SQLITE_CANTOPEN_ISDIR, WriteFailed),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, Locked),
        (sqlite3.SQLITE_CORRUPT_VTAB, Damaged),
        (sqlite3.SQLITE_NOTADB, Damaged),
        (sqlite3.SQLITE_CONSTRAINT_UNIQUE, StoreError),
        (250, StoreError),
    ],
)
def test_extended_and_unknown_codes_fall_to_their_kind(code: int, kind: type) -> None:
    assert type(gate.translate(error(code))) is kind


def test_shared_memory_that_finds_no_room_is_a_full_disk() -> None:
    found = gate.translate(error(sqlite3.SQLITE_IOERR_SHMSIZE))
    assert type(found) is WriteFailed and str(found).startswith("The disk is full")


@pytest.mark.parametrize("kind", [*sqlite3.Error.__subclasses__(), sqlite3.ProgrammingError])
def test_errors_without_a_code_come_out_as_ours(kind: type[sqlite3.Error]) -> None:
    with pytest.raises(StoreError), gate.gate():
        raise kind("from Python's side of the module")


def test_a_number_too_large_for_sqlite_comes_out_as_ours() -> None:
    conn = sqlite3.connect(":memory:")
    with pytest.raises(StoreError), gate.gate():
        conn.execute("SELECT ?", (2**64,))
    conn.close()


def test_errors_of_others_pass() -> None:
    with pytest.raises(KeyError), gate.gate():
        raise KeyError


def test_nobody_else_maps_errors_of_sqlite() -> None:
    """Others may look at them (a lock to wait for, a check's finding) where it says so here."""
    allowed = {"gate.py": 0, "connection.py": 1, "writer.py": 1}
    allowed |= {"upkeep.py": 3, "soundness.py": 1}
    for file in STORE.glob("*.py"):
        caught = re.findall(r"except [^:]*sqlite3\.", file.read_text())
        assert len(caught) == allowed.get(file.name, 0), file.name
