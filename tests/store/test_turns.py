from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support_turns import (
    ME,
    SettableClock,
    answer,
    delta,
    end,
    first_turn,
    new_run,
    start,
    stop,
    versions,
)

from hobnob.server import wire
from hobnob.store import runs, turns
from hobnob.store.store import Store
from hobnob.store.values import (
    ENDED,
    LIVE,
    Append,
    BadParent,
    KeyReused,
    LoggedEvent,
    NotFound,
    StoreError,
)


async def test_a_first_turn_creates_conversation_message_reply_and_run_together(
    store: Store,
) -> None:
    turn = await store.begin_turn(
        ME,
        None,
        parent=None,
        text="hi",
        run=new_run(),
        title="Hi",
        system="be brief",
        settings={"temperature": 0},
    )
    assert turn.created
    assert (turn.conversation.title, turn.conversation.system) == ("Hi", "be brief")
    assert turn.conversation.settings == {"temperature": 0}
    assert turn.conversation.head == turn.reply.id
    assert (turn.message.text, turn.message.status) == ("hi", "completed")
    assert (turn.reply.text, turn.reply.status, turn.reply.run) == ("", "running", turn.run.id)
    assert turn.reply.parent == turn.message.id
    assert (turn.run.status, turn.run.attempts, turn.run.message) == ("queued", 0, turn.reply.id)
    assert await store.conversation(ME, turn.conversation.id) == turn.conversation


async def test_a_run_comes_back_as_it_was_given_its_64_bit_seed_too(store: Store) -> None:
    turn = await first_turn(store, interactive=False)
    run = await store.run(ME, turn.run.id)
    assert run == turn.run
    assert run.params["seed"] == 2**64 - 1
    assert run.prompt == [1, 2, 300, 70_000]
    assert run.interactive is False


async def test_a_second_turn_follows_the_first_reply(store: Store) -> None:
    first = await first_turn(store)
    await answer(store, first, "yes")
    second = await store.begin_turn(
        ME, first.conversation.id, parent=first.reply.id, text="more", run=new_run()
    )
    branch = await store.branch(ME, first.conversation.id)
    assert [m.id for m in branch] == [
        first.message.id,
        first.reply.id,
        second.message.id,
        second.reply.id,
    ]


async def test_the_title_of_a_turn_is_kept_only_where_there_is_none(store: Store) -> None:
    first = await first_turn(store)
    await answer(store, first, "yes")
    for title in ("one", "two"):
        await store.begin_turn(
            ME, first.conversation.id, parent=None, text="x", run=new_run(), title=title
        )
    assert (await store.conversation(ME, first.conversation.id)).title == "one"


async def test_a_turn_without_parent_makes_another_root(store: Store) -> None:
    first = await first_turn(store, "draft")
    edited = await store.begin_turn(
        ME, first.conversation.id, parent=None, text="final", run=new_run()
    )
    assert await versions(store, edited.message) == [first.message.id, edited.message.id]
    assert [m.text for m in await store.branch(ME, first.conversation.id)] == ["final", ""]


async def test_a_regenerated_reply_is_a_sibling_and_becomes_the_head(store: Store) -> None:
    first = await first_turn(store)
    await answer(store, first, "yes")
    again = await store.begin_reply(
        ME, first.conversation.id, parent=first.message.id, run=new_run()
    )
    assert again.message == first.message
    assert await versions(store, again.reply) == [first.reply.id, again.reply.id]
    assert again.conversation.head == again.reply.id


@pytest.mark.parametrize("regenerate", [False, True])
async def test_a_parent_of_the_wrong_role_is_refused_and_nothing_is_written(
    store: Store, regenerate: bool
) -> None:
    first = await first_turn(store)
    with pytest.raises(BadParent):
        if regenerate:
            await store.begin_reply(ME, first.conversation.id, parent=first.reply.id, run=new_run())
        else:
            await store.begin_turn(
                ME, first.conversation.id, parent=first.message.id, text="x", run=new_run()
            )
    assert len(await store.messages(ME, first.conversation.id)) == 2


async def test_a_parent_in_another_conversation_is_not_found(store: Store) -> None:
    one, other = await first_turn(store), await first_turn(store)
    with pytest.raises(NotFound):
        await store.begin_turn(
            ME, one.conversation.id, parent=other.reply.id, text="x", run=new_run()
        )
    with pytest.raises(NotFound):
        await store.begin_turn(ME, None, parent=other.reply.id, text="x", run=new_run())


