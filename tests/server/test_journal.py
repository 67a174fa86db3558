"""What readers see and what is stored when the store cannot write, and after."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from fake_engine import FakeEngine
from support_runs import OWNER, bench_at, drain, next_of, numbered, stop_of, text_of, types_of

from hobnob.server import wire
from hobnob.store.values import Append, Closed, Stale, StoreError

WHOLE = "Hello, world!"


async def test_a_full_disk_is_said_before_what_is_not_saved_is_shown(tmp_path: Path) -> None:
    async with bench_at(tmp_path, store_retry_s=60) as bench:
        turn = await bench.send()
        reader = await bench.runs.follow(OWNER, turn.run.id)
        await next_of(reader, wire.BlockStart)
        bench.store.fill_disk()
        bench.engine.step()
        first, second = await anext(reader), await anext(reader)
        assert isinstance(first.payload, wire.NotSaved) and "disk is full" in first.payload.message
        assert first.seq is None
        assert second == wire.Event(4, wire.BlockDelta(0, "Hello"))
        assert not bench.runs.saving
        bench.engine.finish_all()
        rest = await drain(reader)
        assert types_of(rest).count("not_saved") == 0  # once is enough
        assert text_of(rest) == ", world!"
        assert stop_of(rest).status == "completed"
        late = await bench.read_all(turn.run.id)
        assert isinstance(late[0].payload, wire.NotSaved)
        assert text_of(late) == WHOLE


async def test_when_there_is_room_again_the_backlog_is_stored_in_order(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
        reader = await bench.runs.follow(OWNER, turn.run.id)
        await next_of(reader, wire.BlockStart)
        bench.store.fill_disk()
        bench.engine.step()
        await next_of(reader, wire.BlockDelta)
        bench.engine.step()
        await next_of(reader, wire.BlockDelta)
        bench.store.free_disk()
        bench.engine.finish_all()
        events = numbered(await bench.read_all(turn.run.id))
        assert (await bench.saved(turn)).text == WHOLE
        logged = await bench.store.events(OWNER, turn.run.id)
        assert [(row.seq, wire.load(row.type, row.data)) for row in logged] == [
            (event.seq, event.payload) for event in events
        ]
        assert bench.runs.saving


async def test_an_end_that_could_not_be_stored_is_tried_again_without_any_step(
    tmp_path: Path,
) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
        reader = await bench.runs.follow(OWNER, turn.run.id)
        bench.store.fill_disk()
        bench.engine.finish_all()
        assert stop_of(await drain(reader)).status == "completed"
        assert (await bench.store.message(OWNER, turn.reply.id)).status == "running"
        bench.store.free_disk()
        assert (await bench.saved(turn)).text == WHOLE
        async with asyncio.timeout(10):
            while not bench.runs.saving:  # learns of it a moment after the database has it
                await asyncio.sleep(0)
        late = await bench.read_all(turn.run.id)
        assert "not_saved" not in types_of(late)


async def test_a_log_that_the_store_refuses_ends_its_run_and_no_other(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        bad, good = await bench.send(), await bench.send()
        reader = await bench.runs.follow(OWNER, bad.run.id)
        await next_of(reader, wire.BlockStart)
        append = bench.store.append

        async def refusing(batch: list[Append]) -> list[str]:
            if any(part.run == bad.run.id for part in batch):
                raise StoreError("there is no such run")
            return await append(batch)

        bench.store.append = refusing  # type: ignore[method-assign, assignment]
        bench.engine.step()
        rest = await drain(reader)
        assert stop_of(rest).status == "cancelled"
        assert text_of(rest) == "Hello"
        assert bench.engine.cancelled == [bad.run.id]
        bench.engine.finish_all()
        assert text_of(await bench.read_all(good.run.id)) == WHOLE
        assert (await bench.saved(good)).text == WHOLE


async def test_a_reader_that_is_slow_costs_the_others_nothing(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
        idle = [await bench.runs.follow(OWNER, turn.run.id) for _ in range(50)]
        events = await bench.finish(turn)
        assert text_of(events) == WHOLE
        assert numbered(await drain(idle[0])) == numbered(events)


async def test_a_stop_waits_for_what_was_received_to_be_logged(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
        bench.store.gate = asyncio.Event()
        bench.engine.step()
        stopping = asyncio.create_task(bench.runs.stop())
        await asyncio.sleep(0.02)
        bench.store.gate.set()
        await stopping
        logged = await bench.store.events(OWNER, turn.run.id)
        assert logged[-1].type == "content_block_delta"


async def test_a_stop_tries_once_more_to_save_what_could_not_be_saved(tmp_path: Path) -> None:
    async with bench_at(tmp_path, store_retry_s=60) as bench:
        turn = await bench.send()
        reader = await bench.runs.follow(OWNER, turn.run.id)
        bench.store.fill_disk()
        bench.engine.finish_all()
        assert stop_of(await drain(reader)).status == "completed"
        assert (bench.runs.live_count, bench.runs.unsaved_count) == (0, 1)
        bench.store.free_disk()
        await bench.runs.stop()
        assert (await bench.store.message(OWNER, turn.reply.id)).text == WHOLE
        assert bench.runs.unsaved_count == 0


async def test_a_disk_that_does_not_answer_is_said_and_the_reply_is_shown_on(
    tmp_path: Path,
) -> None:
    async with bench_at(tmp_path, store_patience_s=0.05) as bench:
        turn = await bench.send()
        reader = await bench.runs.follow(OWNER, turn.run.id)
        await next_of(reader, wire.BlockStart)
        bench.store.gate = asyncio.Event()
        bench.engine.step()
        first, second = await anext(reader), await anext(reader)
        assert isinstance(first.payload, wire.NotSaved)
        assert "does not answer" in first.payload.message
        assert second == wire.Event(4, wire.BlockDelta(0, "Hello"))
        assert not bench.runs.saving
        bench.engine.finish_all()
        rest = await drain(reader)  # while the same append still hangs
        assert text_of(rest) == ", world!" and stop_of(rest).status == "completed"
        assert "not_saved" not in types_of(rest)
        assert (await bench.store.message(OWNER, turn.reply.id)).status == "running"
        bench.store.gate.set()
        assert (await bench.saved(turn)).text == WHOLE
        logged = await bench.store.events(OWNER, turn.run.id)
        assert [row.seq for row in logged] == list(range(1, len(logged) + 1))
        async with asyncio.timeout(10):
            while bench.runs.unsaved_count or not bench.runs.saving:
                await asyncio.sleep(0)
        assert "not_saved" not in types_of(await bench.read_all(turn.run.id))


async def test_another_programs_lock_does_not_make_a_reply_stand_still(tmp_path: Path) -> None:
    """The real store waits for the lock; nothing of the reply waits with it."""
    async with bench_at(
        tmp_path, FakeEngine([f"{n} " for n in range(200)]), store_patience_s=0.05
    ) as bench:
        turn = await bench.send()
        reader = await bench.runs.follow(OWNER, turn.run.id)
        await next_of(reader, wire.BlockStart)
        with closing(sqlite3.connect(tmp_path / "hobnob.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            for n in range(100):
                bench.engine.step()
                shown = await next_of(reader, wire.BlockDelta)
                assert shown.text == f"{n} "
            other.execute("ROLLBACK")
        bench.engine.finish_all()
        await drain(reader)
        assert (await bench.saved(turn)).text == "".join(f"{n} " for n in range(200))


async def test_an_end_that_is_decided_while_an_append_hangs_is_settled_once(
    tmp_path: Path,
) -> None:
    """The conversation is deleted before the append comes through: then nothing is kept."""
    async with bench_at(tmp_path, store_patience_s=0.02) as bench:
        turn = await bench.send()
        reader = await bench.runs.follow(OWNER, turn.run.id)
        await next_of(reader, wire.BlockStart)
        bench.store.gate = asyncio.Event()
        bench.engine.step()
        await next_of(reader, wire.BlockDelta)
        bench.engine.finish_all()
        assert stop_of(await drain(reader)).status == "completed"
        await bench.store.delete_conversation(OWNER, turn.conversation.id)
        bench.store.gate.set()
        async with asyncio.timeout(10):
            while bench.runs.unsaved_count:
                await asyncio.sleep(0)
        assert bench.runs.saving and bench.runs.live_count == 0


async def test_a_fault_of_the_journal_ends_every_reader_and_is_reported(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
        reader = await bench.runs.follow(OWNER, turn.run.id)
        await next_of(reader, wire.BlockStart)

        async def broken(batch: list[Append]) -> None:
            raise ZeroDivisionError

        bench.store.append = broken  # type: ignore[method-assign, assignment]
        bench.engine.step()
        (last,) = await drain(reader)
        assert isinstance(last.payload, wire.StreamError) and last.payload.code == "internal"
        assert [type(fault["exception"]) for fault in bench.faults] == [ZeroDivisionError]
        assert bench.broken
        bench.faults.clear()


@pytest.mark.parametrize(
    "error",
    [Closed("The thread that writes has ended."), Stale("Another server has taken over.")],
)
async def test_a_store_that_has_closed_for_good_breaks_the_server_and_is_no_full_disk(
    tmp_path: Path, error: StoreError
) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
        reader = await bench.runs.follow(OWNER, turn.run.id)
        await next_of(reader, wire.BlockStart)
        bench.store.broken = error
        bench.engine.step()
        (last,) = await drain(reader)
        assert isinstance(last.payload, wire.StreamError) and last.payload.code == "internal"
        assert bench.broken
        bench.faults.clear()


async def test_a_turn_accepted_in_the_instant_of_its_deletion_ends_and_is_not_shown_on(
    tmp_path: Path,
) -> None:
    async with bench_at(tmp_path) as bench:
        other = await bench.send()
        turn = await bench.send()
        reader = await bench.runs.follow(OWNER, turn.run.id)
        await next_of(reader, wire.BlockStart)
        await bench.store.delete_conversation(OWNER, turn.conversation.id)
        bench.engine.step()
        assert stop_of(await drain(reader)).status == "cancelled"
        assert bench.engine.cancelled == [turn.run.id]
        assert text_of(await bench.finish(other)) == WHOLE
        assert (await bench.saved(other)).text == WHOLE
        assert bench.runs.live_count == 0
