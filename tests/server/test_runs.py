"""Runs from acceptance to their end: what is stored, what is shown, and in which order."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FIRST_TOKEN, FakeEngine
from support_runs import (
    OWNER,
    bench_at,
    drain,
    next_of,
    numbered,
    stop_of,
    text_of,
    types_of,
)

from hobnob.server import runs, wire
from hobnob.server.engine.protocol import Finish, Output
from hobnob.server.errors import (
    Gone,
    PromptTooLong,
    ServerStopping,
)
from hobnob.store.database import Database
from hobnob.store.values import NotFound

WHOLE = "Hello, world!"
ORDER = [
    "context",
    "message_start",
    "content_block_start",
    *["content_block_delta"] * 4,
    "content_block_stop",
    "message_delta",
    "message_stop",
]


async def test_a_reply_is_streamed_in_the_order_of_the_wire_and_stored_as_it_was_shown(
    tmp_path: Path,
) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send("Say hello", options={"temperature": 0, "seed": 5})
        reader = await bench.runs.follow(OWNER, turn.run.id)
        for _ in range(4):
            bench.engine.step()
            await next_of(reader, wire.BlockDelta)
        events = await bench.finish(turn)
        assert types_of(numbered(events)) == ORDER
        assert [event.seq for event in numbered(events)] == list(range(1, len(ORDER) + 1))
        start = events[1].payload
        assert isinstance(start, wire.MessageStart)
        assert (start.run, start.message, start.seed) == (turn.run.id, turn.reply.id, 5)
        assert stop_of(events) == wire.MessageStop("completed", "end_turn")
        reply = await bench.saved(turn)
        assert reply.text == text_of(events) == WHOLE
        assert reply.tokens == [FIRST_TOKEN + i for i in range(4)]
        assert reply.blocks == [{"type": "text", "text": WHOLE}]
        assert reply.usage == {
            "prompt_tokens": len(turn.run.prompt),
            "cached_tokens": 0,
            "completion_tokens": 4,
        }
        assert reply.timings["prefill_s"] == 0.5


async def test_nothing_is_shown_before_the_append_that_holds_it_has_returned(
    tmp_path: Path,
) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
        reader = await bench.runs.follow(OWNER, turn.run.id)
        await next_of(reader, wire.BlockStart)
        bench.store.gate = asyncio.Event()
        bench.engine.step()
        assert await reader.next_within(0.05) is None
        bench.store.gate.set()
        assert (await next_of(reader, wire.BlockDelta)).text == "Hello"
        logged = await bench.store.events(OWNER, turn.run.id)
        assert logged[-1].tokens == [FIRST_TOKEN]


async def test_steps_that_come_while_an_append_runs_are_merged_into_the_next(
    tmp_path: Path,
) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
        reader = await bench.runs.follow(OWNER, turn.run.id)
        await next_of(reader, wire.BlockStart)
        bench.store.gate = asyncio.Event()
        bench.engine.step()
        await asyncio.sleep(0.02)  # the append of the first step is waiting at the gate
        bench.engine.step()
        bench.engine.step()
        bench.store.gate.set()
        assert (await next_of(reader, wire.BlockDelta)).text == "Hello"
        assert (await next_of(reader, wire.BlockDelta)).text == ", world"
        assert reader.entry is not None and reader.entry.tokens == [
            FIRST_TOKEN + 1,
            FIRST_TOKEN + 2,
        ]


async def test_one_append_serves_all_runs_of_a_step(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        turns = [await bench.send(f"Hi {n}") for n in range(3)]
        readers = [await bench.runs.follow(OWNER, turn.run.id) for turn in turns]
        for reader in readers:
            await next_of(reader, wire.BlockStart)
        bench.store.batches.clear()
        bench.engine.step()
        for reader in readers:
            await next_of(reader, wire.BlockDelta)
        assert [len(batch) for batch in bench.store.batches] == [3]


async def test_ids_whose_text_is_held_back_go_with_the_next_delta_or_with_the_end(
    tmp_path: Path,
) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
        run = turn.run.id
        reader = await bench.runs.follow(OWNER, run)
        bench.engine.report(Output(run, [1], ""), Output(run, [2], "é"))
        await next_of(reader, wire.BlockDelta)
        bench.engine.report(Output(run, [3], "", finish=Finish("stop_string", "END")))
        events = await bench.read_all(run)
        logged = await bench.store.events(OWNER, run)
        assert [event.tokens for event in logged if event.tokens] == [[1, 2]]
        reply = await bench.saved(turn)
        assert (reply.text, reply.tokens) == ("é", [1, 2, 3])
        delta = events[-2].payload
        assert isinstance(delta, wire.MessageDelta) and delta.stop_string == "END"


async def test_every_reader_gets_the_same_from_every_offset(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
        early = await bench.runs.follow(OWNER, turn.run.id)
        whole = numbered(await bench.finish(turn))
        assert numbered(await drain(early)) == whole
        for after in range(len(whole)):
            assert await bench.read_all(turn.run.id, after) == whole[after:]


@pytest.mark.parametrize("kept", [64, 0])
async def test_an_ended_run_is_replayed_from_memory_or_from_the_store_alike(
    tmp_path: Path, kept: int
) -> None:
    async with bench_at(tmp_path, finished_kept=kept) as bench:
        turn = await bench.send()
        bench.engine.finish_all()
        await bench.saved(turn)
        events = await bench.read_all(turn.run.id)
        assert text_of(events) == WHOLE
        assert await bench.read_all(turn.run.id, 4) == events[4:]
        end = await bench.runs.follow(OWNER, turn.run.id, len(events))
        assert end.at_end
        with pytest.raises(Gone) as gone:
            await bench.runs.follow(OWNER, turn.run.id, len(events) + 1)
        assert gone.value.message_id == turn.reply.id


async def test_a_cursor_ahead_of_a_live_log_is_gone(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
        with pytest.raises(Gone):
            await bench.runs.follow(OWNER, turn.run.id, 99)


async def test_a_pruned_log_is_gone_and_names_the_message(tmp_path: Path) -> None:
    async with bench_at(tmp_path, finished_kept=0) as bench:
        turn = await bench.send()
        await bench.finish(turn)
        await bench.saved(turn)
        await bench.store.prune(-1)
        with pytest.raises(Gone) as gone:
            await bench.runs.follow(OWNER, turn.run.id)
        assert gone.value.message_id == turn.reply.id


@pytest.mark.parametrize("reads", [1, 2, 3])
async def test_a_log_that_is_pruned_while_it_is_looked_for_is_whole_or_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: int
) -> None:
    async with bench_at(tmp_path, finished_kept=0) as bench:
        turn = await bench.send()
        await bench.finish(turn)
        await bench.saved(turn)
        read, before = Database.read, iter(range(reads))

        async def read_then_prune(database: Database, function: Any) -> Any:
            found = await read(database, function)
            if next(before, None) == reads - 1:
                await bench.store.prune(-1)
            return found

        with monkeypatch.context() as patch:
            patch.setattr(Database, "read", read_then_prune)
            with suppress(Gone):
                assert text_of(await bench.read_all(turn.run.id)) == WHOLE


async def test_runs_of_another_owner_are_not_found(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
        with pytest.raises(NotFound):
            await bench.runs.follow("other", turn.run.id)
        with pytest.raises(NotFound):
            await bench.runs.cancel("other", turn.run.id)
        assert not bench.engine.cancelled


async def test_a_reader_that_is_cancelled_ends_neither_the_run_nor_its_own_cursor(
    tmp_path: Path,
) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
        reader = await bench.runs.follow(OWNER, turn.run.id)
        await next_of(reader, wire.BlockStart)
        reading = asyncio.ensure_future(anext(reader))
        await asyncio.sleep(0)
        reading.cancel()
        bench.engine.finish_all()
        assert text_of(await drain(reader)) == WHOLE
        assert (await bench.saved(turn)).text == WHOLE


async def test_a_cancel_holds_in_memory_where_the_disk_does_not_take_it_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
        bench.engine.step()
        with closing(sqlite3.connect(tmp_path / "hobnob.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # the disk does not answer
            monkeypatch.setattr(runs, "NOTE_SECONDS", 0.05)
            await bench.runs.cancel(OWNER, turn.run.id)
            assert not (await bench.store.run(OWNER, turn.run.id)).cancel_asked
            bench.engine.step()
            other.execute("ROLLBACK")
        assert (await bench.saved(turn)).status == "cancelled"


async def test_cancel_keeps_the_text_and_is_idempotent(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
        bench.engine.step()
        await bench.runs.cancel(OWNER, turn.run.id)
        await bench.runs.cancel(OWNER, turn.run.id)
        assert bench.engine.cancelled == [turn.run.id]
        bench.engine.step()
        events = await bench.read_all(turn.run.id)
        assert stop_of(events) == wire.MessageStop("cancelled", "cancelled")
        assert text_of(events) == "Hello"
        await bench.runs.cancel(OWNER, turn.run.id)
        reply = await bench.saved(turn)
        assert (reply.status, reply.text) == ("cancelled", "Hello")


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("end_turn", "completed"),
        ("stop_string", "completed"),
        ("max_tokens", "length"),
        ("context", "length"),
        ("cancelled", "cancelled"),
        ("error", "failed"),
    ],
)
async def test_each_stop_reason_has_its_status(tmp_path: Path, reason: str, status: str) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
        finish = Finish(reason, error_code="decode_failed", error="A step failed.")
        bench.engine.report(Output(turn.run.id, [1], "x", finish=finish))
        stop = stop_of(await bench.read_all(turn.run.id))
        assert (stop.status, stop.stop_reason) == (status, reason)
        assert (stop.error is not None) == (status == "failed")
        reply = await bench.saved(turn)
        assert (reply.status, reply.stop_reason) == (status, reason)
        assert (reply.error or "").startswith("decode_failed" if status == "failed" else "")


async def test_a_completion_lives_in_memory_only_and_ends_with_its_client(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        live = await bench.complete()
        reader = live.read()
        bench.engine.step()
        assert (await next_of(reader, wire.BlockDelta)).text == "Hello"
        bench.runs.abandon(live)
        assert bench.engine.cancelled == [live.id]
        bench.engine.step()
        assert stop_of(await drain(reader)).status == "cancelled"
        bench.runs.abandon(live)
        assert bench.runs.live_count == 0
        assert await bench.store.conversations(OWNER) == []
        with pytest.raises(NotFound):
            await bench.runs.follow(OWNER, live.id)


async def test_a_completion_that_does_not_fit_is_refused_not_trimmed(tmp_path: Path) -> None:
    async with bench_at(tmp_path, FakeEngine(n_ctx=20)) as bench:
        with pytest.raises(PromptTooLong) as refused:
            await bench.complete("x" * 19)  # 20 tokens with the role: nothing left to generate
        assert (refused.value.n_prompt_tokens, refused.value.n_ctx) == (20, 20)
        await bench.complete("x" * 18)


async def test_stopping_tells_every_reader_and_leaves_the_run_in_the_store(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
        reader = await bench.runs.follow(OWNER, turn.run.id)
        stuck = await bench.runs.follow(OWNER, turn.run.id)  # never read until later
        bench.engine.step()
        await next_of(reader, wire.BlockDelta)
        await bench.runs.stop()
        assert [event.payload.TYPE for event in await drain(reader)] == ["error"]
        assert types_of(await drain(stuck))[-1] == "error"
        bench.engine.step()  # nobody listens any more
        with pytest.raises(ServerStopping):
            await bench.send()
        assert (await bench.store.run(OWNER, turn.run.id)).status == "running"


async def test_deleting_a_conversation_ends_its_runs_first(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        turn, other = await bench.send(), await bench.send()
        bench.engine.step()
        player = asyncio.create_task(bench.engine.autoplay())
        await bench.runs.cancel_conversation(OWNER, turn.conversation.id)
        await bench.store.delete_conversation(OWNER, turn.conversation.id)
        with pytest.raises(NotFound):
            await bench.runs.follow(OWNER, turn.run.id)
        assert text_of(await bench.read_all(other.run.id)) == WHOLE
        player.cancel()
        assert bench.engine.forgotten == [turn.conversation.id]
        assert {s.group for s in bench.engine.submitted} == {
            turn.conversation.id,
            other.conversation.id,
        }


async def test_what_is_deleted_while_its_reply_is_written_is_nowhere_in_the_files(
    tmp_path: Path,
) -> None:
    """Database, write-ahead log and shared memory, with the server still running."""

    def found() -> int:
        return sum(file.read_bytes().count(b"xyzzy") for file in tmp_path.iterdir())

    engine = FakeEngine([f"xyzzy{n} " for n in range(50)])
    async with bench_at(tmp_path, engine) as bench:
        other = await bench.send("something else")
        turn = await bench.send("xyzzyquestion", title="xyzzytitle", system="xyzzysystem")
        reader = await bench.runs.follow(OWNER, turn.run.id)
        for _ in range(20):
            engine.step(turn.run.id)
            await next_of(reader, wire.BlockDelta)
        assert found() > 20
        player = asyncio.create_task(engine.autoplay())
        engine.cancel(other.run.id)  # its reply holds the words too, for it has the same script
        await bench.runs.cancel_conversation(OWNER, turn.conversation.id)
        await bench.store.delete_conversation(OWNER, turn.conversation.id)
        await bench.store.delete_conversation(OWNER, other.conversation.id)
        await bench.store.erased()
        assert found() == 0
        player.cancel()
