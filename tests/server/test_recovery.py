"""A server that comes back: runs in flight go on, old ones end, nothing shown changes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from fake_engine import FIRST_TOKEN, TEXT_READY, FakeEngine
from support_runs import (
    OWNER,
    bench_at,
    next_of,
    numbered,
    stop_of,
    text_of,
    types_of,
)
from support_store import FaultyStore

from hobnob.server import wire
from hobnob.server.errors import Gone
from hobnob.server.recovery import restore
from hobnob.server.requests import RunSettings
from hobnob.server.runs import Runs
from hobnob.store.store import utc_ms
from hobnob.store.values import LoggedEvent

WHOLE = "Hello, world!"


async def test_a_cancel_that_was_answered_holds_where_the_server_dies_before_the_end(
    tmp_path: Path,
) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
        reader = await bench.runs.follow(OWNER, turn.run.id)
        bench.engine.step()
        await next_of(reader, wire.BlockDelta)
        await bench.runs.cancel(OWNER, turn.run.id)  # and the engine never comes to it
        assert (await bench.store.run(OWNER, turn.run.id)).cancel_asked
    async with bench_at(tmp_path) as bench:
        assert not bench.engine.submitted
        events = await bench.read_all(turn.run.id)
        assert stop_of(events) == wire.MessageStop("cancelled", "cancelled")
        assert text_of(events) == "Hello"
        reply = await bench.saved(turn)
        assert (reply.status, reply.text) == ("cancelled", "Hello")


async def test_a_run_goes_on_under_its_id_after_a_restart_of_the_server(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send(options={"seed": 9, "stop": ["END"], "logit_bias": {"5": 1}})
        reader = await bench.runs.follow(OWNER, turn.run.id)
        bench.engine.step()
        bench.engine.step()
        await next_of(reader, wire.BlockDelta)
    async with bench_at(tmp_path) as bench:
        shown = await bench.store.events(OWNER, turn.run.id)
        (again,) = bench.engine.submitted
        assert again.run == turn.run.id
        assert again.emitted == [FIRST_TOKEN, FIRST_TOKEN + 1]
        assert again.prompt == turn.run.prompt
        assert (again.sampling.seed, again.sampling.stop) == (9, ["END"])
        assert again.sampling.logit_bias == {5: 1.0}
        events = numbered(await bench.finish(turn))
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert [wire.dump(event.payload) for event in events[: len(shown)]] == [
            row.data for row in shown
        ]
        assert text_of(events) == WHOLE
        assert (await bench.saved(turn)).text == WHOLE
        assert (await bench.store.run(OWNER, turn.run.id)).attempts == 2


@pytest.mark.parametrize(
    ("loading", "exact_rows", "exact"),
    [(False, 63, True), (False, 0, False), (True, 63, False)],  # when it began it was not known
)
async def test_a_reply_taken_up_again_is_exact_if_it_was_called_so_and_still_is(
    tmp_path: Path, loading: bool, exact_rows: int, exact: bool
) -> None:
    first = FakeEngine(loading=loading)
    async with bench_at(tmp_path, first) as bench:
        turn = await bench.send()
        first.get_ready()
        reader = await bench.runs.follow(OWNER, turn.run.id)
        bench.engine.step()
        await next_of(reader, wire.BlockDelta)
    async with bench_at(tmp_path, FakeEngine(exact_rows=exact_rows)) as bench:
        bench.engine.finish_all()
        reader = await bench.runs.follow(OWNER, turn.run.id)
        assert (await next_of(reader, wire.MessageDelta)).exact is exact


async def test_a_run_whose_opening_was_never_logged_opens_as_it_was_planned(
    tmp_path: Path,
) -> None:
    async with bench_at(tmp_path, FakeEngine(n_ctx=60), reply_tokens=10) as bench:
        first = await bench.send("A" * 20)
        await bench.finish(first)
        await bench.saved(first)
        bench.store.fill_disk()  # appends fail, the turn itself is stored
        second = await bench.send("B" * 20, conversation=first.conversation.id)
    async with bench_at(tmp_path, FakeEngine(n_ctx=60)) as bench:
        events = numbered(await bench.finish(second))
        assert events[0].payload == wire.Context(
            len(second.run.prompt), 60, 1, [first.message.id, first.reply.id]
        )
        assert types_of(events)[:3] == ["context", "message_start", "content_block_start"]
        assert text_of(events) == WHOLE


async def test_a_run_that_is_too_old_ends_failed_with_its_text(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
        reader = await bench.runs.follow(OWNER, turn.run.id)
        bench.engine.step()
        await next_of(reader, wire.BlockDelta)
    later = utc_ms() + 601_000
    async with bench_at(tmp_path, now_ms=lambda: later) as bench:
        assert not bench.engine.submitted
        events = await bench.read_all(turn.run.id)
        error = stop_of(events).error
        assert error is not None and error.code == "interrupted"
        reply = await bench.saved(turn)
        assert (reply.status, reply.text) == ("failed", "Hello")


async def test_a_long_reply_goes_on_when_the_server_was_away_for_a_moment(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
        hour = 3_600_000
        await bench.store._db.write(
            lambda c: c.execute("UPDATE runs SET created_at = created_at - ?", (hour,))
        )
    async with bench_at(tmp_path) as bench:
        events = await bench.finish(turn)
        assert text_of(events) == WHOLE


async def test_a_run_of_another_model_is_not_continued(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
    engine = FakeEngine(loading=True)
    text = msgspec.structs.replace(TEXT_READY, vocab_hash="vocab-2")
    engine.become_text(text)
    async with bench_at(tmp_path, engine) as bench:
        engine.get_ready()
        error = stop_of(await bench.read_all(turn.run.id)).error
        assert error is not None and error.code == "model_changed"


@pytest.mark.parametrize(
    "damage",
    [
        lambda rows: [LoggedEvent(row.seq, "nonsense", "{}") for row in rows],
        lambda rows: rows[1:],
        lambda rows: [rows[0], *rows[2:]],
    ],
    ids=["odd rows", "no beginning", "a gap"],
)
async def test_a_log_that_cannot_be_read_is_ended_and_its_readers_are_sent_to_the_stored_reply(
    tmp_path: Path, damage: Callable[[list[LoggedEvent]], list[LoggedEvent]]
) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
        reader = await bench.runs.follow(OWNER, turn.run.id)
        await next_of(reader, wire.BlockStart)
    store = await FaultyStore.open(tmp_path / "hobnob.db")
    real = store.events

    async def damaged(owner: str, run_id: str) -> list[LoggedEvent]:
        return damage(await real(owner, run_id))

    store.events = store.whole_log = damaged  # type: ignore[method-assign,assignment]
    runs = Runs(store, FakeEngine(), RunSettings(), now_ms=utc_ms)
    await runs.start()
    reply = await store.message(OWNER, turn.reply.id)
    assert (reply.status, (reply.error or "").split(":")[0]) == ("failed", "log_unreadable")
    with pytest.raises(Gone) as caught:
        await runs.follow(OWNER, turn.run.id)
    assert caught.value.message_id == turn.reply.id
    await runs.stop()
    await store.close()


@pytest.mark.parametrize(
    "params",
    ["[]", "{}", '{"seed": "x"}', '{"seed": 1, "stop": 7}', '{"seed": 1, "context": [1]}'],
)
async def test_a_run_whose_options_cannot_be_read_ends_and_the_others_go_on(
    tmp_path: Path, params: str
) -> None:
    async with bench_at(tmp_path) as bench:
        odd, sound = await bench.send(), await bench.send()
    with closing(sqlite3.connect(tmp_path / "hobnob.db")) as conn, conn:
        conn.execute("UPDATE runs SET params = ? WHERE id = ?", (params, odd.run.id))
    async with bench_at(tmp_path) as bench:
        assert [submit.run for submit in bench.engine.submitted] == [sound.run.id]
        reply = await bench.saved(odd)
        assert (reply.status, (reply.error or "").split(":")[0]) == ("failed", "log_unreadable")


async def test_a_log_that_cannot_be_read_on_a_full_disk_waits_for_the_next_start(
    tmp_path: Path,
) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
        reader = await bench.runs.follow(OWNER, turn.run.id)
        await next_of(reader, wire.BlockStart)
    with closing(sqlite3.connect(tmp_path / "hobnob.db")) as conn:
        conn.execute("DELETE FROM run_events WHERE seq = 1")
        conn.commit()
    store = await FaultyStore.open(tmp_path / "hobnob.db")
    store.fill_disk()
    runs = Runs(store, FakeEngine(), RunSettings(), now_ms=utc_ms)
    await runs.start()
    with pytest.raises(Gone) as caught:
        await runs.follow(OWNER, turn.run.id)
    assert caught.value.message_id == turn.reply.id
    await runs.stop()
    await store.close()
    async with bench_at(tmp_path) as bench:
        assert (await bench.store.message(OWNER, turn.reply.id)).status == "failed"


async def test_two_restarts_in_a_row_lose_nothing(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
    for _ in range(4):
        async with bench_at(tmp_path) as bench:
            reader = await bench.runs.follow(OWNER, turn.run.id)
            before = len(bench.engine.submitted[0].emitted)
            bench.engine.step()
            while reader.entry is None or FIRST_TOKEN + before not in reader.entry.tokens:
                await next_of(reader, wire.BlockDelta)
    async with bench_at(tmp_path) as bench:
        assert text_of(await bench.finish(turn)) == WHOLE


async def test_restoring_gives_ids_and_text_as_logged(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
        rows = [
            LoggedEvent(1, "content_block_start", json.dumps({"index": 0, "new_field": 1})),
            LoggedEvent(2, "content_block_delta", json.dumps({"index": 0, "text": "a"}), [1]),
            LoggedEvent(3, "content_block_delta", json.dumps({"index": 0, "text": "b"}), [2, 3]),
        ]
        live = restore(turn.run, rows, now=0.0)
        assert (live.text, live.tokens, live.log.last_seq) == ("ab", [1, 2, 3], 3)
        assert not live.sealable
