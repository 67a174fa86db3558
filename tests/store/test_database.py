from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest
from support_turns import ME, said

from hobnob.store import database, writer
from hobnob.store.database import Database
from hobnob.store.store import Store
from hobnob.store.values import Closed, Locked, Stale, StoreError, WriteFailed

SET = "REPLACE INTO meta (key, value) VALUES ('mark', ?)"


@pytest.fixture
async def db(path: Path) -> AsyncIterator[Database]:
    db = Database(path, wait_s=10)
    await db.open()
    yield db
    await db.close()


def mark(conn: sqlite3.Connection) -> object:
    row = conn.execute("SELECT value FROM meta WHERE key = 'mark'").fetchone()
    return row and row[0]


def set_mark(value: object) -> Callable[[sqlite3.Connection], int]:
    return lambda conn: conn.execute(SET, (value,)).rowcount


async def test_a_write_is_seen_by_the_next_read(db: Database) -> None:
    await db.write(set_mark(1))
    assert await db.read(mark) == 1


async def test_writes_run_in_the_order_of_the_calls(db: Database) -> None:
    order: list[int] = []
    calls = [db.write(lambda _, i=i: order.append(i)) for i in range(200)]
    await asyncio.gather(*calls)
    assert order == list(range(200))


async def test_a_failed_write_leaves_nothing_and_the_next_one_works(db: Database) -> None:
    def fail(conn: sqlite3.Connection) -> None:
        conn.execute(SET, (1,))
        raise KeyError("a programmer's error")

    with pytest.raises(KeyError):
        await db.write(fail)
    assert await db.read(mark) is None
    await db.write(set_mark(2))
    assert await db.read(mark) == 2


async def test_cancelling_the_wait_does_not_cancel_the_write(db: Database) -> None:
    go = threading.Event()
    blocker = db.write(lambda _: go.wait(10))
    task = asyncio.ensure_future(asyncio.wait_for(db.write(set_mark(3)), timeout=None))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go.set()
    assert await blocker
    await db.write(lambda _: None)  # the cancelled one lies before it
    assert await db.read(mark) == 3


async def test_close_runs_what_waits_and_may_be_called_again(path: Path) -> None:
    db = Database(path)
    await db.open()
    writes = [db.write(set_mark(i)) for i in range(50)]
    await db.close()
    await db.close()
    assert await asyncio.gather(*writes) == [1] * 50
    with closing(sqlite3.connect(path)) as conn:
        assert mark(conn) == 49


async def test_a_closed_database_refuses_to_read_and_write(db: Database) -> None:
    await db.close()
    with pytest.raises(Closed):
        await db.write(set_mark(1))
    with pytest.raises(Closed):
        await db.read(mark)
    with pytest.raises(Closed):
        await db.checkpoint()


async def test_closing_ends_the_threads_and_removes_the_write_ahead_log(path: Path) -> None:
    before = set(threading.enumerate())
    db = Database(path)
    await db.open()
    await db.write(set_mark(1))
    await db.read(mark)
    await db.close()
    new = set(threading.enumerate()) - before
    assert [thread.name for thread in new if thread.name.startswith("store")] == []
    assert [p.name for p in path.parent.iterdir()] == ["hobnob.db"]


async def test_close_does_not_wait_for_a_read_without_end(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "CLOSE_READERS_SECONDS", 0.05)
    db = Database(path)
    await db.open()
    endless = (
        "WITH RECURSIVE t (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT max(n) FROM t"
    )
    reading = asyncio.ensure_future(db.read(lambda conn: conn.execute(endless).fetchone()))
    await asyncio.sleep(0)
    await db.close()
    with pytest.raises(StoreError):
        await reading


def test_a_write_whose_event_loop_has_gone_ends_quietly(path: Path) -> None:
    go = threading.Event()
    db = Database(path)

    async def begin() -> None:
        await db.open()
        db.write(lambda _: go.wait(10))
        db.write(set_mark(5))

    asyncio.run(begin())
    go.set()
    asyncio.run(db.close())
    with closing(sqlite3.connect(path)) as conn:
        assert mark(conn) == 5


async def test_a_reader_cannot_write(db: Database) -> None:
    with pytest.raises(WriteFailed):
        await db.read(set_mark(1))


async def test_a_read_sees_one_state_whatever_is_written_meanwhile(db: Database) -> None:
    await db.write(set_mark(1))
    first, second = threading.Event(), threading.Event()

    def twice(conn: sqlite3.Connection) -> tuple[object, object]:
        before = mark(conn)
        first.set()
        assert second.wait(10)
        return before, mark(conn)

    reading = asyncio.ensure_future(db.read(twice))
    assert await asyncio.to_thread(first.wait, 10)
    await db.write(set_mark(2))
    second.set()
    assert await reading == (1, 1)
    assert await db.read(mark) == 2


