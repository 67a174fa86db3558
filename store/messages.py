"""SQL of messages, a tree in each conversation. Replies that still run get their text from the log.

A parent was written before its answers, in the same conversation: one that was not, in a damaged
file, is no parent, or a message could be its own ancestor and reading it would never end.

All functions take a connection and run inside the caller's transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from hobnob.store import log, rows
from hobnob.store.values import (
    ABOUT,
    LIVE,
    RUNNING,
    BadParent,
    Message,
    NotFound,
    RunEnd,
    Said,
)

_COLUMNS = """
    SELECT m.id, c.id AS conversation, p.id AS parent, m.role, m.text, m.blocks, m.status,
        m.created_at, m.model, m.tokens, m.vocab_hash, m.stop_reason, m.error, m.usage, m.timings,
        r.n AS run_n, r.id AS run, r.ended_at AS run_ended_at
    FROM messages m
    JOIN conversations c ON c.n = m.conversation
    LEFT JOIN messages p ON p.n = m.parent AND p.n < m.n AND p.conversation = m.conversation
    LEFT JOIN runs r ON r.n = (SELECT max(n) FROM runs WHERE message = m.n)
"""

_BRANCH = """
    WITH RECURSIVE up (n) AS (
        SELECT ?
        UNION ALL
        SELECT m.parent FROM messages m JOIN up ON m.n = up.n WHERE m.parent < m.n
    )
    SELECT n FROM up
"""


def find(conn: sqlite3.Connection, owner: str, id: str) -> int:
    row = conn.execute(
        "SELECT m.n FROM messages m JOIN conversations c ON c.n = m.conversation"
        " WHERE m.id = ? AND c.owner = ?",
        (id, owner),
    ).fetchone()
    if row is None:
        raise NotFound("There is no such message.")
    return int(row[0])


def find_in(conn: sqlite3.Connection, conversation: int, id: str) -> int:
    """The message's row, if it is one of this conversation."""
    row = conn.execute(
        "SELECT n FROM messages WHERE id = ? AND conversation = ?", (id, conversation)
    ).fetchone()
    if row is None:
        raise NotFound("There is no such message in this conversation.")
    return int(row[0])


def find_parent(conn: sqlite3.Connection, conversation: int, id: str, *, role: str) -> int:
    """As find_in, for a message that one of the other role is to follow."""
    n = find_in(conn, conversation, id)
    (actual,) = conn.execute("SELECT role FROM messages WHERE n = ?", (n,)).fetchone()
    if actual != role:
        raise BadParent(f"The parent is not a message of the {role}.")
    return n


def get(conn: sqlite3.Connection, n: int) -> Message:
    return _value(conn, conn.execute(f"{_COLUMNS} WHERE m.n = ?", (n,)).fetchone(), tokens=True)


def tree(conn: sqlite3.Connection, conversation: int, *, tokens: bool) -> list[Message]:
    """Every message of the conversation, in the order of writing."""
    found = conn.execute(f"{_COLUMNS} WHERE m.conversation = ? ORDER BY m.n", (conversation,))
    return [_value(conn, row, tokens=tokens) for row in found.fetchall()]


def branch(
    conn: sqlite3.Connection, conversation: int, leaf: str | None, *, tokens: bool
) -> list[Message]:
    """From the root to the leaf, or to the conversation's head. A parent precedes its children."""
    if leaf is not None:
        end: int | None = find_in(conn, conversation, leaf)
    else:
        (end,) = conn.execute(
            "SELECT h.n FROM conversations c"
            " LEFT JOIN messages h ON h.n = c.head AND h.conversation = c.n WHERE c.n = ?",
            (conversation,),
        ).fetchone()
    if end is None:
        return []
    found = conn.execute(
        f"{_COLUMNS} WHERE m.n IN ({_BRANCH}) AND m.conversation = ? ORDER BY m.n",
        (end, conversation),
    )
    return [_value(conn, row, tokens=tokens) for row in found.fetchall()]


def rows_of(conn: sqlite3.Connection, rows: Sequence[int]) -> list[Message]:
    """Messages by their rows, without tokens, in the order of writing."""
    marks = ", ".join("?" * len(rows))
    found = conn.execute(f"{_COLUMNS} WHERE m.n IN ({marks}) ORDER BY m.n", rows)
    return [_value(conn, row, tokens=False) for row in found.fetchall()]