async def test_the_same_key_and_request_give_the_earlier_turn(store: Store) -> None:
    first = await first_turn(store, idempotency_key="k", request_hash="h")
    again = await first_turn(store, idempotency_key="k", request_hash="h")
    assert not again.created
    assert again.run == first.run
    assert again.message == first.message
    assert len(await store.conversations(ME)) == 1
    assert await store.find_turn(ME, "k") == (again, "h")


async def test_the_same_key_with_another_request_is_refused(store: Store) -> None:
    await first_turn(store, idempotency_key="k", request_hash="h")
    with pytest.raises(KeyReused):
        await first_turn(store, idempotency_key="k", request_hash="other")
    assert len(await store.conversations(ME)) == 1


async def test_a_key_sent_many_times_at_once_makes_one_turn(store: Store) -> None:
    turns = await asyncio.gather(
        *(first_turn(store, idempotency_key="k", request_hash="h") for _ in range(20))
    )
    assert [t.created for t in turns].count(True) == 1
    assert len({t.run.id for t in turns}) == 1


async def test_keys_of_two_owners_are_apart(store: Store) -> None:
    mine = await first_turn(store, idempotency_key="k", request_hash="h")
    theirs = await first_turn(store, owner="other", idempotency_key="k", request_hash="x")
    assert mine.run.id != theirs.run.id
    assert await store.find_turn("third", "k") is None


async def test_a_turn_that_fails_half_way_leaves_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> int:
        raise sqlite3.OperationalError("some fault")

    with monkeypatch.context() as patch:
        patch.setattr(runs, "insert", fail)
        with pytest.raises(StoreError):
            await first_turn(store, "lost")
    assert await store.conversations(ME) == []
    assert await store.search(ME, "lost") == []
    assert (await first_turn(store, "kept")).created


async def test_what_belongs_to_another_owner_is_not_found(store: Store) -> None:
    turn = await first_turn(store, idempotency_key="k", request_hash="h")
    place = turn.conversation.id
    for attempt in (
        lambda: store.conversation("other", place),
        lambda: store.conversation("other", place[:6]),
        lambda: store.update_conversation("other", place, title="x"),
        lambda: store.delete_conversation("other", place),
        lambda: store.begin_turn("other", place, parent=None, text="x", run=new_run()),
        lambda: store.begin_reply("other", place, parent=turn.message.id, run=new_run()),
        lambda: store.run("other", turn.run.id),
        lambda: store.events("other", turn.run.id),
        lambda: store.whole_log("other", turn.run.id),
        lambda: store.branch("other", place),
        lambda: store.messages("other", place),
        lambda: store.message("other", turn.message.id),
    ):
        with pytest.raises(NotFound):
            await attempt()
    assert await store.conversations("other") == []
    assert await store.search("other", "hello") == []
    assert (await store.conversation(ME, place)) == turn.conversation


async def test_a_running_reply_shows_what_is_logged(store: Store) -> None:
    turn = await first_turn(store)
    await store.append([Append(turn.run.id, [start(1), delta(2, "Hé", [5])])])
    await store.append([Append(turn.run.id, [delta(3, "llo \0x", [6])])])
    reply = await store.message(ME, turn.reply.id)
    assert (reply.text, reply.status) == ("Héllo \0x", "running")
    assert reply.blocks == [{"type": "text", "text": "Héllo \0x"}]
    assert (await store.branch(ME, turn.conversation.id))[-1] == reply


async def test_reasoning_is_a_block_of_a_running_reply_but_not_its_text(store: Store) -> None:
    turn = await first_turn(store)
    events = [
        start(1, "reasoning", 0),
        delta(2, "hmm", index=0),
        start(3, "text", 1),
        delta(4, "yes", index=1),
    ]
    await store.append([Append(turn.run.id, events)])
    reply = await store.message(ME, turn.reply.id)
    assert reply.text == "yes"
    assert [block["type"] for block in reply.blocks] == ["reasoning", "text"]


async def test_the_end_of_a_run_is_written_to_run_and_reply(store: Store) -> None:
    turn = await first_turn(store)
    usage = {"prompt_tokens": 4, "completion_tokens": 2}
    final = end("yes", [7, 128], usage=usage, timings={"queued_s": 0.5}, error="why")
    await store.append([Append(turn.run.id, [delta(1, "yes", [7, 128]), stop(2)], final)])
    reply, run = await store.message(ME, turn.reply.id), await store.run(ME, turn.run.id)
    assert (reply.text, reply.tokens, reply.vocab_hash) == ("yes", [7, 128], "v1")
    assert (reply.status, reply.stop_reason, reply.error) == ("completed", "end_turn", "why")
    assert (reply.usage, reply.timings) == (usage, {"queued_s": 0.5})
    assert (run.status, run.stop_reason, run.error) == ("completed", "end_turn", "why")
    assert run.ended_at is not None
    assert await store.in_flight() == []


