"""A disk that is full, read-only or damaged: SQLite's own errors, over the whole server's core."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from fake_engine import FakeEngine
from support_runs import OWNER, Bench, bench_at, drain, next_of, stop_of, text_of
from support_turns import ME, said

from hobnob.server import wire
from hobnob.server.errors import Gone
from hobnob.store import upkeep
from hobnob.store.store import Store
from hobnob.store.values import Damaged, WriteFailed

SCRIPT = [f"piece {n} " * 40 for n in range(120)]
"""Enough text to need new pages again and again."""


LONG = "zy " * 10_000
"""What fills pages of its own."""


def damage(path: Path) -> None:
    """Breaks the chain of pages that a long value lies on, wherever it is kept."""
    data = bytearray(path.read_bytes())
    pages = [n for n in range(0, len(data), 4096) if data.count(b"zy zy ", n, n + 4096) > 600]
    assert pages
    for page in pages:
        data[page : page + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(data)


async def pragma(bench: Bench, setting: str) -> None:
    """On the writer's connection: what the disk would do, done by SQLite."""
    await bench.store._db.outside(lambda conn: conn.execute(f"PRAGMA {setting}").fetchall())


async def fill(bench: Bench) -> None:
    """The file may not grow any more: SQLITE_FULL, as on a full disk."""
    await pragma(bench, "max_page_count = 1")  # SQLite takes the present size, if that is more


async def free(bench: Bench) -> None:
    await pragma(bench, "max_page_count = 1000000")


@pytest.mark.parametrize(
    ("harm", "mend", "words"),
    [
        ("max_page_count = 1", "max_page_count = 1000000", "disk is full"),
        ("query_only = ON", "query_only = OFF", "read-only"),
    ],
)
async def test_a_disk_that_takes_nothing_is_said_first_and_the_reply_is_shown_and_kept(
    tmp_path: Path, harm: str, mend: str, words: str
) -> None:
    async with bench_at(tmp_path, FakeEngine(SCRIPT, n_ctx=100_000)) as bench:
        turn = await bench.send()
        reader = await bench.runs.follow(OWNER, turn.run.id)
        bench.engine.step()
        first = await next_of(reader, wire.BlockDelta)
        await pragma(bench, harm)
        seen: list[wire.Event] = []
        for _ in range(80):
            bench.engine.step()
            event = await anext(reader)
            seen.append(event)
            if isinstance(event.payload, wire.NotSaved):
                seen.append(await anext(reader))
        warnings = [e.payload for e in seen if isinstance(e.payload, wire.NotSaved)]
        assert len(warnings) == 1 and words in warnings[0].message
        # Everything before the warning is in the store, nothing of what follows it is.
        logged = await bench.store.events(OWNER, turn.run.id)
        at = next(i for i, e in enumerate(seen) if isinstance(e.payload, wire.NotSaved))
        assert logged[-1].seq == (seen[at - 1].seq if at else 4)
        with pytest.raises(WriteFailed):
            await bench.send("refused, and nothing of it is kept " * 2000)
        bench.engine.finish_all()
        rest = await drain(reader)
        assert first.text + text_of(seen) + text_of(rest) == "".join(SCRIPT)
        assert stop_of(rest).status == "completed"
        assert await bench.store._db.with_reader(upkeep.problems_of_file) == []
        await pragma(bench, mend)
        assert (await bench.saved(turn)).text == "".join(SCRIPT)
        assert await bench.store.check() == []
        assert len(await bench.store.conversations(OWNER)) == 1
        again = await bench.send("after it")
        assert text_of(await bench.finish(again)) == "".join(SCRIPT)


