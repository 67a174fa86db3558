from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from sqlite_utils import Database, Migrations
from support_turns import ME, said

from hobnob.store import connection, migrations, schema
from hobnob.store.store import Store
from hobnob.store.values import Damaged, SchemaTooNew

PROCESS = Path(__file__).parent.parent / "support" / "support_store_process.py"


def bytes_of(path: Path) -> dict[str, bytes]:
    """The database's files, but for the shared memory, which holds nothing of value."""
    files = (path, path.with_name(path.name + "-wal"))
    return {file.name: file.read_bytes() for file in files if file.exists()}


def test_the_names_known_to_the_reader_are_those_of_the_migrations(tmp_path: Path) -> None:
    conn, _ = connection.open_writer(tmp_path / "x.db", wait_s=1)
    with closing(conn):
        assert schema.applied(conn) == list(schema.MIGRATION_NAMES)
        (version,) = conn.execute("PRAGMA user_version").fetchone()
        assert version == len(schema.MIGRATION_NAMES)
        tables = conn.execute("PRAGMA table_list").fetchall()
    assert migrations.migrations.name == schema.MIGRATION_SET
    ours = [t for t in tables if t["type"] == "table" and not t["name"].startswith("sqlite_")]
    assert len(ours) == 7
    assert all(table["strict"] for table in ours)


def test_an_up_to_date_database_opens_without_the_migrations_being_imported(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.db"
    connection.open_writer(path, wait_s=1)[0].close()
    code = (
        "import sys; from pathlib import Path; from hobnob.store import store, connection;"
        "connection.open_writer(Path(sys.argv[1]), wait_s=1)[0].close();"
        "sys.exit('sqlite_utils' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)]).returncode == 0


@pytest.mark.parametrize("sign", ["name", "version"])
@pytest.mark.parametrize("wal", [False, True])
async def test_a_newer_database_is_refused_and_left_byte_identical(
    path: Path, tmp_path: Path, sign: str, wal: bool
) -> None:
    store = await Store.open(path)
    await store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        if sign == "name":
            conn.execute(
                "INSERT INTO _sqlite_migrations (migration_set, name, applied_at)"
                " VALUES ('hobnob', 'm999_later', 'then')"
            )
        else:
            conn.execute("PRAGMA user_version = 999")
        if wal:  # as a killed process leaves it: what is newer stands in the log only
            killed = tmp_path / "killed" / "hobnob.db"
            killed.parent.mkdir()
            for name, content in bytes_of(path).items():
                killed.with_name(name).write_bytes(content)
            path = killed
    before = bytes_of(path)
    assert len(before) == 1 + wal
    with pytest.raises(SchemaTooNew):
        await Store.open(path)
    assert {name: content for name, content in bytes_of(path).items() if content} == before


async def test_a_database_of_another_program_is_refused_unchanged(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("CREATE TABLE theirs (x)")
    before = path.read_bytes()
    with pytest.raises(Damaged):
        await Store.open(path)
    assert path.read_bytes() == before


async def test_a_file_that_is_no_database_is_refused_unchanged(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"Dear diary, " * 1000)
    with pytest.raises(Damaged):
        await Store.open(path)
    assert path.read_bytes() == b"Dear diary, " * 1000


async def test_an_empty_file_becomes_a_database(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    store = await Store.open(path)
    assert len(await store.instance()) == 32
    await store.close()


async def test_the_instance_stays_over_openings_and_differs_between_databases(
    tmp_path: Path,
) -> None:
    seen = []
    for name in ("a", "a", "b"):
        store = await Store.open(tmp_path / name / "x.db")
        seen.append(await store.instance())
        await store.close()
    assert seen[0] == seen[1] != seen[2]


async def test_a_database_of_the_first_schema_is_brought_up_to_date_with_all_it_holds(
    path: Path,
) -> None:
    path.parent.mkdir()
    first = Migrations(schema.MIGRATION_SET)
    first(name="m001_initial")(migrations.m001_initial)
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.execute("PRAGMA journal_mode = WAL")
        first.apply(Database(conn, recursive_triggers=False, execute_plugins=False, strict=True))
        conn.execute("PRAGMA user_version = 1")
        conn.execute(
            "INSERT INTO conversations (id, owner, title, settings, created_at, updated_at, change)"
            " VALUES ('old', ?, 'kept', '{}', 1, 1, 5)",
            (ME,),
        )
        conn.execute("UPDATE meta SET value = 7 WHERE key = 'change'")
    store = await Store.open(path)
    assert [one.title for one in await store.conversations(ME)] == ["kept"]
    assert [one.change for one in await store.changes(ME, 0) or ()] == [5]
    assert await store.changes(ME, 7) == []
    assert await store.changes(ME, 6) is None  # what was deleted as the seventh is not known
    old = await store.conversation(ME, "old")
    assert not old.pinned and not old.temporary
    assert (await store.update_conversation(ME, "old", pinned=True)).pinned
    assert await store.check() == []
    await store.close()


async def test_a_failed_migration_leaves_the_database_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "_INITIAL", "CREATE TABLE meta (x); SELECT nonsense;")
        with pytest.raises(Exception, match="nonsense"):
            await Store.open(path)
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    store = await Store.open(path)
    await said(store, "works")
    await store.close()


async def test_many_processes_opening_a_new_database_at_once_all_succeed(path: Path) -> None:
    processes = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, str(PROCESS), "open", str(path)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(6)
    ]
    outputs = [await process.communicate() for process in processes]
    assert [error for _, error in outputs] == [b""] * 6
    words = [out.decode().strip() for out, _ in outputs]
    assert set(words) <= {"wrote", "stale"}
    assert "wrote" in words  # the last to open is never stale
    store = await Store.open(path)
    assert len(await store.conversations(ME)) == words.count("wrote")
    assert await store.check() == []
    await store.close()