def insert_said(
    conn: sqlite3.Connection, conversation: int, said: Sequence[Said], *, now: int
) -> int | None:
    """A conversation's beginning, each message after the one before. Returns the last one's row."""
    before: int | None = None
    for one in said:
        blocks = [{"type": "text", "text": one.text}]
        before = _insert(
            conn, conversation, before, one.role, "completed", blocks, None, None, now, id=one.id
        )
    return before


def insert_user(
    conn: sqlite3.Connection,
    conversation: int,
    parent: int | None,
    text: str,
    *,
    about: str | None = None,
    now: int,
) -> int:
    blocks = [{"type": "text", "text": text}]
    if about is not None:
        blocks[0][ABOUT] = about
    return _insert(conn, conversation, parent, "user", "completed", blocks, None, None, now)


def insert_copy(conn: sqlite3.Connection, id: str, parent: int) -> int:
    """The message once more, below another, with its time, text and tokens; no run wrote it."""
    (n,) = conn.execute(
        "INSERT INTO messages (id, conversation, parent, role, status, model, stop_reason, error,"
        " usage, timings, created_at, text, blocks, vocab_hash, tokens)"
        " SELECT ?, conversation, ?, role, status, model, stop_reason, error, usage, timings,"
        " created_at, text, blocks, vocab_hash, tokens FROM messages WHERE id = ? RETURNING n",
        (rows.new_id(), parent, id),
    ).fetchone()
    return int(n)


def insert_reply(
    conn: sqlite3.Connection,
    conversation: int,
    parent: int,
    *,
    model: str,
    vocab_hash: str,
    now: int,
) -> int:
    """A reply without text whose run is to come."""
    return _insert(conn, conversation, parent, "assistant", RUNNING, [], model, vocab_hash, now)


def finish(conn: sqlite3.Connection, n: int, end: RunEnd) -> None:
    """The reply as it stays; from now on search finds it."""
    blocks = end.blocks or ([{"type": "text", "text": end.text}] if end.text else [])
    conn.execute(
        "UPDATE messages SET status = ?, stop_reason = ?, error = ?, usage = ?, timings = ?,"
        " text = ?, blocks = ?, tokens = ? WHERE n = ?",
        (
            end.status,
            end.stop_reason,
            end.error,
            rows.dump_or_none(end.usage),
            rows.dump_or_none(end.timings),
            rows.searchable(rows.text_of(blocks)),
            rows.dump(blocks),
            rows.pack(end.tokens),
            n,
        ),
    )


def _insert(
    conn: sqlite3.Connection,
    conversation: int,
    parent: int | None,
    role: str,
    status: str,
    blocks: list[dict[str, Any]],
    model: str | None,
    vocab_hash: str | None,
    now: int,
    *,
    id: str | None = None,
) -> int:
    text = rows.searchable(rows.text_of(blocks))
    (n,) = conn.execute(
        "INSERT INTO messages (id, conversation, parent, role, status, model, created_at, text,"
        " blocks, vocab_hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING n",
        (
            id or rows.new_id(),
            conversation,
            parent,
            role,
            status,
            model,
            now,
            text,
            rows.dump(blocks),
            vocab_hash,
        ),
    ).fetchone()
    return int(n)


def _value(conn: sqlite3.Connection, row: sqlite3.Row, *, tokens: bool) -> Message:
    status, error = row["status"], row["error"]
    if status in LIVE and (row["run_n"] is None or row["run_ended_at"] is not None):
        status, error = "failed", "log_unreadable: Nothing is writing this reply any more."
    if row["status"] in LIVE and row["run_n"] is not None:
        blocks = log.blocks(conn, row["run_n"])
    else:
        blocks = rows.load_blocks(row["blocks"], row["text"])
    return Message(
        id=row["id"],
        conversation=row["conversation"],
        parent=row["parent"],
        role=row["role"],
        text=rows.text_of(blocks),
        blocks=blocks,
        status=status,
        created_at=row["created_at"],
        model=row["model"],
        tokens=rows.unpack(row["tokens"]) if tokens and row["tokens"] is not None else None,
        vocab_hash=row["vocab_hash"],
        stop_reason=row["stop_reason"],
        error=error,
        usage=rows.load_object(row["usage"]),
        timings=rows.load_object(row["timings"]),
        run=row["run"],
    )
