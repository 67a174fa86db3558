"""What the program relies on beyond SQLite's own checks: the schema's parts, rows that fit.

A history without one of its parts cannot be used, so it is refused. With an odd row it can: what
reads it makes the best of it (rows.py, messages.py), and only a check says that it is there.
"""

from __future__ import annotations

import sqlite3

from hobnob.store import rows, schema
from hobnob.store.values import ENDED, LIVE, Damaged

PARTS = {
    "m001_initial": {
        "meta": "key value",
        "conversations": "n id owner title system head settings created_at updated_at change",
        "messages": "n id conversation parent role status model stop_reason error usage timings"
        " created_at text blocks vocab_hash tokens",
        "runs": "n id owner message class api model vocab_hash template_hash status stop_reason"
        " error attempts idempotency_key request_hash log_pruned created_at ended_at params prompt",
        "run_events": "run seq type data tokens",
        "messages_searchable": "n text",
        "messages_index": "text",
    },
    "m002_deletions": {"deletions": "change owner conversation"},
    "m004_pinned": {"conversations": "pinned"},
    "m005_temporary": {"conversations": "temporary"},
    "m006_cancel_asked": {"runs": "cancel_asked"},
}
"""Tables and views with the columns that each migration brought; tested against migrations.py."""

_INDEXED = "WHEN {}.status NOT IN ('queued', 'running') BEGIN INSERT INTO messages_index"
_ADD = f"{_INDEXED.format('new')} (rowid, text) VALUES (new.n, new.text); END"
_DROP = (
    f"{_INDEXED.format('old')} (messages_index, rowid, text)"
    " VALUES ('delete', old.n, old.text); END"
)
TRIGGERS = {
    "messages_index_insert": f"AFTER INSERT ON messages {_ADD}",
    "messages_index_update_old": f"BEFORE UPDATE OF n, status, text ON messages {_DROP}",
    "messages_index_update_new": f"AFTER UPDATE OF n, status, text ON messages {_ADD}",
    "messages_index_delete": f"AFTER DELETE ON messages {_DROP}",
}
"""What each does, as the migrations made it: SQLite runs them in our name with every write."""

KEYS = ("instance", "epoch", "change")
"""Of `meta`, there from the beginning."""

_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999  # the years 1 to 9999

_LIVE, _ANY = (", ".join(f"'{status}'" for status in known) for known in (LIVE, LIVE + ENDED))

_ODD_ROWS = (
    (
        "{} messages do not follow one that was written before them in their conversation.",
        "SELECT count(*) FROM messages m LEFT JOIN messages p ON p.n = m.parent"
        " WHERE m.parent >= m.n OR p.conversation != m.conversation",
    ),
    (
        "{} conversations show a message of another one.",
        "SELECT count(*) FROM conversations c JOIN messages m ON m.n = c.head"
        " WHERE m.conversation != c.n",
    ),
    (
        "{} messages are neither the user's nor a reply.",
        "SELECT count(*) FROM messages WHERE role NOT IN ('user', 'assistant')",
    ),
    (
        "{} messages are in a state that does not exist.",
        f"SELECT count(*) FROM messages WHERE status NOT IN ({_ANY})",
    ),
    (
        "{} replies have not ended, but nothing is writing them.",
        f"SELECT count(*) FROM messages m WHERE status IN ({_LIVE}) AND NOT EXISTS"
        " (SELECT 1 FROM runs r WHERE r.message = m.n AND r.ended_at IS NULL)",
    ),
    *(
        (
            f"{{}} {table} have a time that no calendar has.",
            f"SELECT count(*) FROM {table} WHERE"
            + " OR".join(f" {time} NOT BETWEEN {_FIRST_MS} AND {_LAST_MS}" for time in times),
        )
        for table, times in (
            ("conversations", ("created_at", "updated_at")),
            ("messages", ("created_at",)),
        )
    ),
)


def missing(conn: sqlite3.Connection) -> list[str]:
    """Parts of the schema that are not there, a sentence each. Quick: no row of a text is read."""
    applied = schema.applied(conn)
    for table, columns in _expected(applied).items():
        there = _columns(conn, table)
        if not there:
            return [f"The table {table} is not there, or not whole."]
        if lost := sorted(columns - there):
            return [f"The table {table} has no {', '.join(lost)}."]
    keys = {key for (key,) in conn.execute("SELECT key FROM meta")} if applied else set(KEYS)
    return [f"The table meta has no {key}." for key in KEYS if key not in keys]


def _columns(conn: sqlite3.Connection, table: str) -> set[str]:
    try:
        return {row[1] for row in conn.execute(f"PRAGMA table_info({table})")}
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_ERROR:
            raise
        return set()  # a view or an index of what is not there itself


def foreign(conn: sqlite3.Connection) -> list[str]:
    """Triggers that are not ours, or ours that are not as we made them, a sentence each."""
    rows = conn.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
    found = {name: " ".join(str(sql).split()) for name, sql in rows}
    ours = TRIGGERS if schema.applied(conn) else {}
    problems = [f"The trigger {name} is not there." for name in sorted(ours.keys() - found.keys())]
    for name in sorted(found):
        if name not in ours:
            problems.append(f"The trigger {name!r} is not one of hobnob's.")
        elif found[name] != f"CREATE TRIGGER {name} {ours[name]}":
            problems.append(f"The trigger {name} does something else than hobnob's.")
    return problems


def odd_rows(conn: sqlite3.Connection) -> list[str]:
    """What is in the rows that hobnob never wrote, a sentence for each kind. Looks at all rows."""
    if not schema.applied(conn):
        return []
    counts = [(words, conn.execute(query).fetchone()[0]) for words, query in _ODD_ROWS]
    problems = [words.format(count) for words, count in counts if count]
    under_way = conn.execute("SELECT params FROM runs WHERE ended_at IS NULL")
    if lost := sum(rows.load_object(params) is None for (params,) in under_way):
        problems.append(f"The options of {lost} replies under way cannot be read.")
    return problems


def require(conn: sqlite3.Connection) -> None:
    """Raises Damaged where a part of the schema is missing."""
    if problems := missing(conn):
        raise Damaged(
            f"The database is damaged: {problems[0]} `hobnob history restore FILE` puts a backup"
            " in its place."
        )


def _expected(applied: list[str]) -> dict[str, set[str]]:
    parts: dict[str, set[str]] = {}
    for migration in applied:
        for table, columns in PARTS.get(migration, {}).items():
            parts.setdefault(table, set()).update(columns.split())
    return parts
