from __future__ import annotations

import pytest
from support_turns import ME, SettableClock, answer, first_turn, new_run, said

from hobnob.store import rows
from hobnob.store.store import Store
from hobnob.store.values import NotFound, StoreError


async def test_a_new_conversation_is_empty_and_listed(store: Store, clock: SettableClock) -> None:
    made = await store.create_conversation(ME, title="T", system="S", settings={"top_k": 1})
    assert (made.title, made.system, made.settings, made.head) == ("T", "S", {"top_k": 1}, None)
    assert made.created_at == made.updated_at == clock.now
    assert await store.conversations(ME) == [made]
    assert await store.branch(ME, made.id) == []
    assert await store.messages(ME, made.id) == []


async def test_an_update_changes_what_is_given_and_nothing_else(store: Store) -> None:
    turn = await said(store, "hi")
    before = await store.conversation(ME, turn.conversation.id)
    renamed = await store.update_conversation(ME, before.id, title="new", system="be kind")
    assert (renamed.title, renamed.system, renamed.head) == ("new", "be kind", before.head)
    cleared = await store.update_conversation(ME, before.id, system=None, settings={"seed": 1})
    assert (cleared.title, cleared.system, cleared.settings) == ("new", None, {"seed": 1})
    moved = await store.update_conversation(ME, before.id, head=turn.message.id)
    assert moved.head == turn.message.id
    assert [m.id for m in await store.branch(ME, before.id)] == [turn.message.id]
    assert await store.conversation(ME, before.id) == moved


async def test_the_head_must_be_a_message_of_the_conversation(store: Store) -> None:
    one, other = await said(store, "one"), await said(store, "other")
    with pytest.raises(NotFound):
        await store.update_conversation(ME, one.conversation.id, head=other.message.id)


async def test_every_write_to_a_conversation_moves_it_to_the_front(store: Store) -> None:
    a, b = await said(store, "a"), await said(store, "b")
    seen = [(await store.conversations(ME))[0].change]
    for write in (
        lambda: store.update_conversation(ME, a.conversation.id, title="x"),
        lambda: store.begin_turn(ME, b.conversation.id, parent=None, text="y", run=new_run()),
        lambda: store.begin_reply(ME, a.conversation.id, parent=a.message.id, run=new_run()),
        lambda: first_turn(store, "c"),
    ):
        await write()
        seen.append((await store.conversations(ME))[0].change)
    assert seen == sorted(set(seen))


async def test_the_end_of_a_reply_is_a_change_too(store: Store) -> None:
    a = await first_turn(store, "a")
    b = await first_turn(store, "b")
    await answer(store, a, "late")
    listed = await store.conversations(ME)
    assert [c.id for c in listed] == [a.conversation.id, b.conversation.id]
    assert listed[0].change > listed[1].change


async def test_change_numbers_grow_even_when_the_newest_is_deleted(store: Store) -> None:
    newest = (await said(store, "a")).conversation.id
    last = (await store.conversation(ME, newest)).change
    await store.delete_conversation(ME, newest)
    assert (await store.create_conversation(ME)).change > last


async def test_pages_of_the_list_join_without_gap_or_repeat(store: Store) -> None:
    made = [(await store.create_conversation(ME, title=str(i))).id for i in range(7)]
    seen: list[str] = []
    before = None
    while page := await store.conversations(ME, limit=3, before=before):
        seen += [c.id for c in page]
        before = page[-1].change
    assert seen == made[::-1]


async def test_pinned_ones_and_the_others_are_lists_of_their_own(store: Store) -> None:
    ids = [(await store.create_conversation(ME, title=f"t{i}")).id for i in range(5)]
    theirs = await store.create_conversation("other")
    await store.update_conversation("other", theirs.id, pinned=True)
    for number in (1, 3):
        changed = await store.update_conversation(ME, ids[number], pinned=True)
        assert changed.pinned and changed.title == f"t{number}"
    pinned = await store.conversations(ME, pinned=True)
    assert [one.id for one in pinned] == [ids[3], ids[1]]
    assert await store.conversations(ME, pinned=True, limit=1) == pinned[:1]
    assert await store.conversations(ME, pinned=True, before=pinned[0].change) == pinned[1:]
    assert await store.conversations(ME, pinned=True, query="t1") == pinned[1:]
    others = await store.conversations(ME, pinned=False)
    assert [one.id for one in others] == [ids[4], ids[2], ids[0]]
    assert [one.id for one in await store.conversations(ME)][:2] == [ids[3], ids[1]]
    unpinned = await store.update_conversation(ME, ids[1], pinned=False)
    assert not unpinned.pinned and unpinned.change > pinned[0].change
    assert [one.id for one in await store.conversations(ME, pinned=True)] == [ids[3]]


async def test_a_pin_stays_when_something_else_is_written(store: Store) -> None:
    turn = await said(store, "hi")
    id = turn.conversation.id
    await store.update_conversation(ME, id, pinned=True)
    await store.update_conversation(ME, id, title="renamed")
    again = await store.begin_reply(ME, id, parent=turn.message.id, run=new_run())
    await answer(store, again, "again")
    assert (await store.conversation(ME, id)).pinned
    await store.delete_conversation(ME, id)
    assert await store.conversations(ME, pinned=True) == []


async def test_the_list_can_be_narrowed_by_title_or_message(store: Store) -> None:
    titled = await store.create_conversation(ME, title="Gärten 100%")
    talked = await said(store, "about elephants", "and 象が好き")
    assert [c.id for c in await store.conversations(ME, query="100%")] == [titled.id]
    for query in ("elephants", "eleph", "lephant", "象", '"about elephants"', "象 好き"):
        found = await store.conversations(ME, query=query)
        assert [c.id for c in found] == [talked.conversation.id], query
    assert await store.conversations(ME, query="giraffe") == []
    assert await store.conversations("other", query="elephants") == []
    assert len(await store.conversations(ME, query="  ")) == 2


async def test_a_beginning_of_the_id_is_enough_when_only_one_begins_so(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = iter(["abcd11", "abcd22", "abcd"])
    monkeypatch.setattr(rows, "new_id", lambda: next(ids))
    first, second = [await store.create_conversation(ME) for _ in range(2)]
    assert await store.conversation(ME, "abcd1") == first
    for prefix in ("abcd", "abcd3", "abc", "", "%", "____"):
        with pytest.raises(NotFound):
            await store.conversation(ME, prefix)
    exact = await store.create_conversation(ME)
    assert await store.conversation(ME, "abcd") == exact
    assert await store.conversation(ME, "abcd2") == second


async def test_a_nul_in_a_title_hides_nothing_after_it(store: Store) -> None:
    made = await store.create_conversation(ME, title="abc\0def")
    assert made.title == "abc def"
    assert await store.conversations(ME, query="def") == [made]


async def test_half_a_surrogate_pair_is_refused_and_nothing_breaks(store: Store) -> None:
    turn = await said(store, "fine")
    for attempt in (
        lambda: store.create_conversation(ME, title="\ud83d"),
        lambda: store.update_conversation(ME, turn.conversation.id, settings={"stop": "\ud83d"}),
        lambda: first_turn(store, "half \ud83d emoji"),
        lambda: first_turn(store, params={"stop": ["\ud83d"]}),
        lambda: store.search(ME, "\ud83d"),
    ):
        with pytest.raises(StoreError):
            await attempt()
    assert len(await store.conversations(ME)) == 1
    assert (await store.message(ME, turn.message.id)).text == "fine"
