from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from support_turns import ME, SettableClock, answer, delta, end, first_turn, new_run, said, versions

from hobnob.store.store import Store
from hobnob.store.values import Append


async def test_the_order_is_that_of_writing_whatever_the_clock_says(
    store: Store, clock: SettableClock
) -> None:
    turn = await first_turn(store, "q0")
    place = turn.conversation.id
    for i, jump in enumerate([-30_000, 0, 0, -(10**12), -(2 * 10**12), 10**13], start=1):
        clock.now += jump
        await answer(store, turn, f"a{i - 1}")
        turn = await store.begin_turn(ME, place, parent=turn.reply.id, text=f"q{i}", run=new_run())
    texts = [m.text for m in await store.branch(ME, place)]
    assert texts == [f"{role}{i}" for i in range(6) for role in "qa"] + ["q6", ""]
    assert [m.text for m in await store.messages(ME, place)] == texts
    assert (await store.conversations(ME))[0].updated_at == clock.now


async def test_times_before_1970_and_after_2038_come_back(
    store: Store, clock: SettableClock
) -> None:
    for clock.now in (-1, 0, 2**31 * 1000 + 1, 253_402_300_799_999):
        turn = await first_turn(store)
        assert (await store.message(ME, turn.message.id)).created_at == clock.now


async def test_a_nul_in_a_message_is_kept_and_hides_nothing(store: Store, path: Path) -> None:
    turn = await said(store, "abc\0def", "one\0two")
    assert (await store.message(ME, turn.message.id)).text == "abc\0def"
    assert (await store.message(ME, turn.reply.id)).text == "one\0two"
    hits = await store.search(ME, "def")
    assert [hit.message for hit in hits] == [turn.message.id]
    assert hits[0].snippet == "abc \x02def\x03"
    assert [hit.message for hit in await store.search(ME, "two")] == [turn.reply.id]
    conn = sqlite3.connect(path)
    assert conn.execute("SELECT length(text) FROM messages").fetchall() == [(7,), (7,)]
    conn.close()


async def test_any_text_comes_back_as_it_was(store: Store) -> None:
    text = "\ufeff \r\n\x02\x03\x1b[31m <|im_end|> '; DROP TABLE messages; -- 🏳️‍🌈 ﷽ \U0010ffff\0"
    turn = await said(store, text, text)
    assert (await store.message(ME, turn.message.id)).text == text
    assert (await store.message(ME, turn.reply.id)).text == text


async def test_branches_share_their_beginning(store: Store) -> None:
    turn = await said(store, "q", "a")
    place = turn.conversation.id
    left = await store.begin_turn(ME, place, parent=turn.reply.id, text="left", run=new_run())
    right = await store.begin_turn(ME, place, parent=turn.reply.id, text="right", run=new_run())
    assert [m.text for m in await store.branch(ME, place, left.message.id)] == ["q", "a", "left"]
    assert [m.text for m in await store.branch(ME, place)] == ["q", "a", "right", ""]
    assert await versions(store, left.message) == [left.message.id, right.message.id]
    assert await versions(store, turn.message) == [turn.message.id]
    assert len(await store.messages(ME, place)) == 6


async def test_roots_of_other_conversations_are_no_siblings(store: Store) -> None:
    one, _ = await said(store, "one"), await said(store, "two")
    assert (await store.page(ME, one.conversation.id)).siblings == {}


async def test_token_ids_are_left_out_where_they_are_not_wanted(store: Store) -> None:
    turn = await said(store, "q", "a")
    for read in (store.branch, store.messages):
        assert (await read(ME, turn.conversation.id))[1].tokens == [7, 8]
        assert (await read(ME, turn.conversation.id, tokens=False))[1].tokens is None


async def test_a_damaged_row_hides_nothing_else(store: Store, path: Path) -> None:
    turn = await said(store, "q", "a")
    conn = sqlite3.connect(path)
    conn.execute("UPDATE messages SET usage = '{', timings = '[]', role = 'wizard' WHERE n = 2")
    conn.execute("UPDATE messages SET blocks = 'oops', tokens = x'ff' WHERE n = 2")
    conn.execute("UPDATE conversations SET settings = '{'")
    conn.execute("UPDATE runs SET params = 'x', prompt = x'8080'")
    conn.commit()
    conn.close()
    question, reply = await store.branch(ME, turn.conversation.id)
    assert (question.text, reply.text, reply.role) == ("q", "a", "wizard")
    assert (reply.usage, reply.timings, reply.tokens) == (None, None, [])
    assert (await store.conversations(ME))[0].settings == {}
    assert (await store.run(ME, turn.run.id)).prompt == []
    assert await store.check() == ["1 messages are neither the user's nor a reply."]
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute("UPDATE messages SET role = 'assistant' WHERE n = 2")


async def test_a_reply_without_text_stays_without(store: Store) -> None:
    turn = await first_turn(store)
    await store.append([Append(turn.run.id, [], end("", blocks=[], status="cancelled"))])
    reply = await store.message(ME, turn.reply.id)
    assert (reply.text, reply.blocks, reply.status) == ("", [], "cancelled")


async def test_a_very_long_conversation_is_read_and_deleted(store: Store, path: Path) -> None:
    turn = await said(store, "root")
    place = turn.conversation.id
    rows = [
        (f"id{n}", n - 1, "user" if n % 2 else "assistant", f"text {n}") for n in range(3, 5001)
    ]
    conn = sqlite3.connect(path)
    conn.executemany(
        "INSERT INTO messages (id, conversation, parent, role, status, created_at, text, blocks)"
        " VALUES (?, 1, ?, ?, 'completed', 0, ?, '')",
        rows,
    )
    conn.execute("UPDATE conversations SET head = 5000")
    conn.commit()
    conn.close()
    branch = await store.branch(ME, place)
    assert len(branch) == 5000
    assert branch[-1].text == "text 5000"
    assert len(await store.search(ME, "text", limit=10_000)) == 4998
    await store.delete_conversation(ME, place)
    assert await store.conversations(ME) == []
    assert await store.search(ME, "text") == []


async def test_a_running_reply_is_found_by_search_at_its_end_only(store: Store) -> None:
    turn = await first_turn(store)
    await store.append([Append(turn.run.id, [delta(1, "walrus")])])
    assert await store.search(ME, "walrus") == []
    await store.append([Append(turn.run.id, [delta(2, " song")], end("walrus song"))])
    assert [hit.message for hit in await store.search(ME, "walrus")] == [turn.reply.id]