async def test_one_append_carries_the_news_of_many_runs(store: Store) -> None:
    turns = [await first_turn(store, f"q{i}") for i in range(8)]
    await store.append([Append(t.run.id, [delta(1, f"a{i}", [i])]) for i, t in enumerate(turns)])
    texts = [(await store.message(ME, t.reply.id)).text for t in turns]
    assert texts == [f"a{i}" for i in range(8)]


async def test_events_come_back_in_order_after_any_number(store: Store) -> None:
    turn = await first_turn(store)
    events = [delta(seq, f"{seq} ", [seq]) for seq in range(1, 13)]
    await store.append([Append(turn.run.id, events[:5])])
    await store.append([Append(turn.run.id, events[5:])])
    assert await store.events(ME, turn.run.id) == events
    assert await store.events(ME, turn.run.id, after=10) == events[10:]
    assert await store.events(ME, turn.run.id, after=2**64) == []


async def test_appending_the_same_again_changes_nothing(store: Store) -> None:
    turn = await first_turn(store)
    batch = [Append(turn.run.id, [delta(1, "yes", [7]), stop(2)], end("yes", [7]))]
    await store.append(batch)
    before = await store.message(ME, turn.reply.id), await store.run(ME, turn.run.id)
    change = (await store.conversation(ME, turn.conversation.id)).change
    await store.append(batch)
    assert (await store.message(ME, turn.reply.id), await store.run(ME, turn.run.id)) == before
    assert len(await store.events(ME, turn.run.id)) == 2
    assert (await store.conversation(ME, turn.conversation.id)).change == change


async def test_a_half_repeated_append_adds_the_missing_half(store: Store) -> None:
    turn = await first_turn(store)
    await store.append([Append(turn.run.id, [delta(1, "a")])])
    await store.append([Append(turn.run.id, [delta(1, "a"), delta(2, "b")])])
    assert (await store.message(ME, turn.reply.id)).text == "ab"


async def test_another_event_under_a_used_number_is_refused_and_nothing_kept(
    store: Store,
) -> None:
    one, other = await first_turn(store), await first_turn(store)
    await store.append([Append(one.run.id, [delta(1, "a")])])
    with pytest.raises(StoreError):
        await store.append(
            [Append(other.run.id, [delta(1, "x")]), Append(one.run.id, [delta(1, "b")])]
        )
    assert (await store.message(ME, one.reply.id)).text == "a"
    assert await store.events(ME, other.run.id) == []


async def test_a_run_ends_once_and_takes_nothing_afterwards(store: Store) -> None:
    turn = await first_turn(store)
    await store.append([Append(turn.run.id, [stop(1)], end("yes"))])
    await store.append([Append(turn.run.id, [], end("no", status="failed"))])
    assert (await store.message(ME, turn.reply.id)).text == "yes"
    assert (await store.run(ME, turn.run.id)).status == "completed"
    with pytest.raises(StoreError):
        await store.append([Append(turn.run.id, [delta(2, "late")])])


async def test_a_deleted_run_does_not_stop_its_neighbours(store: Store) -> None:
    gone, stays = await first_turn(store), await first_turn(store)
    await store.delete_conversation(ME, gone.conversation.id)
    await store.append(
        [
            Append(gone.run.id, [delta(1, "x")], end("x")),
            Append(stays.run.id, [delta(1, "y")], end("y")),
        ]
    )
    assert (await store.message(ME, stays.reply.id)).text == "y"


async def test_runs_in_flight_are_listed_oldest_first_with_their_attempts(store: Store) -> None:
    turns = [await first_turn(store, owner=owner) for owner in (ME, "other", ME)]
    await answer(store, turns[1], "done")
    await store.set_attempt([turn.run.id for turn in turns])
    await store.set_attempt([turns[2].run.id])
    found = await store.in_flight()
    assert [(r.id, r.status, r.attempts) for r in found] == [
        (turns[0].run.id, "running", 1),
        (turns[2].run.id, "running", 2),
    ]
    assert (await store.run("other", turns[1].run.id)).status == "completed"


async def test_runs_in_flight_are_still_there_after_reopening(path: Path) -> None:
    store = await Store.open(path)
    turn = await first_turn(store)
    await store.append([Append(turn.run.id, [start(1), delta(2, "half", [3])])])
    await store.close()
    store = await Store.open(path)
    assert [run.id for run in await store.in_flight()] == [turn.run.id]
    assert (await store.message(ME, turn.reply.id)).text == "half"
    assert (await store.events(ME, turn.run.id))[1] == delta(2, "half", [3])
    await store.close()


