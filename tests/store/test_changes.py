"""What a second device learns from the store: every write once, in order, deletions too."""

from __future__ import annotations

import asyncio

import pytest
from support_turns import ME, answer, first_turn, new_run, said

from hobnob.store import changes
from hobnob.store.store import Store
from hobnob.store.values import Conversation, Deletion


async def test_every_write_to_a_conversation_or_a_message_is_a_change(store: Store) -> None:
    made = await store.create_conversation(ME)
    place = made.id
    turns = []

    async def begin() -> None:
        turn = await store.begin_turn(ME, place, parent=None, text="hi", run=new_run())
        turns.append(turn)

    async def again() -> None:
        turns.append(await store.begin_reply(ME, place, parent=turns[0].message.id, run=new_run()))

    for write in (
        lambda: store.update_conversation(ME, place, title="t"),
        lambda: store.update_conversation(ME, place, settings={"seed": 1}),
        begin,
        lambda: answer(store, turns[0], "yes"),
        again,
        lambda: answer(store, turns[1], "or no"),
        lambda: store.update_conversation(ME, place, head=turns[0].reply.id),
    ):
        before = await store.last_change()
        await write()
        assert await store.changes(ME, before) == [await store.conversation(ME, place)]
    before = await store.last_change()
    await store.delete_conversation(ME, place)
    assert await store.changes(ME, before) == [Deletion(place, await store.last_change())]


async def test_what_was_overtaken_is_not_told_and_the_order_is_that_of_writing(
    store: Store,
) -> None:
    a, b, c = [(await store.create_conversation(ME, title=t)).id for t in "abc"]
    await store.update_conversation(ME, a, title="a again")
    await store.delete_conversation(ME, b)
    found = await store.changes(ME, 0) or []
    assert [one.id if isinstance(one, Conversation) else one.conversation for one in found] == [
        c,
        a,
        b,
    ]
    assert [one.change for one in found] == sorted(one.change for one in found)


async def test_pages_of_changes_join_without_gap_or_repeat(store: Store) -> None:
    made = [(await store.create_conversation(ME)).id for _ in range(9)]
    for id in made[1::2]:
        await store.delete_conversation(ME, id)
    seen, after = [], 0
    while page := await store.changes(ME, after, limit=2):
        assert len(page) <= 2
        seen += page
        after = page[-1].change
    assert seen == await store.changes(ME, 0)
    assert len(seen) == 9


async def test_changes_and_deletions_of_others_are_not_told(store: Store) -> None:
    theirs = await said(store, "secret", owner="other")
    await store.delete_conversation("other", theirs.conversation.id)
    await said(store, "secret again", owner="other")
    assert await store.changes(ME, 0) == []
    assert len(await store.changes("other", 0) or []) == 2


async def test_a_number_of_another_database_is_not_taken_for_ours(store: Store) -> None:
    await store.create_conversation(ME)
    assert await store.changes(ME, await store.last_change()) == []
    assert await store.changes(ME, await store.last_change() + 1) is None


async def test_the_oldest_deletions_are_dropped_and_who_missed_them_is_told(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "DELETIONS_KEPT", 2)
    kept = await store.create_conversation(ME)
    numbers = [await store.last_change()]
    for _ in range(4):
        gone = await store.create_conversation(ME)
        await store.delete_conversation(ME, gone.id)
        numbers.append(await store.last_change())
    assert await store.changes(ME, numbers[0]) is None
    assert await store.changes(ME, numbers[1]) is None
    found = await store.changes(ME, numbers[2]) or []
    assert [type(one) for one in found] == [Deletion, Deletion]
    assert await store.changes(ME, 0) == [kept, *found]


async def test_listeners_hear_of_changes_and_not_of_the_steps_of_a_reply(store: Store) -> None:
    heard = []
    store.listen(lambda: heard.append(1))
    turn = await first_turn(store)
    await answer(store, turn, "yes")
    assert len(heard) == 2
    await store.append([])
    await store.set_attempt([turn.run.id])
    assert len(heard) == 2


async def test_listeners_hear_of_a_change_whose_caller_has_gone(store: Store) -> None:
    heard = asyncio.Event()
    store.listen(heard.set)
    writing = asyncio.create_task(store.create_conversation(ME))
    await asyncio.sleep(0)
    writing.cancel()
    async with asyncio.timeout(10):
        await heard.wait()
    assert len(await store.conversations(ME)) == 1
