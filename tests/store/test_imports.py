"""A whole conversation from a file: all of it, as it was, or nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support_turns import ME, said

from hobnob.store.store import Store
from hobnob.store.values import BadParent, Conversation, IdTaken, Message

ID = "0123456789abcdef0123"


def id_of(number: int) -> str:
    return f"{number:020x}"


def conversation(**fields: Any) -> Conversation:
    values: dict[str, Any] = {
        "id": ID,
        "owner": ME,
        "title": "Tea",
        "system": "Be brief.",
        "head": id_of(2),
        "settings": {"top_k": 1},
        "pinned": True,
        "temporary": False,
        "created_at": 1_000,
        "updated_at": 2_000,
        "change": 0,
    }
    return Conversation(**(values | fields))


def message(number: int, parent: int | None, text: str = "tea", **fields: Any) -> Message:
    role = "user" if parent is None or parent % 2 == 0 else "assistant"
    values: dict[str, Any] = {
        "id": id_of(number),
        "conversation": ID,
        "parent": None if parent is None else id_of(parent),
        "role": role,
        "text": text,
        "blocks": [{"type": "reasoning", "text": "hm"}, {"type": "text", "text": text}],
        "status": "completed",
        "created_at": 1_500,
    }
    return Message(**(values | fields))


MESSAGES = [message(1, None), message(2, 1, model="tiny", usage={"n": 2**70}), message(4, 1)]


async def test_a_conversation_is_there_as_it_was(store: Store) -> None:
    assert await store.import_conversation(ME, conversation(), MESSAGES) is True
    (there,) = await store.conversations(ME)
    assert replace(there, change=0) == conversation() and there.change > 0
    assert await store.messages(ME, ID) == MESSAGES
    assert [one.id for one in await store.branch(ME, ID)] == [id_of(1), id_of(2)]
    assert len(await store.search(ME, "tea")) == 3


async def test_whoever_follows_the_changes_learns_of_it(store: Store) -> None:
    before = await store.last_change()
    heard = []
    store.listen(lambda: heard.append(1))
    await store.import_conversation(ME, conversation(), MESSAGES)
    changes = await store.changes(ME, before)
    assert changes is not None and [one.id for one in changes if isinstance(one, Conversation)] == [
        ID
    ]
    assert heard


async def test_the_same_is_not_imported_twice_and_never_overwritten(store: Store) -> None:
    await store.import_conversation(ME, conversation(), MESSAGES)
    before = await store.conversation(ME, ID)
    again = [message(8, None, "other")]
    assert (
        await store.import_conversation(ME, conversation(title="x", head=id_of(8)), again) is False
    )
    assert await store.conversation(ME, ID) == before
    assert await store.messages(ME, ID) == MESSAGES


async def test_one_that_was_deleted_can_be_imported_again(store: Store) -> None:
    await store.import_conversation(ME, conversation(), MESSAGES)
    start = await store.last_change()
    await store.delete_conversation(ME, ID)
    assert await store.import_conversation(ME, conversation(), MESSAGES) is True
    changes = await store.changes(ME, start)
    assert changes is not None and isinstance(changes[-1], Conversation)


@pytest.mark.parametrize(
    ("fields", "messages", "error"),
    [
        ({}, [message(1, None), message(2, 3)], BadParent),
        ({}, [message(1, None), message(2, 1), message(5, 2, role="assistant")], BadParent),
        ({"head": id_of(9)}, [message(1, None)], BadParent),
        ({}, [message(2, None), message(2, None)], IdTaken),
    ],
)
async def test_what_cannot_be_imported_leaves_nothing(
    store: Store, fields: dict[str, Any], messages: list[Message], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await store.import_conversation(ME, conversation(**fields), messages)
    assert await store.conversations(ME) == []
    assert await store.search(ME, "tea") == []


async def test_a_message_of_another_conversation_is_not_taken_over(store: Store) -> None:
    turn = await said(store, "mine")
    taken = [message(1, None), replace(message(2, 1), id=turn.reply.id)]
    with pytest.raises(IdTaken):
        await store.import_conversation(ME, conversation(head=None), taken)
    assert len(await store.conversations(ME)) == 1


async def test_a_conversation_of_another_owner_is_neither_shown_nor_replaced(store: Store) -> None:
    await store.import_conversation("other", conversation(), MESSAGES)
    assert await store.import_conversation(ME, conversation(), MESSAGES) is False
    assert await store.conversations(ME) == []
