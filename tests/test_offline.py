"""The history while no server runs: copied, checked, restored; and the same through a server."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import stat
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from support_cli import Cli
from support_edge import KEY, edge_at
from support_turns import ME, answer, delta, first_turn, said

from hobnob import offline
from hobnob.exits import Exit, ExitError
from hobnob.paths import Paths
from hobnob.server.lock import Lock
from hobnob.store import offline as store_offline
from hobnob.store import schema
from hobnob.store.store import Store
from hobnob.store.values import Append, Damaged


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths.home({"HOBNOB_HOME": str(tmp_path / "home")})


@pytest.fixture
def hobnob(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "home")


@asynccontextmanager
async def history(path: Path) -> AsyncIterator[Store]:
    store = await Store.open(path)
    yield store
    await store.close()


async def texts(path: Path) -> set[str]:
    """What was said, by the users of all conversations."""
    async with history(path) as store:
        assert await store.check() == []
        found = await store.conversations(ME)
        trees = [await store.messages(ME, one.id) for one in found]
        return {message.text for tree in trees for message in tree if message.role == "user"}


async def test_a_backup_of_a_stopped_server_is_a_whole_history(
    paths: Paths, hobnob: Cli, tmp_path: Path
) -> None:
    async with history(paths.database) as store:
        await said(store, "before", "yes")
    file = tmp_path / "copy.db"
    result = await hobnob.run("history", "backup", str(file))
    assert (result.code, result.out) == (0, b""), result.err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert await texts(file) == {"before"}


async def test_a_backup_of_a_damaged_history_is_refused_and_the_one_before_stays(
    paths: Paths, hobnob: Cli, tmp_path: Path
) -> None:
    async with history(paths.database) as store:
        for number in range(40):
            await said(store, f"before {number} " + "x" * 2000, "yes")
    file = tmp_path / "copy.db"
    assert (await hobnob.run("history", "backup", str(file))).code == 0
    good = file.read_bytes()
    with open(paths.database, "r+b") as damaged:
        damaged.seek(8 * 4096)
        damaged.write(b"\xa5" * 4096 * 8)
    result = await hobnob.run("history", "backup", str(file))
    assert result.code == Exit.INTERNAL
    assert "damaged" in result.err and "Traceback" not in result.err
    assert file.read_bytes() == good
    assert sorted(tmp_path.glob("copy.db*")) == [file]


async def test_a_backup_and_a_check_of_a_running_server_are_the_servers_own(
    hobnob: Cli, tmp_path: Path
) -> None:
    async with edge_at(tmp_path / "server") as edge:
        await edge.send("hello there")
        at_server = {"HOBNOB_URL": edge.url, "HOBNOB_KEY": KEY}
        file = tmp_path / "copy.db"
        result = await hobnob.run("history", "backup", str(file), env=at_server)
        assert result.code == 0, result.err
        checked = await hobnob.run("doctor", "--check-db", env=at_server)
        assert (checked.code, checked.out) == (0, b"The database is sound.\n")
        left = {one.name for one in (tmp_path / "server").iterdir()}
        assert left == {"hobnob.db", "hobnob.db-wal", "hobnob.db-shm"}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert await texts(file) == {"hello there"}


async def test_a_backup_that_breaks_off_leaves_the_one_before(hobnob: Cli, tmp_path: Path) -> None:
    file = tmp_path / "copy.db"
    file.write_text("the one before")
    nobody = {"HOBNOB_URL": "http://127.0.0.1:9", "HOBNOB_KEY": KEY}
    result = await hobnob.run("history", "backup", str(file), env=nobody)
    assert result.code == Exit.UNREACHABLE
    assert file.read_text() == "the one before"
    assert [one.name for one in tmp_path.iterdir() if "part" in one.name] == []


async def test_what_a_killed_server_had_half_copied_is_removed_at_the_next_start(
    paths: Paths,
) -> None:
    paths.make()
    for name in ("hobnob.db.copy", "hobnob.db.copy.part"):
        (paths.data_dir / name).write_text("words that were deleted since")
    async with history(paths.database):
        assert [one.name for one in paths.data_dir.iterdir() if "copy" in one.name] == []


async def test_without_a_history_there_is_nothing_to_copy(hobnob: Cli, tmp_path: Path) -> None:
    result = await hobnob.run("history", "backup", str(tmp_path / "copy.db"))
    assert (result.code, result.err) == (Exit.NOT_FOUND, "hobnob: There is no history yet.\n")


async def test_a_restored_history_is_the_backup_and_the_old_one_is_kept_beside_it(
    paths: Paths, hobnob: Cli, tmp_path: Path
) -> None:
    file = tmp_path / "copy.db"
    async with history(paths.database) as store:
        await said(store, "before", "yes")
        instance = await store.instance()
    offline.back_up(paths, file)
    os.utime(file, (1_700_000_000, 1_700_000_000))
    async with history(paths.database) as store:
        await said(store, "after", "yes")
    result = await hobnob.run("history", "restore", str(file))
    assert result.code == 0, result.err
    assert paths.database.stat().st_mtime == 1_700_000_000  # as old as what is in it
    names = {one.name for one in paths.data_dir.iterdir()} - {"lock"}
    (kept,) = names - {"hobnob.db"}
    assert kept.startswith("hobnob-2") and kept in result.err
    assert await texts(paths.database) == {"before"}
    assert await texts(paths.data_dir / kept) == {"before", "after"}
    async with history(paths.database) as store:
        assert await store.instance() == instance


async def test_who_follows_a_history_that_was_restored_over_is_told_to_read_it_again(
    paths: Paths, tmp_path: Path
) -> None:
    """Else a cursor of the newer history would be good again once the older one grew past it."""
    file = tmp_path / "copy.db"
    async with history(paths.database) as store:
        await said(store, "before", "yes")
        gone = (await said(store, "deleted", "yes")).conversation.id
        await store.delete_conversation(ME, gone)
    offline.back_up(paths, file)
    async with history(paths.database) as store:
        cursors = [await store.last_change()]
        for n in range(20):
            await said(store, f"later {n}", "yes")
            cursors.append(await store.last_change())
    for _ in range(2):
        offline.restore(paths, file)
        async with history(paths.database) as store:
            began = await store.last_change()
            for n in range(30):
                await said(store, f"other {n}", "yes")
            assert all([await store.changes(ME, cursor) is None for cursor in cursors])
            whole = await store.changes(ME, 0, limit=100)
            assert whole is not None and len(whole) == 31
            assert max(cursors) < whole[0].change <= began  # of what was in the backup
            since = await store.changes(ME, began)
            assert since is not None and len(since) == 30
            cursors += [began, await store.last_change()]
        assert max(cursors) < 2**53  # as JavaScript counts


async def test_a_restored_history_has_the_pins_of_the_backup(
    paths: Paths, hobnob: Cli, tmp_path: Path
) -> None:
    file = tmp_path / "copy.db"
    async with history(paths.database) as store:
        id = (await said(store, "before", "yes")).conversation.id
        await store.update_conversation(ME, id, pinned=True)
    offline.back_up(paths, file)
    async with history(paths.database) as store:
        await store.update_conversation(ME, id, pinned=False)
    assert (await hobnob.run("history", "restore", str(file))).code == 0
    async with history(paths.database) as store:
        assert (await store.conversation(ME, id)).pinned


async def test_what_is_only_in_a_write_ahead_log_is_copied_kept_and_not_mixed(
    paths: Paths, tmp_path: Path
) -> None:
    """Files of servers that were killed: the log holds what the database does not."""
    async with history(paths.database) as store:
        await said(store, "in the old log", "yes")
        files = {one.name: one.read_bytes() for one in paths.data_dir.iterdir()}
    killed = tmp_path / "killed"
    killed.mkdir()
    for name, data in files.items():
        (killed / name).write_bytes(data)
        (paths.data_dir / name).write_bytes(data)
    other = tmp_path / "other.db"
    async with history(other) as store:
        await said(store, "in the new one", "yes")
    kept = offline.restore(paths, other)
    assert kept is not None
    assert await texts(paths.database) == {"in the new one"}
    assert await texts(kept) == {"in the old log"}
    offline.restore(paths, killed / "hobnob.db")
    assert await texts(paths.database) == {"in the old log"}


async def test_a_damaged_history_can_be_replaced(paths: Paths, tmp_path: Path) -> None:
    file = tmp_path / "copy.db"
    async with history(file) as store:
        await said(store, "sound", "yes")
    paths.make()
    paths.database.write_bytes(b"not a database" * 1000)
    (paths.data_dir / "hobnob.db-wal").write_bytes(b"nor its log")
    kept = offline.restore(paths, file)
    assert kept is not None and kept.read_bytes() == b"not a database" * 1000
    assert not (paths.data_dir / "hobnob.db-wal").exists()
    assert await texts(paths.database) == {"sound"}


LACKING = {
    "a table": "DROP TABLE run_events",
    "the index": "DROP TABLE messages_index",
    "a column": "ALTER TABLE runs DROP COLUMN cancel_asked",
    "a key": "DELETE FROM meta WHERE key = 'epoch'",
    "its own triggers": "CREATE TRIGGER evil AFTER INSERT ON runs BEGIN DELETE FROM meta; END",
    "what its trigger does": "DROP TRIGGER messages_index_insert; CREATE TRIGGER"
    " messages_index_insert AFTER INSERT ON messages BEGIN DELETE FROM meta; END",
}


@pytest.mark.parametrize("what", LACKING)
async def test_a_history_that_could_not_be_used_is_neither_restored_nor_backed_up(
    paths: Paths, hobnob: Cli, tmp_path: Path, what: str
) -> None:
    file = tmp_path / "copy.db"
    async with history(paths.database) as store:
        await said(store, "kept", "yes")
    offline.back_up(paths, file)
    good = paths.database.read_bytes()
    with closing(sqlite3.connect(file, isolation_level=None)) as conn:
        conn.executescript(LACKING[what])
    result = await hobnob.run("history", "restore", str(file))
    assert result.code == Exit.INTERNAL
    assert result.err.startswith(f"hobnob: {file} is damaged, so nothing was changed: The ")
    assert paths.database.read_bytes() == good
    offline.back_up(paths, file)
    with closing(sqlite3.connect(paths.database, isolation_level=None)) as conn:
        conn.executescript(LACKING[what])
    good = file.read_bytes()
    with pytest.raises(ExitError):
        offline.back_up(paths, file)
    assert file.read_bytes() == good
    assert (await hobnob.run("doctor", "--check-db")).code == 1


async def test_odd_rows_are_looked_for_beside_a_server_that_has_begun_meanwhile(
    paths: Paths,
) -> None:
    async with history(paths.database) as store:
        await said(store, "hello", "yes")
    lock = Lock.acquire(paths.lock_file)
    try:
        assert offline.odd_rows(paths) == []
    finally:
        lock.release()


async def test_odd_rows_are_restored_with_the_rest_and_named(
    paths: Paths, hobnob: Cli, tmp_path: Path
) -> None:
    file = tmp_path / "copy.db"
    async with history(file) as store:
        await said(store, "hello", "yes")
    with closing(sqlite3.connect(file, isolation_level=None)) as conn:
        conn.execute("UPDATE messages SET parent = n")
    result = await hobnob.run("history", "restore", str(file))
    assert result.code == 0, result.err
    assert "It is usable, but not all of it is sound: 2 messages do not follow" in result.err
    assert (await hobnob.run("doctor", "--check-db")).code == 1


@pytest.mark.parametrize("what", ["damaged", "foreign", "newer", "empty", "missing", "itself"])
async def test_what_cannot_be_a_history_replaces_nothing(
    paths: Paths, tmp_path: Path, what: str
) -> None:
    file = tmp_path / "copy.db"
    async with history(paths.database) as store:
        await said(store, "kept", "yes")
    offline.back_up(paths, file)
    with closing(sqlite3.connect(file, isolation_level=None)) as conn:
        if what == "damaged":
            conn.execute("PRAGMA foreign_keys = OFF")
            conn.execute("DELETE FROM messages WHERE n = 1")
        elif what == "newer":
            conn.execute(f"PRAGMA user_version = {len(schema.MIGRATION_NAMES) + 1}")
        elif what == "foreign":
            conn.execute("PRAGMA application_id = 7")
    if what == "empty":
        file.write_bytes(b"")
    elif what == "missing":
        file.unlink()
    elif what == "itself":
        file = paths.database
    before = paths.database.read_bytes()
    with pytest.raises(ExitError) as refused:
        offline.restore(paths, file)
    assert refused.value.message.endswith((".", ")")), refused.value.message
    assert paths.database.read_bytes() == before
    companions = {"lock", "hobnob.db-wal", "hobnob.db-shm"}
    assert {one.name for one in paths.data_dir.iterdir()} - companions == {"hobnob.db"}


@pytest.mark.parametrize("ending", ["-wal", "-journal"])
async def test_a_backup_is_not_put_beside_the_log_of_another_database(
    paths: Paths, hobnob: Cli, tmp_path: Path, ending: str
) -> None:
    """It would hide all that is in the copy, from SQLite's own checks too."""
    async with history(paths.database) as store:
        await said(store, "hello", "yes")
    file = tmp_path / "copy.db"
    Path(f"{file}{ending}").write_bytes(b"of another")
    result = await hobnob.run("history", "backup", str(file))
    assert result.code == Exit.OUTPUT and "belongs to another database" in result.err
    assert not file.exists() and Path(f"{file}{ending}").read_bytes() == b"of another"
    Path(f"{file}{ending}").write_bytes(b"")
    assert (await hobnob.run("history", "backup", str(file))).code == 0
    assert await texts(file) == {"hello"}


