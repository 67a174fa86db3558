"""SQL of conversations. Every write gives the row a new number from one growing counter.

All functions take a connection and run inside the caller's transaction.
"""

from __future__ import annotations

import sqlite3
from enum import Enum
from typing import Any

from hobnob.store import rows, search
from hobnob.store.values import Conversation, NotFound

MIN_PREFIX = 4
"""Characters of an id that may stand for the whole, when they fit one conversation only."""

_COLUMNS = """
    SELECT c.id, c.owner, c.title, c.system, h.id AS head, c.settings, c.pinned, c.temporary,
        c.created_at, c.updated_at, c.change
    FROM conversations c LEFT JOIN messages h ON h.n = c.head AND h.conversation = c.n
"""


class Unset(Enum):
    """The field of an update that stays as it is (None is a value)."""

    UNSET = 0


UNSET = Unset.UNSET


def find(conn: sqlite3.Connection, owner: str, id: str) -> int:
    row = conn.execute(
        "SELECT n FROM conversations WHERE id = ? AND owner = ?", (id, owner)
    ).fetchone()
    if row is None:
        raise NotFound("There is no such conversation.")
    return int(row[0])


def get(conn: sqlite3.Connection, n: int) -> Conversation:
    return _value(conn.execute(f"{_COLUMNS} WHERE c.n = ?", (n,)).fetchone())


def by_id_or_prefix(conn: sqlite3.Connection, owner: str, id: str) -> Conversation:
    exact = conn.execute(f"{_COLUMNS} WHERE c.id = ? AND c.owner = ?", (id, owner)).fetchone()
    if exact is not None:
        return _value(exact)
    if len(id) < MIN_PREFIX:
        raise NotFound("There is no such conversation.")
    found = conn.execute(
        f"{_COLUMNS} WHERE c.id >= ? AND c.id < ? AND c.owner = ? LIMIT 2",
        (id, id + "\U0010ffff", owner),
    ).fetchall()
    if len(found) != 1:
        raise NotFound(
            "More than one conversation begins so." if found else "There is no such conversation."
        )
    return _value(found[0])


def listing(
    conn: sqlite3.Connection,
    owner: str,
    *,
    limit: int,
    before: int | None,
    query: str | None,
    pinned: bool | None,
    title: str | None = None,
) -> list[Conversation]:
    """Newest change first; with a query, those whose title or messages match it; with `pinned`
    only those that are, or are not; with `title` those called so. Never temporary ones."""
    where, parameters = "c.owner = ? AND c.temporary = 0", [owner]
    if query is not None and query.strip():
        found, values = search.conversations_where(conn, owner, query)
        where, parameters = f"{where} AND {found}", [owner, *values]
    if pinned is not None:
        where = f"{where} AND c.pinned = {int(pinned)}"
    if title is not None:
        where, parameters = f"{where} AND c.title = ?", [*parameters, rows.one_line(title)]
    if before is not None:
        where = f"{where} AND c.change < {int(before)}"
    sql = f"{_COLUMNS} WHERE {where} ORDER BY c.change DESC LIMIT {int(limit)}"
    return [_value(row) for row in conn.execute(sql, parameters)]


def changed(conn: sqlite3.Connection, owner: str, after: int, *, limit: int) -> list[Conversation]:
    """Those written to after that change number, the oldest change first; no temporary ones."""
    found = conn.execute(
        f"{_COLUMNS} WHERE c.owner = ? AND c.change > ? AND c.temporary = 0"
        " ORDER BY c.change LIMIT ?",
        (owner, after, limit),
    )
    return [_value(row) for row in found]


def temporary(conn: sqlite3.Connection) -> list[tuple[str, str]]:
    """Owner and id of all that are."""
    found = conn.execute("SELECT owner, id FROM conversations WHERE temporary = 1 ORDER BY n")
    return [(owner, id) for owner, id in found]


def insert(
    conn: sqlite3.Connection,
    owner: str,
    *,
    title: str,
    system: str | None,
    settings: dict[str, Any] | None,
    now: int,
    temporary: bool = False,
) -> int:
    (n,) = conn.execute(
        "INSERT INTO conversations (id, owner, title, system, settings, temporary, created_at,"
        " updated_at, change) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING n",
        (
            rows.new_id(),
            owner,
            rows.one_line(title),
            system,
            rows.dump(settings or {}),
            int(temporary),
            now,
            now,
            next_change(conn),
        ),
    ).fetchone()
    return int(n)


def update(
    conn: sqlite3.Connection,
    n: int,
    *,
    now: int,
    title: str | Unset = UNSET,
    system: str | None | Unset = UNSET,
    settings: dict[str, Any] | Unset = UNSET,
    head: int | None | Unset = UNSET,
    pinned: bool | Unset = UNSET,
) -> None:
    """Sets what is given, the time and the change number."""
    values: dict[str, Any] = {"updated_at": now, "change": next_change(conn)}
    if not isinstance(title, Unset):
        values["title"] = rows.one_line(title)
    if not isinstance(system, Unset):
        values["system"] = system
    if not isinstance(settings, Unset):
        values["settings"] = rows.dump(settings)
    if not isinstance(head, Unset):
        values["head"] = head
    if not isinstance(pinned, Unset):
        values["pinned"] = int(pinned)
    assignments = ", ".join(f"{name} = ?" for name in values)
    conn.execute(f"UPDATE conversations SET {assignments} WHERE n = ?", (*values.values(), n))


def delete(conn: sqlite3.Connection, n: int) -> None:
    """The conversation with its messages, runs, logs and index rows (upkeep.py scrubs them).

    changes.py calls it, so that those who follow learn of it.
    """
    conn.execute("DELETE FROM conversations WHERE n = ?", (n,))


def next_change(conn: sqlite3.Connection) -> int:
    # A counter of its own: the highest number in use would fall with a deletion.
    (change,) = conn.execute(
        "UPDATE meta SET value = value + 1 WHERE key = 'change' RETURNING value"
    ).fetchone()
    return int(change)


def _value(row: sqlite3.Row) -> Conversation:
    return Conversation(
        id=row["id"],
        owner=row["owner"],
        title=row["title"],
        system=row["system"],
        head=row["head"],
        settings=rows.load_object(row["settings"]) or {},
        pinned=bool(row["pinned"]),
        temporary=bool(row["temporary"]),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        change=row["change"],
    )
