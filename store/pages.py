"""SQL of a branch page by page: its last messages first, and those before them when asked for.

The shape of the whole tree is read each time, which is ids only; texts are read of the page alone.
All functions take a connection and run inside the caller's transaction.
"""

from __future__ import annotations

import sqlite3

from hobnob.store import conversations, messages
from hobnob.store.values import Conversation, Message, Page

ROWS_AT_ONCE = 500


class Tree:
    """Which message of a conversation follows which, by row number."""

    def __init__(self, conn: sqlite3.Connection, conversation: int) -> None:
        self.ids: dict[int, str] = {}
        self._parents: dict[int, int | None] = {}
        self._answers: dict[int | None, list[int]] = {}
        reading = conn.cursor()
        reading.row_factory = None  # there may be many
        found = reading.execute(
            "SELECT n, id, parent FROM messages WHERE conversation = ?", (conversation,)
        )
        for n, id, parent in sorted(found):
            parent = parent if parent in self.ids else None  # as messages.py reads a damaged one
            self.ids[n] = id
            self._parents[n] = parent
            self._answers.setdefault(parent, []).append(n)

    def path(self, end: int | None) -> list[int]:
        """From the root to this one."""
        found = []
        while end is not None:
            found.append(end)
            end = self._parents[end]
        return found[::-1]

    def before(self, n: int) -> list[int]:
        """From the root to the one that this one follows."""
        return self.path(self._parents[n])

    def newest_below(self, n: int, head: int | None) -> int:
        """The end of the branch that leads through a message: the head if it is one, or else by
        the last answers written."""
        if head is not None and n in self.path(head):
            return head
        while answers := self._answers.get(n):
            n = answers[-1]
        return n

    def versions(self, n: int) -> list[str]:
        """Of this message, itself among them, in the order of writing."""
        return [self.ids[one] for one in self._answers[self._parents[n]]]


def page(
    conn: sqlite3.Connection,
    owner: str,
    id: str,
    *,
    leaf: str | None,
    newest: bool,
    before: str | None,
    limit: int | None,
) -> Page:
    """The last `limit` messages of a branch, or all. The branch ends at the leaf (with `newest`
    at the end of what leads through it), or where `before` follows, or at the head."""
    found = conversations.by_id_or_prefix(conn, owner, id)
    place = conversations.find(conn, owner, found.id)
    tree = Tree(conn, place)
    if before is not None:
        path = tree.before(messages.find_in(conn, place, before))
    else:
        path = tree.path(_end(conn, place, found, tree, leaf, newest))
    shown = path if limit is None else path[-limit:]
    families = {tree.ids[n]: tree.versions(n) for n in shown}
    return Page(
        conversation=found,
        messages=_messages(conn, shown),
        earlier=len(path) - len(shown),
        siblings={id: versions for id, versions in families.items() if len(versions) > 1},
    )


def _end(
    conn: sqlite3.Connection,
    place: int,
    conversation: Conversation,
    tree: Tree,
    leaf: str | None,
    newest: bool,
) -> int | None:
    head = None if conversation.head is None else messages.find_in(conn, place, conversation.head)
    if leaf is None:
        return head
    end = messages.find_in(conn, place, leaf)
    return tree.newest_below(end, head) if newest else end


def _messages(conn: sqlite3.Connection, shown: list[int]) -> list[Message]:
    found: list[Message] = []
    for at in range(0, len(shown), ROWS_AT_ONCE):
        found += messages.rows_of(conn, shown[at : at + ROWS_AT_ONCE])
    return found
