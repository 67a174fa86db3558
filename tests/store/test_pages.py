"""Branches page by page: the last messages first, none left out and none twice."""

from __future__ import annotations

from typing import Any

import pytest
from support_turns import ME, answer, first_turn, new_run, said

from hobnob.store.store import Store
from hobnob.store.values import NotFound, Page, Turn


async def follow_up(store: Store, before: Turn, text: str) -> Turn:
    turn = await store.begin_turn(
        ME, before.conversation.id, parent=before.reply.id, text=text, run=new_run()
    )
    await answer(store, turn, f"to {text}")
    return turn


async def long_talk(store: Store, count: int) -> list[Turn]:
    turns = [await said(store, "0")]
    for number in range(1, count):
        turns.append(await follow_up(store, turns[-1], str(number)))
    return turns


def texts(page: Page) -> list[str]:
    return [one.text for one in page.messages]


async def test_the_last_messages_come_first_and_the_others_are_counted(store: Store) -> None:
    place = (await long_talk(store, 5))[0].conversation.id
    page = await store.page(ME, place, limit=3)
    assert (texts(page), page.earlier) == (["to 3", "4", "to 4"], 7)
    whole = await store.page(ME, place)
    assert (len(whole.messages), whole.earlier) == (10, 0)
    assert whole.messages == await store.branch(ME, place, tokens=False)
    assert page.conversation == whole.conversation == await store.conversation(ME, place)
    assert (await store.page(ME, place[:8], limit=3)) == page


@pytest.mark.parametrize("size", [1, 3, 10, 500])
async def test_pages_join_to_the_whole_branch(store: Store, size: int) -> None:
    place = (await long_talk(store, 5))[0].conversation.id
    found: list[Any] = []
    page = await store.page(ME, place, limit=size)
    while page.messages:
        found[:0] = page.messages
        assert page.earlier == 10 - len(found)
        page = await store.page(ME, place, before=found[0].id, limit=size)
    assert found == await store.branch(ME, place, tokens=False)


async def test_a_page_before_a_message_is_of_its_own_branch_whatever_is_shown(
    store: Store,
) -> None:
    first = await said(store, "a")
    old = await follow_up(store, first, "b")
    new = await follow_up(store, first, "c")
    place = first.conversation.id
    assert texts(await store.page(ME, place)) == ["a", "yes", "c", "to c"]
    assert texts(await store.page(ME, place, before=old.reply.id, limit=2)) == ["yes", "b"]
    for turn in (old, new):
        page = await store.page(ME, place, leaf=turn.reply.id, limit=2)
        assert page.siblings == {turn.message.id: [old.message.id, new.message.id]}
        assert page.earlier == 2
    assert (await store.page(ME, place, before=first.message.id)).messages == []


async def test_a_branch_goes_on_to_the_head_where_that_is_below_and_else_to_the_newest(
    store: Store,
) -> None:
    first = await said(store, "a")
    old = await follow_up(store, first, "b")
    new = await follow_up(store, first, "c")
    place = first.conversation.id

    async def end_of(leaf: str) -> str:
        return (await store.page(ME, place, leaf=leaf, newest=True)).messages[-1].id

    assert await end_of(first.message.id) == new.reply.id
    assert await end_of(old.message.id) == old.reply.id
    await store.update_conversation(ME, place, head=old.reply.id)
    assert await end_of(first.message.id) == old.reply.id
    assert await end_of(new.message.id) == new.reply.id
    assert await end_of(old.reply.id) == old.reply.id


async def test_an_empty_conversation_has_an_empty_page(store: Store) -> None:
    made = await store.create_conversation(ME)
    page = await store.page(ME, made.id, limit=5)
    assert (page.messages, page.earlier, page.siblings) == ([], 0, {})


async def test_a_reply_that_runs_is_shown_as_far_as_it_is_logged(store: Store) -> None:
    turn = await first_turn(store)
    (_, reply) = (await store.page(ME, turn.conversation.id)).messages
    assert (reply.status, reply.run, reply.text) == ("running", turn.run.id, "")


async def test_messages_of_other_conversations_and_owners_are_not_found(store: Store) -> None:
    mine, other = await said(store, "mine"), await said(store, "other")
    theirs = await said(store, "theirs", owner="them")
    place = mine.conversation.id
    for fields in ({"leaf": other.reply.id}, {"before": other.reply.id}, {"leaf": "nope"}):
        with pytest.raises(NotFound):
            await store.page(ME, place, **fields)
    with pytest.raises(NotFound):
        await store.page(ME, theirs.conversation.id)


async def test_a_branch_of_thousands_is_read_whole_and_in_order(store: Store) -> None:
    place = (await long_talk(store, 2))[0].conversation.id

    def extend(c: Any) -> None:
        (conversation, n) = c.execute("SELECT n, head FROM conversations").fetchone()
        for number in range(2_000):
            (n,) = c.execute(
                "INSERT INTO messages (id, conversation, parent, role, status, created_at, text,"
                " blocks) VALUES (?, ?, ?, 'user', 'completed', 0, ?, '[]') RETURNING n",
                (f"x{number}", conversation, n, str(number)),
            ).fetchone()
        c.execute("UPDATE conversations SET head = ?", (n,))

    await store._db.write(extend)
    whole = await store.page(ME, place)
    assert [one.id for one in whole.messages][4:] == [f"x{number}" for number in range(2_000)]
    page = await store.page(ME, place, limit=20)
    assert (page.messages[0].id, page.earlier) == ("x1980", 1984)
