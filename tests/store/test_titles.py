from __future__ import annotations

import pytest
from support_turns import ME, answer, first_turn, new_run, said

from hobnob.store.store import Store
from hobnob.store.values import Beginning, NotFound


async def test_a_title_is_replaced_only_while_it_is_the_one_that_was_read(store: Store) -> None:
    turn = await said(store, "q")
    place, was = turn.conversation.id, turn.conversation.title
    heard: list[int] = []
    store.listen(lambda: heard.append(1))
    assert await store.retitle(ME, place, "found", was=was) is True
    changed = await store.conversation(ME, place)
    assert (changed.title, changed.change > turn.conversation.change) == ("found", True)
    assert heard
    assert await store.retitle(ME, place, "late", was=was + "x") is False
    assert await store.conversation(ME, place) == changed
    with pytest.raises(NotFound):
        await store.retitle("you", place, "theirs", was="found")


async def test_only_the_first_reply_that_completed_has_a_beginning(store: Store) -> None:
    turn = await first_turn(store, "q")
    place = turn.conversation.id
    assert await store.beginning(ME, place, turn.run.id) is None
    await answer(store, turn, "one")
    again = await store.begin_reply(ME, place, parent=turn.message.id, run=new_run())
    await answer(store, again, "two")
    assert await store.beginning(ME, place, turn.run.id) == Beginning(turn.conversation.title, "q")
    assert await store.beginning(ME, place, again.run.id) is None