async def test_a_write_waits_for_another_program_and_the_event_loop_does_not(
    db: Database,
) -> None:
    with closing(sqlite3.connect(db.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        waiting = db.write(set_mark(1))
        for _ in range(20):
            await asyncio.sleep(0)  # the loop turns
        assert await db.read(mark) is None  # and readers read
        assert not waiting.done()
        other.execute("COMMIT")
    assert await waiting == 1


async def test_a_write_gives_up_on_a_lock_that_is_never_released(path: Path) -> None:
    db = Database(path, wait_s=0.3)
    await db.open()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Locked):
            await db.write(set_mark(1))
        other.execute("COMMIT")
    assert await db.write(set_mark(2)) == 1
    await db.close()


async def test_closing_does_not_wait_long_for_a_locked_database(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "CLOSING_WAIT_SECONDS", 0.1)
    db = Database(path, wait_s=3600)
    await db.open()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        waiting = db.write(set_mark(1))
        await db.close()
        with pytest.raises(Locked):
            await waiting


async def test_whoever_opened_last_writes_and_the_earlier_one_is_refused(path: Path) -> None:
    early, late = Database(path), Database(path)
    await early.open()
    await early.write(set_mark("early"))
    await late.open()
    with pytest.raises(Stale):
        await early.write(set_mark("stale"))
    await late.write(set_mark("late"))
    assert await early.read(mark) == "late"
    await early.close()
    await late.close()


@pytest.mark.parametrize("other", [None, b"another file"])
async def test_a_file_that_was_removed_or_replaced_is_not_written_on_in_silence(
    path: Path, other: bytes | None
) -> None:
    heard: list[Stale] = []
    db = Database(path, on_taken_over=heard.append)
    await db.open()
    await db.write(set_mark("kept"))
    path.rename(path.with_name("elsewhere.db"))
    if other is not None:
        path.write_bytes(other)
    with pytest.raises(Stale, match="was removed, or replaced by another file"):
        await db.write(set_mark("lost"))
    assert [str(one) for one in heard] == [
        f"The database {path} was removed, or replaced by another file."
    ]
    await db.close()


async def test_too_many_waiting_writes_are_refused(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "MAX_WAITING", 5)
    go = threading.Event()
    accepted = [db.write(lambda _: go.wait(10))]
    with pytest.raises(WriteFailed):
        while len(accepted) < 100:
            accepted.append(db.write(lambda _: True))
    go.set()
    assert all(await asyncio.gather(*accepted))


async def test_an_idle_database_moves_its_log_into_the_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "IDLE_SECONDS", 0.02)
    db = Database(path)
    await db.open()
    await db.write(set_mark("in the file"))
    for _ in range(1000):
        if b"in the file" in path.read_bytes():
            break
        await asyncio.sleep(0.01)
    assert b"in the file" in path.read_bytes()
    await db.close()


async def test_a_busy_database_keeps_its_log_bounded(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "IDLE_SECONDS", 3600.0)
    monkeypatch.setattr(writer, "WAL_BOUND_BYTES", 100_000)
    db = Database(path)
    await db.open()
    seen = 0
    for i in range(200):
        await db.write(set_mark(f"{i}" * 10_000))
        seen = max(seen, os.stat(f"{path}-wal").st_size)
    assert 100_000 < seen < 400_000
    await db.close()


async def test_a_reader_that_stays_does_not_cause_a_checkpoint_with_every_write(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "WAL_BOUND_BYTES", 100_000)
    db = Database(path)
    await db.open()
    begun, leave = threading.Event(), threading.Event()

    def stay(conn: sqlite3.Connection) -> bool:
        mark(conn)
        begun.set()
        return leave.wait(10)

    checkpoints = 0
    original = db._writer._checkpoint

    def counted(conn: sqlite3.Connection) -> None:
        nonlocal checkpoints
        checkpoints += 1
        original(conn)

    monkeypatch.setattr(db._writer, "_checkpoint", counted)
    reading = asyncio.ensure_future(db.read(stay))
    assert await asyncio.to_thread(begun.wait, 10)
    for i in range(100):
        await db.write(set_mark(f"{i}" * 5_000))
    leave.set()
    assert await reading
    assert 0 < checkpoints < 30
    await db.close()


