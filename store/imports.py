"""SQL of a conversation that comes from a file: all of it, with its own ids and times, or nothing.

All functions take a connection and run inside the caller's transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from hobnob.store import conversations, rows
from hobnob.store.values import ENDED, BadParent, Conversation, IdTaken, Message

_IDS_AT_ONCE = 500


def insert(
    conn: sqlite3.Connection,
    owner: str,
    conversation: Conversation,
    messages: Sequence[Message],
) -> bool:
    """False, and nothing written, where there is a conversation of that id. Raises IdTaken, and
    BadParent where a message does not follow one that stands before it, of the other role.

    Its change number is the next one: whoever follows the changes learns of it.
    """
    if conn.execute("SELECT 1 FROM conversations WHERE id = ?", (conversation.id,)).fetchone():
        return False
    _require_free(conn, messages)
    place = _insert_conversation(conn, owner, conversation)
    known: dict[str, tuple[int, str]] = {}
    for message in messages:
        assert message.status in ENDED, "nothing writes what was imported"
        parent = _parent(known, message)
        known[message.id] = (_insert_message(conn, place, parent, message), message.role)
    if conversation.head is not None:
        if conversation.head not in known:
            raise BadParent("What the conversation shows is none of its messages.")
        head = known[conversation.head][0]
        conn.execute("UPDATE conversations SET head = ? WHERE n = ?", (head, place))
    return True


def _require_free(conn: sqlite3.Connection, messages: Sequence[Message]) -> None:
    ids = [message.id for message in messages]
    if len(set(ids)) < len(ids):
        raise IdTaken("Two messages of the conversation have the same id.")
    for start in range(0, len(ids), _IDS_AT_ONCE):
        some = ids[start : start + _IDS_AT_ONCE]
        marks = ", ".join("?" * len(some))
        if conn.execute(f"SELECT 1 FROM messages WHERE id IN ({marks}) LIMIT 1", some).fetchone():
            raise IdTaken("A message of it is there already, in another conversation.")


def _parent(known: dict[str, tuple[int, str]], message: Message) -> int | None:
    if message.parent is None:
        return None
    if message.parent not in known:
        raise BadParent("A message follows one that does not stand before it.")
    n, role = known[message.parent]
    if role == message.role:
        raise BadParent("Users' messages follow replies, and replies follow users' messages.")
    return n


def _insert_conversation(conn: sqlite3.Connection, owner: str, one: Conversation) -> int:
    (n,) = conn.execute(
        "INSERT INTO conversations (id, owner, title, system, settings, pinned, created_at,"
        " updated_at, change) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING n",
        (
            one.id,
            owner,
            rows.one_line(one.title),
            one.system,
            rows.dump(one.settings),
            int(one.pinned),
            one.created_at,
            one.updated_at,
            conversations.next_change(conn),
        ),
    ).fetchone()
    return int(n)


def _insert_message(conn: sqlite3.Connection, place: int, parent: int | None, one: Message) -> int:
    (n,) = conn.execute(
        "INSERT INTO messages (id, conversation, parent, role, status, model, stop_reason, error,"
        " usage, timings, created_at, text, blocks)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING n",
        (
            one.id,
            place,
            parent,
            one.role,
            one.status,
            one.model,
            one.stop_reason,
            one.error,
            rows.dump_or_none(one.usage),
            rows.dump_or_none(one.timings),
            one.created_at,
            rows.searchable(rows.text_of(one.blocks)),
            rows.dump(one.blocks),
        ),
    ).fetchone()
    return int(n)