async def test_old_logs_are_pruned_and_the_replies_stay(store: Store, clock: SettableClock) -> None:
    old, live = await first_turn(store), await first_turn(store)
    await store.append([Append(live.run.id, [delta(1, "on")])])
    await answer(store, old, "kept")
    clock.now += 1_000
    young = await first_turn(store)
    await answer(store, young, "young")
    clock.now += 500
    assert await store.prune(older_than_ms=1_000) == 1
    assert await store.prune(older_than_ms=1_000) == 0
    assert await store.events(ME, old.run.id) == []
    assert await store.whole_log(ME, old.run.id) is None
    assert (await store.message(ME, old.reply.id)).text == "kept"
    for turn in (young, live):
        assert await store.whole_log(ME, turn.run.id) == await store.events(ME, turn.run.id) != []


async def test_pruning_takes_any_number_of_runs(store: Store, clock: SettableClock) -> None:
    for _ in range(120):
        await answer(store, await first_turn(store), "x")
    clock.now += 10
    assert await store.prune(older_than_ms=1) == 120


async def test_an_unknown_event_type_is_kept_as_it_is(store: Store) -> None:
    turn = await first_turn(store)
    odd = LoggedEvent(1, "from_the_future", '{"a":[1]}', [])
    await store.append([Append(turn.run.id, [odd])])
    assert await store.events(ME, turn.run.id) == [odd]


async def test_with_full_durability_a_message_and_the_end_of_a_reply_wait_for_the_disk(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int]] = []

    def watch(name: str) -> None:
        original = getattr(turns, name)

        def watched(conn: sqlite3.Connection, *rest: Any, **named: Any) -> Any:
            seen.append((name, conn.execute("PRAGMA synchronous").fetchone()[0]))
            return original(conn, *rest, **named)

        monkeypatch.setattr(turns, name, watched)

    for name in ("begin_turn", "begin_reply", "append"):
        watch(name)
    store = await Store.open(path, full=True)
    turn = await first_turn(store)
    await store.append([Append(turn.run.id, [delta(1, "x", [1])])])
    await answer(store, await first_turn(store), "yes")
    await store.begin_reply(ME, turn.conversation.id, parent=turn.message.id, run=new_run())
    await store.close()
    assert seen == [
        ("begin_turn", 2),
        ("append", 1),
        ("begin_turn", 2),
        ("append", 2),
        ("begin_reply", 2),
    ]


async def test_the_prompt_of_a_run_goes_with_its_end(store: Store) -> None:
    turn, going = await first_turn(store), await first_turn(store)
    assert (await store.run(ME, turn.run.id)).prompt == [1, 2, 300, 70_000]
    await answer(store, turn, "yes")
    assert (await store.run(ME, turn.run.id)).prompt == []
    assert (await store.run(ME, going.run.id)).prompt == [1, 2, 300, 70_000]


async def test_an_append_tells_which_runs_it_passed_over(store: Store) -> None:
    gone, there = await first_turn(store), await first_turn(store)
    await store.delete_conversation(ME, gone.conversation.id)
    batch = [Append(turn.run.id, [delta(1, "x", [1])]) for turn in (gone, there)]
    assert await store.append(batch) == [gone.run.id]
    assert len(await store.events(ME, there.run.id)) == 1


async def test_when_runs_were_last_worked_on_is_known_whoever_looked_since(
    path: Path, clock: SettableClock
) -> None:
    store = await Store.open(path, clock=clock)
    turn = await first_turn(store)
    await store.append([Append(turn.run.id, [delta(1, "a")])])
    worked_at = clock.now
    await store.close()
    with closing(sqlite3.connect(path)) as other:  # which moves the log into the file
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    os.utime(path)
    clock.now += 3 * 86_400_000
    later = await Store.open(path, clock=clock)
    assert later.last_written_ms == worked_at
    await later.close()


async def test_the_time_of_the_last_work_is_noted_once_a_second_and_by_a_clock_that_went_back(
    store: Store, clock: SettableClock
) -> None:
    turn = await first_turn(store)
    began = clock.now
    noted = []
    for seq, now in enumerate((0, 400, 999, 1500, 2400, -60_000), 1):
        clock.now = began + now
        await store.append([Append(turn.run.id, [delta(seq, "a")])])
        noted.append((await store._db.read(turns.alive_at) or 0) - began)
    assert noted == [0, 0, 0, 1500, 1500, -60_000]


def test_the_states_that_end_a_reply_are_those_of_the_wire() -> None:
    assert set(ENDED) == wire.Status.TERMINAL and not set(ENDED) & set(LIVE)