@pytest.mark.parametrize("name", ["hobnob.db", "hobnob.db-wal", "key", "lock"])
async def test_a_backup_is_not_written_over_hobnobs_own_files(
    paths: Paths, hobnob: Cli, tmp_path: Path, name: str
) -> None:
    async with history(paths.database) as store:
        await said(store, "hello", "yes")
    link = tmp_path / "link"
    link.symlink_to(paths.data_dir / name)
    before = {one.name: one.read_bytes() for one in paths.data_dir.iterdir()}
    for file in (paths.data_dir / name, link):
        result = await hobnob.run("history", "backup", str(file))
        assert result.code == Exit.USAGE and "own files" in result.err
    assert {one.name: one.read_bytes() for one in paths.data_dir.iterdir()} == before


NO_FILES = {
    "a folder": Path.mkdir,
    "a pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("what", NO_FILES)
async def test_what_is_no_file_is_neither_read_nor_waited_for(
    paths: Paths, hobnob: Cli, tmp_path: Path, what: str
) -> None:
    paths.make()
    NO_FILES[what](paths.database)
    sentence = f"{paths.database} is {what}, where a database should be."
    backup = await hobnob.run("history", "backup", str(tmp_path / "copy.db"))
    assert (backup.code, backup.err) == (Exit.INTERNAL, f"hobnob: {sentence}\n")
    checked = await hobnob.run("doctor", "--check-db")
    assert (checked.code, checked.out.decode()) == (Exit.INTERNAL, f"{sentence}\n")
    with pytest.raises(Damaged, match=sentence):
        await Store.open(paths.database)
    other = Paths.home({"HOBNOB_HOME": str(tmp_path / "other")})
    with pytest.raises(ExitError, match=sentence):
        offline.restore(other, paths.database)
    assert not other.database.exists()


@pytest.mark.parametrize("what", NO_FILES)
async def test_a_backup_goes_into_no_pipe_and_replaces_no_device(
    paths: Paths, hobnob: Cli, tmp_path: Path, what: str
) -> None:
    async with history(paths.database) as store:
        await said(store, "hello", "yes")
    target = tmp_path / "target"
    NO_FILES[what](target)
    result = await hobnob.run("history", "backup", str(target))
    assert (result.code, result.out) == (Exit.OUTPUT, b"")
    assert result.err == f"hobnob: A backup goes into a file: {target} is something else.\n"
    assert not target.is_file()


async def test_nothing_is_restored_while_a_server_holds_the_lock(
    paths: Paths, hobnob: Cli, tmp_path: Path
) -> None:
    paths.make()
    file = tmp_path / "copy.db"
    async with history(file) as store:
        await said(store, "sound", "yes")
    lock = Lock.acquire(paths.lock_file)
    result = await hobnob.run("history", "restore", str(file))
    assert result.code == Exit.TRY_LATER
    assert "hobnob stop" in result.err
    assert not paths.database.exists()
    lock.release()


async def test_who_comes_while_the_history_is_copied_is_told_so_and_to_try_again(
    paths: Paths, hobnob: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with history(paths.database) as store:
        await said(store, "hello", "yes")
    begun, go_on = threading.Event(), threading.Event()

    def slowly(*_: object) -> None:
        begun.set()
        go_on.wait(60)

    monkeypatch.setattr(store_offline, "back_up", slowly)
    copying = asyncio.create_task(asyncio.to_thread(offline.back_up, paths, tmp_path / "copy.db"))
    assert await asyncio.to_thread(begun.wait, 10)
    try:
        for command in (("ask", "hi"), ("stop",), ("history", "restore", "x"), ("serve",)):
            result = await hobnob.run(*command)
            assert (result.code, "is being copied" in result.err) == (75, True), result.err
    finally:
        go_on.set()
        await copying
    assert paths.lock_file.read_bytes()  # of who had it last
    assert (await hobnob.run("stop")).err == "No server was running.\n"
    lock = Lock.acquire(paths.lock_file)
    assert paths.lock_file.read_bytes() == b""
    lock.release()


async def test_the_doctor_says_each_finding_in_a_sentence_and_fails(
    paths: Paths, hobnob: Cli
) -> None:
    async with history(paths.database) as store:
        turn = await first_turn(store, "some words")
        await store.append([Append(turn.run.id, [delta(1, "x", [1])])])
        await answer(store, await first_turn(store, "more words"), "others")
    assert (await hobnob.run("doctor", "--check-db")).code == 0
    with closing(sqlite3.connect(paths.database, isolation_level=None)) as conn:
        conn.execute("DROP TRIGGER messages_index_update_new")
        conn.execute("UPDATE messages SET text = 'changed behind its back' WHERE n = 1")
        conn.execute("DELETE FROM runs")
        conn.execute("PRAGMA foreign_keys = OFF")
        conn.execute("INSERT INTO run_events VALUES (77, 1, 't', '{}', NULL)")
    result = await hobnob.run("doctor", "--check-db")
    assert result.code == 1
    lines = result.out.decode().splitlines()
    assert "The search index does not fit the messages." in lines
    assert any("of run_events refers to a row of runs" in line for line in lines)
    assert all(line.endswith(".") for line in lines)
    as_json = await hobnob.run("doctor", "--check-db", "--json")
    assert json.loads(as_json.out) == {"problems": lines}


async def test_the_doctor_says_of_a_file_that_is_no_database_what_it_is(
    paths: Paths, hobnob: Cli
) -> None:
    paths.make()
    paths.database.write_bytes(b"not a database" * 1000)
    result = await hobnob.run("doctor", "--check-db")
    assert result.code == 1
    assert b"not a database" in result.out and b"Traceback" not in result.out
    assert result.err == ""
