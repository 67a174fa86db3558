"""What the program relies on: found missing by a check, and lived with where that is possible."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import sqlite_utils
from support_turns import ME, first_turn, said

from hobnob.store import migrations, schema, soundness
from hobnob.store.store import Store
from hobnob.store.values import Damaged

HEAD_OF_ANOTHER = "UPDATE conversations SET head = 4 WHERE n = 1"
OWN_PARENT = "UPDATE messages SET parent = n"
CIRCLE = "UPDATE messages SET parent = CASE n WHEN 1 THEN 2 ELSE 1 END WHERE n < 3"
PARENT_ELSEWHERE = "UPDATE messages SET parent = 1 WHERE n = 3"
NOBODY_WRITES = "UPDATE messages SET status = 'running' WHERE n = 2"
ODD_STATUS = "UPDATE messages SET status = 'weird' WHERE n = 2"

ODD = {
    OWN_PARENT: "4 messages do not follow one that was written before them in their conversation.",
    CIRCLE: "1 messages do not follow one that was written before them in their conversation.",
    PARENT_ELSEWHERE: "1 messages do not follow one that was written before them in their"
    " conversation.",
    HEAD_OF_ANOTHER: "1 conversations show a message of another one.",
    "UPDATE messages SET role = 'wizard' WHERE n = 2": "1 messages are neither the user's nor a"
    " reply.",
    ODD_STATUS: "1 messages are in a state that does not exist.",
    NOBODY_WRITES: "1 replies have not ended, but nothing is writing them.",
    "UPDATE conversations SET created_at = 9223372036854775807": "2 conversations have a time that"
    " no calendar has.",
    "UPDATE messages SET created_at = -9223372036854775808": "4 messages have a time that no"
    " calendar has.",
    "UPDATE runs SET ended_at = NULL, params = '[]' WHERE n = 1": "The options of 1 replies under"
    " way cannot be read.",
}


async def changed(path: Path, statement: str) -> Store:
    """A history of two conversations of two messages each, changed behind its back."""
    store = await Store.open(path)
    await said(store, "one", "eins")
    await said(store, "two", "zwei")
    await store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.execute(statement)
    return await Store.open(path)


@pytest.mark.parametrize("number", range(len(schema.MIGRATION_NAMES) + 1))
def test_the_parts_are_those_that_the_migrations_make(number: int) -> None:
    names = schema.MIGRATION_NAMES[:number]
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as conn:
        if names:
            stop = schema.MIGRATION_NAMES[number] if number < len(schema.MIGRATION_NAMES) else None
            migrations.migrations.apply(
                sqlite_utils.Database(conn, execute_plugins=False), stop_before=stop
            )
        assert schema.applied(conn) == list(names)
        assert soundness.missing(conn) == soundness.foreign(conn) == soundness.odd_rows(conn) == []
        made: dict[str, set[str]] = {}
        for (table,) in conn.execute(
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
            " AND name NOT LIKE 'messages_index_%' AND name NOT GLOB '_sqlite_*'"
        ).fetchall():
            made[table] = {row[1] for row in conn.execute(f"PRAGMA table_info({table})")}
        made.pop("sqlite_sequence", None)
        parts: dict[str, set[str]] = {}
        for name in names:
            for table, columns in soundness.PARTS.get(name, {}).items():
                parts.setdefault(table, set()).update(columns.split())
        assert made == parts


@pytest.mark.parametrize("statement", ODD)
async def test_a_check_names_rows_that_were_never_written(path: Path, statement: str) -> None:
    store = await changed(path, statement)
    assert await store.check() == [ODD[statement]]
    await store.close()


@pytest.mark.parametrize("statement", ODD)
async def test_odd_rows_keep_nobody_from_the_texts(path: Path, statement: str) -> None:
    store = await changed(path, statement)
    async with asyncio.timeout(10):
        texts = set()
        for one in await store.conversations(ME):
            branch = await store.branch(ME, one.id)
            page = await store.page(ME, one.id)
            assert [message.id for message in page.messages] == [message.id for message in branch]
            tree = await store.messages(ME, one.id)
            seen: set[str] = set()
            for message in tree:
                assert message.parent is None or message.parent in seen
                seen.add(message.id)
            texts |= {message.text for message in tree}
            for message in tree:
                await store.page(ME, one.id, leaf=message.id, newest=True)
    assert texts == {"one", "eins", "two", "zwei"}
    await store.close()


async def test_a_reply_that_nothing_is_writing_any_more_has_failed(path: Path) -> None:
    store = await changed(path, NOBODY_WRITES)
    _, first = await store.conversations(ME)  # newest first
    _, reply = await store.messages(ME, first.id)
    assert (reply.status, reply.text) == ("failed", "eins")
    assert (reply.error or "").startswith("log_unreadable: ")
    under_way = await first_turn(store, "three")
    assert under_way.reply.status == "running"
    await store.close()


@pytest.mark.parametrize(
    "statement",
    ["DELETE FROM meta", "DROP TABLE run_events", "ALTER TABLE runs DROP COLUMN cancel_asked"],
)
async def test_a_database_without_one_of_its_parts_is_refused_in_words(
    path: Path, statement: str
) -> None:
    with pytest.raises(Damaged, match="hobnob history restore FILE"):
        await changed(path, statement)
