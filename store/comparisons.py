"""SQL of messages with several replies: what is compared side by side.

All functions take a connection and run inside the caller's transaction.
"""

from __future__ import annotations

import sqlite3

from hobnob.store import conversations, messages, runs
from hobnob.store.values import Comparison, Replies

SHOWN_CHARS = 300
"""Of a message in the listing."""

# Counted in the index of parents alone; only the newest are looked at.
_LISTING = f"""
    SELECT c.id AS conversation, c.title, m.id AS message, substr(m.text, 1, {SHOWN_CHARS}) AS text,
        several.count AS replies, newest.created_at
    FROM (
        SELECT parent, count(*) AS count, max(n) AS newest FROM messages
        WHERE parent IS NOT NULL GROUP BY parent HAVING count(*) > 1
    ) several
    JOIN messages m ON m.n = several.parent
    JOIN messages newest ON newest.n = several.newest
    JOIN conversations c ON c.n = m.conversation
    WHERE m.role = 'user' AND c.owner = ? AND c.temporary = 0
    ORDER BY several.newest DESC LIMIT ?
"""


def replies(conn: sqlite3.Connection, conversation: int, id: str) -> Replies:
    """To one message of the user, oldest first."""
    parent = messages.find_parent(conn, conversation, id, role="user")
    found = conn.execute(
        "SELECT n, (SELECT max(n) FROM runs WHERE message = m.n) FROM messages m"
        " WHERE parent = ? ORDER BY n",
        (parent,),
    ).fetchall()
    return Replies(
        conversations.get(conn, conversation),
        messages.get(conn, parent),
        [(messages.get(conn, n), None if run is None else runs.get(conn, run)) for n, run in found],
    )


def listing(conn: sqlite3.Connection, owner: str, *, limit: int) -> list[Comparison]:
    found = conn.execute(_LISTING, (owner, limit)).fetchall()
    return [Comparison(**dict(row)) for row in found]
