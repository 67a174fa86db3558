"""Messages of one branch copied below a reply of another, so that a conversation goes on there.

The copies are messages of their own, without runs; the branch that they are of stays as it is.
All functions take a connection and run inside the caller's transaction.
"""

from __future__ import annotations

import sqlite3

from hobnob.store import conversations, messages
from hobnob.store.values import LIVE, BadParent, Conversation, Message, NotFound


def graft(
    conn: sqlite3.Connection,
    owner: str,
    conversation: str,
    *,
    onto: str,
    first: str,
    leaf: str,
    now: int,
) -> Conversation:
    place = conversations.find(conn, owner, conversation)
    below = messages.find_parent(conn, place, onto, role="assistant")
    if messages.get(conn, below).status in LIVE:
        raise BadParent("The reply is still being written.")
    copied = _part(messages.branch(conn, place, leaf, tokens=False), first)
    if any(message.id == onto for message in copied):
        raise BadParent("A message cannot be put below itself.")
    there = _copied_before(conn, place, below, len(copied), copied[0].text)
    head = _copy(conn, copied, below) if there is None else there
    conversations.update(conn, place, now=now, head=head)
    return conversations.get(conn, place)


def _part(branch: list[Message], first: str) -> list[Message]:
    """From that message on. Raises NotFound and BadParent."""
    ids = [message.id for message in branch]
    if first not in ids:
        raise NotFound("There is no such message in this branch.")
    part = branch[ids.index(first) :]
    if part[0].role != "user" or part[-1].role != "assistant":
        raise BadParent("What is copied begins with a user's message and ends with a reply.")
    if any(message.status in LIVE for message in part):
        raise BadParent("The reply is still being written.")
    return part


def _copied_before(
    conn: sqlite3.Connection, place: int, below: int, count: int, text: str
) -> int | None:
    """The last copy, where the same request was carried out before."""
    found = conn.execute(
        "WITH RECURSIVE down (n, depth) AS ("
        " SELECT n, 1 FROM messages WHERE parent = ?1 AND conversation = ?2"
        " UNION ALL SELECT m.n, depth + 1 FROM messages m JOIN down ON m.parent = down.n"
        " WHERE depth < ?3 AND m.n > down.n)"
        " SELECT n FROM down WHERE depth = ?3 ORDER BY n LIMIT 1",
        (below, place, count),
    ).fetchone()
    if found is None:
        return None
    (child,) = conn.execute(
        "SELECT n FROM messages WHERE parent = ? AND conversation = ? ORDER BY n LIMIT 1",
        (below, place),
    ).fetchone()
    return int(found[0]) if messages.get(conn, int(child)).text == text else None


def _copy(conn: sqlite3.Connection, copied: list[Message], below: int) -> int:
    parent = below
    for message in copied:
        parent = messages.insert_copy(conn, message.id, parent)
    return parent
