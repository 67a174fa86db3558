"""SQL of titles that nobody has typed.

All functions take a connection and run inside the caller's transaction.
"""

from __future__ import annotations

import sqlite3

from hobnob.store import conversations, messages
from hobnob.store.values import Beginning


def beginning(conn: sqlite3.Connection, owner: str, id: str, run: str) -> Beginning | None:
    """None unless the run is the first of a conversation that stays whose reply completed."""
    n = conversations.find(conn, owner, id)
    row = conn.execute(
        "SELECT c.title, (SELECT n FROM messages WHERE conversation = c.n ORDER BY n LIMIT 1)"
        " FROM conversations c WHERE c.n = ? AND c.temporary = 0 AND ? ="
        " (SELECT r.id FROM messages m JOIN runs r ON r.message = m.n WHERE m.conversation = c.n"
        " AND r.status = 'completed' ORDER BY r.ended_at, r.n LIMIT 1)",
        (n, run),
    ).fetchone()
    return None if row is None else Beginning(row[0], messages.get(conn, row[1]).text)


def replace(
    conn: sqlite3.Connection, owner: str, id: str, title: str, was: str, *, now: int
) -> bool:
    """Whether it still had the title `was`."""
    n = conversations.find(conn, owner, id)
    if conversations.get(conn, n).title != was:
        return False
    conversations.update(conn, n, now=now, title=title)
    return True