async def test_a_disk_that_is_full_before_any_reply_shows_the_history_and_refuses_messages(
    tmp_path: Path,
) -> None:
    async with bench_at(tmp_path, FakeEngine(n_ctx=100_000)) as bench:
        turn = await bench.send("before")
        await bench.finish(turn)
        await bench.saved(turn)
        await fill(bench)
        refused = 0
        for _ in range(40):
            try:
                await bench.send("x" * 5000)
            except WriteFailed as error:
                assert "disk is full" in str(error)
                refused += 1
        assert refused
        assert (await bench.store.message(OWNER, turn.reply.id)).text == "Hello, world!"
        await free(bench)
        assert (await bench.send("there is room again")).created


async def test_a_damaged_page_costs_what_is_on_it_and_no_more(tmp_path: Path) -> None:
    """One conversation cannot be read, the server starts, the others are read and written."""
    path = tmp_path / "hobnob.db"
    store = await Store.open(path)
    kept = await said(store, "kept", "sound")
    hurt = await said(store, "hurt", LONG)
    await store.prune(-1)  # the reply is in the message alone
    await store.close()
    damage(path)
    async with bench_at(tmp_path) as bench:
        with pytest.raises(Damaged):
            await bench.store.message(ME, hurt.reply.id)
        assert (await bench.store.message(ME, kept.reply.id)).text == "sound"
        turn = await bench.send("new", conversation=kept.conversation.id)
        assert text_of(await bench.finish(turn)) == "Hello, world!"
        assert (await bench.saved(turn)).text == "Hello, world!"
        problems = await bench.store._db.with_reader(upkeep.problems_of_file)
        assert problems and all(line.endswith(".") for line in problems)


async def test_a_run_whose_log_lies_on_a_damaged_page_does_not_keep_the_server_from_starting(
    tmp_path: Path,
) -> None:
    async with bench_at(tmp_path, FakeEngine([LONG, "more"])) as bench:
        hurt, other = await bench.send("hurt"), await bench.send("other")
        reader = await bench.runs.follow(OWNER, hurt.run.id)
        bench.engine.step(hurt.run.id)
        await next_of(reader, wire.BlockDelta)
    path = tmp_path / "hobnob.db"
    damage(path)
    async with bench_at(tmp_path, FakeEngine(["a", "b"])) as bench:
        with pytest.raises(Gone, match="damaged page"):
            await bench.runs.follow(OWNER, hurt.run.id)
        assert (await bench.store.message(OWNER, other.message.id)).text == "other"
        # New runs come to lie on the same page: refused in a sentence, and nothing is half there.
        with pytest.raises(Damaged):
            await bench.send("new")
        assert len(await bench.store.conversations(OWNER)) == 2


async def test_a_write_ahead_log_that_was_left_behind_is_read(tmp_path: Path) -> None:
    """Files of a server that was killed; the shared memory is of no use and may be missing."""
    path = tmp_path / "here" / "hobnob.db"
    store = await Store.open(path)
    turn = await said(store, "only in the log", "yes")
    there = tmp_path / "there"
    there.mkdir()
    for name in ("hobnob.db", "hobnob.db-wal"):
        shutil.copy(path.with_name(name), there / name)
    await store.close()
    again = await Store.open(there / "hobnob.db")
    assert (await again.message(ME, turn.reply.id)).text == "yes"
    assert await again.check() == []
    await again.close()


async def test_a_copy_of_the_database_file_alone_is_older_and_whole(tmp_path: Path) -> None:
    """Taken by hand from a running server, between two checkpoints; `backup` has it all."""
    path = tmp_path / "hobnob.db"
    store = await Store.open(path)
    await said(store, "checkpointed", "yes")
    assert await store._db.checkpoint()
    await said(store, "only in the log", "yes")
    by_hand = tmp_path / "copy.db"
    shutil.copy(path, by_hand)
    await store.close()
    with closing(sqlite3.connect(by_hand)) as conn:
        found = {text for (text,) in conn.execute("SELECT text FROM messages WHERE role = 'user'")}
    assert found == {"checkpointed"}
    copy = await Store.open(by_hand)
    assert await copy.check() == []
    await copy.close()
