"""SQL of what changed, in the order of the change numbers, for those who follow it.

Each conversation is there once, under the number of its last write: an earlier one is overtaken.
A deleted one leaves its id, so that others learn of it; the oldest of these are dropped in time.
All functions take a connection and run inside the caller's transaction.
"""

from __future__ import annotations

import sqlite3

from hobnob.store import conversations
from hobnob.store.values import Conversation, Deletion

DELETIONS_KEPT = 10_000

TIME_BITS = 10
"""Numbers of a restored history begin at the milliseconds since 1970 times 2 to the power of this:
beyond what any history counted before, unless it wrote a million times a second, and exact in
JavaScript's numbers (2**53) until the year 2248."""


def last(conn: sqlite3.Connection) -> int:
    """The number of the last write of any owner."""
    return _number(conn, "change")


def after(
    conn: sqlite3.Connection, owner: str, number: int, *, limit: int
) -> list[Conversation | Deletion] | None:
    """What of this owner changed after that number, the oldest change first.

    None when this cannot be said: deletions since then were dropped, or the number is of another
    database. 0 is always good: who knows nothing needs no deletions.
    """
    if number and not _number(conn, "deletions_from") <= number <= last(conn):
        return None
    found: list[Conversation | Deletion] = [
        *conversations.changed(conn, owner, number, limit=limit),
        *_deletions(conn, owner, number, limit),
    ]
    return sorted(found, key=lambda one: one.change)[:limit]


def delete(conn: sqlite3.Connection, n: int) -> None:
    """Deletes the conversation and keeps note of it, unless it was temporary: nobody has heard of
    such a one."""
    owner, id, temporary = conn.execute(
        "SELECT owner, id, temporary FROM conversations WHERE n = ?", (n,)
    ).fetchone()
    conversations.delete(conn, n)
    if temporary:
        conversations.next_change(conn)  # what is to be erased is told by it
        return
    conn.execute(
        "INSERT INTO deletions (change, owner, conversation) VALUES (?, ?, ?)",
        (conversations.next_change(conn), owner, id),
    )
    oldest = conn.execute(
        "SELECT change FROM deletions ORDER BY change DESC LIMIT 1 OFFSET ?", (DELETIONS_KEPT,)
    ).fetchone()
    if oldest is not None:
        conn.execute("DELETE FROM deletions WHERE change <= ?", tuple(oldest))
        conn.execute("UPDATE meta SET value = ? WHERE key = 'deletions_from'", tuple(oldest))


def forget_deletions(conn: sqlite3.Connection) -> None:
    """Drops the notes of all of them; belongs together with `begin_anew`."""
    conn.execute("DELETE FROM deletions")


def begin_anew(conn: sqlite3.Connection, now_ms: int) -> None:
    """For a copy that takes the place of another history of the same kind: no number that anybody
    knows of that one is good here, so that who follows it reads all lists again. (The migration
    that brings `deletions_from` sets it likewise.)"""
    known = last(conn)
    begin = max(known + 1, now_ms << TIME_BITS)
    conn.execute("UPDATE meta SET value = ? WHERE key IN ('change', 'deletions_from')", (begin,))
    # Those of the copy are newer now than what anybody knows of the other history.
    conn.execute("UPDATE conversations SET change = change + ?", (begin - known,))


def _deletions(conn: sqlite3.Connection, owner: str, number: int, limit: int) -> list[Deletion]:
    found = conn.execute(
        "SELECT conversation, change FROM deletions WHERE owner = ? AND change > ?"
        " ORDER BY change LIMIT ?",
        (owner, number, limit),
    )
    return [Deletion(id, change) for id, change in found]


def _number(conn: sqlite3.Connection, key: str) -> int:
    (value,) = conn.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return int(value)