async def test_a_full_disk_fails_the_write_only_and_later_ones_work(db: Database) -> None:
    await db.write(set_mark("before"))
    (pages,) = await db.write(lambda c: c.execute("PRAGMA page_count").fetchone())
    await db.write(lambda c: c.execute(f"PRAGMA max_page_count = {pages + 2}").fetchone())
    with pytest.raises(WriteFailed) as caught:
        await db.write(set_mark("x" * 100_000))
    assert "full" in str(caught.value)
    assert await db.read(mark) == "before"
    await db.write(lambda c: c.execute("PRAGMA max_page_count = 100000").fetchone())
    await db.write(set_mark("after"))
    assert await db.read(mark) == "after"


async def test_files_are_private_in_a_private_folder(path: Path) -> None:
    previous = os.umask(0)
    try:
        db = Database(path)
        await db.open()
        await db.write(set_mark(1))
    finally:
        os.umask(previous)
    files = sorted(path.parent.iterdir())
    assert [file.name for file in files] == ["hobnob.db", "hobnob.db-shm", "hobnob.db-wal"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    await db.close()


async def test_a_path_with_odd_characters_works(tmp_path: Path) -> None:
    db = Database(tmp_path / "a b?c#d%20é😀" / "x.db")
    await db.open()
    await db.write(set_mark(1))
    assert await db.read(mark) == 1
    await db.close()


@pytest.mark.parametrize("kind", ["folder is a file", "file is a folder"])
async def test_a_place_that_cannot_hold_a_database_is_an_error_of_ours(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "data" / "hobnob.db"
    if kind == "folder is a file":
        path.parent.write_text("")
    else:
        path.mkdir(parents=True)
    db = Database(path)
    with pytest.raises(WriteFailed) as caught:
        await db.open()
    assert str(path) in str(caught.value)
    with pytest.raises(Closed):
        await db.write(set_mark(1))
    await db.close()


async def test_half_a_surrogate_pair_is_an_error_of_ours(db: Database) -> None:
    with pytest.raises(StoreError) as caught:
        await db.write(set_mark("half \ud83d emoji"))
    assert "emoji" not in str(caught.value)
    assert await db.read(mark) is None


def synchronous(conn: sqlite3.Connection) -> int:
    return int(conn.execute("PRAGMA synchronous").fetchone()[0])


async def test_only_durable_writes_wait_for_the_disk_and_only_where_that_is_wanted(
    path: Path,
) -> None:
    normal, full = 1, 2
    for wanted, durable in ((False, normal), (True, full)):
        db = Database(path, full=wanted)
        await db.open()
        assert await db.write(synchronous) == normal
        assert await db.write(synchronous, durable=True) == durable
        with pytest.raises(StoreError):
            await db.write(lambda conn: conn.execute("no such words"), durable=True)
        assert await db.write(synchronous) == normal
        await db.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_nobody_waits_for_a_writer_that_has_died(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()

    def die(*_: object) -> None:
        raise MemoryError

    running = db.write(lambda _: go.wait(10))
    waiting = [db.write(set_mark(n)) for n in range(3)]
    monkeypatch.setattr(writer.Writer, "_watch_wal", die)
    go.set()
    assert await running
    async with asyncio.timeout(10):
        for one in waiting:
            with pytest.raises(Closed):
                await one
    with pytest.raises(Closed):
        await db.write(set_mark(9))


@pytest.mark.parametrize("noticed", [True, False])
async def test_the_log_of_a_database_that_was_replaced_does_not_go_into_the_new_one(
    path: Path, tmp_path: Path, noticed: bool
) -> None:
    other = await Store.open(tmp_path / "other.db")
    await said(other, "of the other")
    await other.close()
    store = await Store.open(path)
    await said(store, "only in the log")
    os.replace(tmp_path / "other.db", path)
    if noticed:
        with pytest.raises(Stale):
            await said(store, "never")
    await store.close()
    fresh = await Store.open(path)
    assert await fresh.check() == []
    (one,) = await fresh.conversations(ME)
    assert [m.text for m in await fresh.messages(ME, one.id)] == ["of the other", "yes"]
    await fresh.close()
    assert len(list(path.parent.glob("hobnob-2*.db-wal"))) == 1


async def test_a_database_that_cannot_be_looked_at_is_not_saved_and_works_again_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await Store.open(path)
    look = os.stat

    def refuse(what: object, **how: object) -> os.stat_result:
        if what == path:
            raise PermissionError(13, "Permission denied")
        return look(what, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", refuse)
    with pytest.raises(WriteFailed, match="Permission denied") as refused:
        await said(store, "not now")
    assert not isinstance(refused.value, Stale)
    monkeypatch.undo()
    await said(store, "now")
    await store.close()
