from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from support_turns import ME, answer, delta, first_turn, new_run, said

from hobnob.store import erasing, schema, upkeep
from hobnob.store import store as store_module
from hobnob.store.store import Store
from hobnob.store.values import Append, Closed, NotFound, WriteFailed


def everything(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


def count_merges(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """True for each time that merging the index begins, False for each further piece."""
    seen: list[bool] = []
    merge = upkeep.merge_index

    def counted(conn: sqlite3.Connection, *, begin: bool) -> bool:
        seen.append(begin)
        return merge(conn, begin=begin)

    monkeypatch.setattr(upkeep, "merge_index", counted)
    return seen


async def secret_conversation(store: Store) -> str:
    """A conversation with a word of its own in title, message, reply, log and index."""
    turn = await store.begin_turn(
        ME, None, parent=None, text="xyzzymessage", run=new_run(), title="xyzzytitle"
    )
    await answer(store, turn, "xyzzyreply")
    running = await store.begin_turn(
        ME, turn.conversation.id, parent=turn.reply.id, text="xyzzymore", run=new_run()
    )
    await store.append([Append(running.run.id, [delta(1, "xyzzylog", [1])])])
    return turn.conversation.id


async def test_what_is_deleted_is_nowhere_in_the_files(store: Store, path: Path) -> None:
    for i in range(30):
        await said(store, f"ordinary question {i}", f"ordinary answer {i}")
    place = await secret_conversation(store)
    kept = await said(store, "after it", "the end")
    assert everything(path.parent).count(b"xyzzy") > 5
    await store.delete_conversation(ME, place)
    await store.erased()
    assert everything(path.parent).count(b"xyzzy") == 0
    for gone in (store.conversation(ME, place), store.delete_conversation(ME, place)):
        with pytest.raises(NotFound):
            await gone
    assert await store.search(ME, "xyzzymessage") == []
    assert len(await store.in_flight()) == 0
    assert (await store.message(ME, kept.reply.id)).text == "the end"


async def test_the_only_conversation_can_be_deleted_and_leaves_nothing(
    store: Store, path: Path
) -> None:
    await store.delete_conversation(ME, await secret_conversation(store))
    await store.erased()
    assert everything(path.parent).count(b"xyzzy") == 0


async def test_erasing_goes_on_after_a_death_in_between(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await Store.open(path)
    place = await secret_conversation(store)
    with monkeypatch.context() as patch:
        patch.setattr(store._eraser, "wake", lambda: None)
        await store.delete_conversation(ME, place)
        await store.close()
    assert everything(path.parent).count(b"xyzzy") > 0  # in the index
    store = await Store.open(path)
    await store.erased()
    assert everything(path.parent).count(b"xyzzy") == 0
    await store.close()
    assert everything(path.parent).count(b"xyzzy") == 0


async def test_closing_erases_at_once_what_was_deleted_just_now(path: Path) -> None:
    store = await Store.open(path)
    await store.delete_conversation(ME, await secret_conversation(store))
    await store.close()
    assert everything(path.parent).count(b"xyzzy") == 0


async def test_erasing_that_a_reader_holds_up_is_done_when_the_reader_has_gone(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though nothing else is written: the log used to keep the text until the next deletion."""
    monkeypatch.setattr(erasing, "RETRY_SECONDS", 0.05)
    tries: list[bool] = []
    checkpoint = store._db.checkpoint

    async def counted() -> bool:
        tries.append(await checkpoint())
        return tries[-1]

    monkeypatch.setattr(store._db, "checkpoint", counted)
    merges = count_merges(monkeypatch)
    place = await secret_conversation(store)
    with closing(sqlite3.connect(store._db.path, isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT * FROM meta").fetchall()
        await store.delete_conversation(ME, place)
        await until(lambda: tries)
        assert await store._db.read(upkeep.erasure_mark) is not None
        assert everything(path.parent).count(b"xyzzy") > 0
    await store.erased()
    assert everything(path.parent).count(b"xyzzy") == 0
    assert await store._db.read(upkeep.erasure_mark) is None
    assert tries[0] is False and tries[-1] is True
    assert sum(merges) == 1  # the index is merged once, however often the reader is in the way


async def test_erasing_that_a_full_disk_prevents_is_done_when_there_is_room(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasing, "RETRY_SECONDS", 0.02)
    failures = 0
    merge = upkeep.merge_index

    def full(conn: sqlite3.Connection, *, begin: bool) -> bool:
        nonlocal failures
        if failures < 3:
            failures += 1
            raise WriteFailed("The disk is full.")
        return merge(conn, begin=begin)

    monkeypatch.setattr(upkeep, "merge_index", full)
    await store.delete_conversation(ME, await secret_conversation(store))
    await store.erased()
    assert failures == 3
    assert everything(path.parent).count(b"xyzzy") == 0


async def test_a_burst_of_deletions_is_erased_once(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merges = count_merges(monkeypatch)
    places = [await secret_conversation(store) for _ in range(12)]
    for place in places:
        await store.delete_conversation(ME, place)
    await store.erased()
    assert sum(merges) == 1
    assert everything(path.parent).count(b"xyzzy") == 0


async def test_a_burst_without_an_end_is_erased_meanwhile(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasing, "QUIET_SECONDS", 60.0)
    monkeypatch.setattr(erasing, "LONGEST_SECONDS", 0.05)
    merges = count_merges(monkeypatch)
    await store.delete_conversation(ME, await secret_conversation(store))
    await until(lambda: merges)


async def test_a_backup_holds_nothing_of_what_was_deleted_just_before(
    store: Store, tmp_path: Path
) -> None:
    await store.delete_conversation(ME, await secret_conversation(store))
    await store.backup(tmp_path / "copy.db")
    assert b"xyzzy" not in (tmp_path / "copy.db").read_bytes()


async def test_a_large_index_is_erased_in_pieces_with_other_writes_between(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "MERGE_PAGES", 1)
    words = [" ".join(f"w{i}x{j}" for j in range(150)) for i in range(40)]
    turns = [await said(store, text, "ok") for text in words]
    pieces = 0
    original = upkeep.merge_index

    def counted(conn: sqlite3.Connection, *, begin: bool) -> bool:
        nonlocal pieces
        pieces += 1
        return original(conn, begin=begin)

    monkeypatch.setattr(upkeep, "merge_index", counted)
    deleting = asyncio.ensure_future(store.delete_conversation(ME, turns[0].conversation.id))
    await asyncio.sleep(0)
    await said(store, "meanwhile", "ok")
    await deleting
    await store.erased()
    assert pieces > 3
    assert await store.search(ME, "w0x1") == []
    assert len(await store.search(ME, "w1x1")) == 1


async def test_a_backup_taken_while_writing_is_a_whole_database(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "COPY_PAGES", 1)
    before = await said(store, "before", "yes")
    await store.update_conversation(ME, before.conversation.id, pinned=True)
    target = tmp_path / "backups" / "copy.db"
    target.parent.mkdir()
    running = await first_turn(store, "running")
    backup = asyncio.ensure_future(store.backup(target))
    for seq in range(1, 50):
        await store.append([Append(running.run.id, [delta(seq, "x")])])
    await backup
    assert [file.name for file in target.parent.iterdir()] == ["copy.db"]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    copy = await Store.open(target)
    assert (await copy.message(ME, before.reply.id)).text == "yes"
    assert [one.id for one in await copy.conversations(ME, pinned=True)] == [before.conversation.id]
    assert await copy.instance() == await store.instance()
    assert await copy.check() == []
    await copy.close()
    await said(store, "the original is still written", "yes")


async def test_a_backup_does_not_begin_again_with_each_write(
    store: Store, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would take for ever beside a server that is never idle."""
    monkeypatch.setattr(upkeep, "COPY_PAGES", 1)
    steps = 0

    def written_between() -> bool:
        nonlocal steps
        steps += 1
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("UPDATE meta SET value = value + 1 WHERE key = 'change'")
        return False

    with closing(schema.connect_read_only(path, wait_s=0)) as conn:
        (pages,) = conn.execute("PRAGMA page_count").fetchone()
        upkeep.back_up(conn, tmp_path / "copy.db", stop=written_between)
    assert pages > 10 and steps < 2 * pages


async def test_closing_breaks_off_a_backup_and_leaves_the_one_before(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "copy.db"
    target.write_text("the one before")
    store = await Store.open(path)
    begun, go_on = threading.Event(), threading.Event()

    def wait(*_: object) -> None:
        begun.set()
        go_on.wait(10)

    monkeypatch.setattr(upkeep, "_make_sure_of_room", wait)
    backup = asyncio.ensure_future(store.backup(target))
    await until(begun.is_set)
    end = asyncio.ensure_future(store.close())
    await asyncio.sleep(0.05)
    go_on.set()
    with pytest.raises(Closed):
        await backup
    await end
    assert target.read_text() == "the one before"
    assert not list(tmp_path.glob("*.part"))


async def test_a_backup_replaces_the_one_before(store: Store, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    await store.backup(target)
    await said(store, "later", "yes")
    await store.backup(target)
    copy = await Store.open(target)
    assert len(await copy.conversations(ME)) == 1
    await copy.close()


async def test_a_backup_never_goes_into_the_database_itself(
    store: Store, path: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link.db"
    os.link(path, link)
    for target in (path, link):
        with pytest.raises(WriteFailed):
            await store.backup(target)
    assert len(await store.instance()) == 32


async def test_a_backup_that_would_fill_the_history_s_disk_is_refused_before_it_is_made(
    store: Store, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await first_turn(store)
    free = upkeep.ROOM_LEFT_BYTES
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))
    before = sorted(path.parent.iterdir())
    for copy in (store.backup(path.parent / "copy.db"), store.open_copy()):
        with pytest.raises(WriteFailed, match="not enough room"):
            await copy
    assert sorted(path.parent.iterdir()) == before
    free += 10**6
    await store.backup(path.parent / "copy.db")


async def test_what_a_killed_restore_left_is_removed_at_the_next_start(path: Path) -> None:
    path.parent.mkdir(parents=True)
    for ending in ("", ".part", "-wal"):
        path.with_name(f"{path.name}.restoring{ending}").write_text("what was deleted since")
    store = await Store.open(path)
    assert not list(path.parent.glob("*.restoring*"))
    await store.close()


async def test_a_backup_that_cannot_be_written_leaves_the_one_before(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(WriteFailed):
        await store.backup(tmp_path / "nowhere" / "copy.db")
    target = tmp_path / "copy.db"
    target.write_text("the one before")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(upkeep, "_copy", full)
    with pytest.raises(WriteFailed):
        await store.backup(target)
    assert target.read_text() == "the one before"
    assert not target.with_name("copy.db.part").exists()


async def test_a_check_finds_an_index_that_does_not_fit(path: Path) -> None:
    store = await Store.open(path)
    await said(store, "some words", "others")
    assert await store.check() == []
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("DROP TRIGGER messages_index_update_new")
        conn.execute("UPDATE messages SET text = 'changed behind its back' WHERE n = 1")
        conn.commit()
    assert await store.check() == [
        "The trigger messages_index_update_new is not there.",
        "The search index does not fit the messages.",
    ]
    await store.close()


async def test_a_check_finds_dangling_references_and_broken_pages(path: Path) -> None:
    store = await Store.open(path)
    for i in range(200):
        await said(store, f"question {i} " * 20, "answer")
    await store.close()
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("DELETE FROM conversations WHERE n = 5")  # foreign keys are off here
        conn.commit()
        (root,) = conn.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'runs_by_message'"
        ).fetchone()
    with open(path, "r+b") as file:
        file.seek((root - 1) * 4096 + 8)
        file.write(b"\xff" * 200)
    store = await Store.open(path)
    problems = await store.check()
    assert any("conversations" in problem for problem in problems)
    assert len(problems) > 2
    await store.close()


def test_the_clock_counts_utc_milliseconds() -> None:
    assert 1_700_000_000_000 < store_module.utc_ms() < 10_000_000_000_000


async def test_a_check_of_the_index_ends_when_the_store_closes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "CHECK_INSTRUCTIONS", 100)
    store = await Store.open(path)
    for number in range(30):
        await said(store, " ".join(f"w{number}x{n}" for n in range(300)))
    await store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        assert upkeep.problems_of_index(conn) == []
        with pytest.raises(Closed):
            upkeep.problems_of_index(conn, stop=lambda: True)
        assert upkeep.problems_of_index(conn) == []
