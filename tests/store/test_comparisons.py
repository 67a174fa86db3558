from __future__ import annotations

import pytest
from support_turns import ME, answer, first_turn, new_run, said

from hobnob.store.comparisons import SHOWN_CHARS
from hobnob.store.store import Store
from hobnob.store.values import BadParent, NotFound, Turn


async def another(store: Store, turn: Turn, text: str = "", **fields: object) -> Turn:
    """One more reply to the turn's message; still running without a text."""
    place, parent = turn.conversation.id, turn.message.id
    made = await store.begin_reply(ME, place, parent=parent, run=new_run(**fields))
    if text:
        await answer(store, made, text)
    return made


async def test_all_replies_to_a_message_come_with_their_runs(store: Store) -> None:
    turn = await said(store, "q", "one")
    two = await another(store, turn, "two", params={"temperature": 0.5})
    live = await another(store, turn)
    found = await store.replies(ME, turn.conversation.id, turn.message.id)
    assert found.conversation.id == turn.conversation.id
    assert found.message.text == "q"
    assert [reply.text for reply, _ in found.replies] == ["one", "two", ""]
    runs = [run for _, run in found.replies if run is not None]
    assert [run.id for run in runs] == [turn.run.id, two.run.id, live.run.id]
    assert runs[1].params == {"temperature": 0.5}


async def test_only_a_message_of_ones_own_has_replies(store: Store) -> None:
    turn = await said(store, "q")
    elsewhere = await said(store, "other")
    with pytest.raises(BadParent):
        await store.replies(ME, turn.conversation.id, turn.reply.id)
    for owner, message in ((ME, elsewhere.message.id), (ME, "nope"), ("you", turn.message.id)):
        with pytest.raises(NotFound):
            await store.replies(owner, turn.conversation.id, message)


async def test_messages_with_several_replies_are_listed_the_newest_reply_first(
    store: Store,
) -> None:
    old = await said(store, "old")
    long = await said(store, "x" * (SHOWN_CHARS + 1))
    await said(store, "alone")
    theirs = await first_turn(store, "theirs", owner="you")
    await store.begin_reply("you", theirs.conversation.id, parent=theirs.message.id, run=new_run())
    await another(store, long, "second")
    await another(store, old, "second")
    await another(store, old)
    listed = await store.comparisons(ME)
    assert [(one.message, one.replies) for one in listed] == [
        (old.message.id, 3),
        (long.message.id, 2),
    ]
    assert listed[0].text == "old"
    assert listed[1].text == "x" * SHOWN_CHARS
    assert [one.message for one in await store.comparisons(ME, limit=1)] == [old.message.id]


async def test_versions_of_a_users_message_are_no_comparison(store: Store) -> None:
    turn = await said(store, "q")
    place = turn.conversation.id
    for text in ("left", "right"):
        await store.begin_turn(ME, place, parent=turn.reply.id, text=text, run=new_run())
    assert await store.comparisons(ME) == []


async def test_a_comparison_goes_with_its_conversation(store: Store) -> None:
    turn = await said(store, "q")
    await another(store, turn, "second")
    await store.delete_conversation(ME, turn.conversation.id)
    assert await store.comparisons(ME) == []
