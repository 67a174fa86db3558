"""SQL of runs.

All functions take a connection and run inside the caller's transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from hobnob.store import rows
from hobnob.store.values import QUEUED, RUNNING, NewRun, NotFound, Run, RunEnd

_COLUMNS = """
    SELECT r.id, r.owner, c.id AS conversation, m.id AS message, r.api, r.model, r.params,
        r.prompt, r.vocab_hash, r.template_hash, r.class, r.status, r.stop_reason, r.attempts,
        r.created_at, r.ended_at, r.error, r.cancel_asked
    FROM runs r JOIN messages m ON m.n = r.message JOIN conversations c ON c.n = m.conversation
"""


def find(conn: sqlite3.Connection, owner: str, id: str) -> int:
    row = conn.execute("SELECT n FROM runs WHERE id = ? AND owner = ?", (id, owner)).fetchone()
    if row is None:
        raise NotFound("There is no such run.")
    return int(row[0])


def get(conn: sqlite3.Connection, n: int) -> Run:
    return _value(conn.execute(f"{_COLUMNS} WHERE r.n = ?", (n,)).fetchone())


def by_key(conn: sqlite3.Connection, owner: str, key: str) -> tuple[int, str] | None:
    """The run with this idempotency key, and the hash of its request."""
    row = conn.execute(
        "SELECT n, coalesce(request_hash, '') FROM runs WHERE owner = ? AND idempotency_key = ?",
        (owner, key),
    ).fetchone()
    return None if row is None else (int(row[0]), str(row[1]))


def in_flight(conn: sqlite3.Connection) -> list[Run]:
    """Of all owners, oldest first."""
    found = conn.execute(f"{_COLUMNS} WHERE r.ended_at IS NULL ORDER BY r.n")
    return [_value(row) for row in found.fetchall()]


def is_log_pruned(conn: sqlite3.Connection, n: int) -> bool:
    (pruned,) = conn.execute("SELECT log_pruned FROM runs WHERE n = ?", (n,)).fetchone()
    return bool(pruned)


def insert(conn: sqlite3.Connection, owner: str, message: int, run: NewRun, *, now: int) -> int:
    (n,) = conn.execute(
        "INSERT INTO runs (id, owner, message, class, api, model, vocab_hash, template_hash,"
        " status, attempts, idempotency_key, request_hash, log_pruned, created_at, params, prompt)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, 0, ?, ?, ?) RETURNING n",
        (
            rows.new_id(),
            owner,
            message,
            "interactive" if run.interactive else "batch",
            run.api,
            run.model,
            run.vocab_hash,
            run.template_hash,
            QUEUED,
            run.idempotency_key,
            run.request_hash,
            now,
            rows.dump(run.params),
            rows.pack(run.prompt),
        ),
    ).fetchone()
    return int(n)


def set_attempt(conn: sqlite3.Connection, ids: Sequence[str]) -> None:
    """Those that have not ended are running, once more."""
    conn.executemany(
        "UPDATE runs SET status = ?, attempts = attempts + 1 WHERE id = ? AND ended_at IS NULL",
        [(RUNNING, id) for id in ids],
    )


def ask_cancel(conn: sqlite3.Connection, n: int) -> None:
    """It is not to go on, whatever becomes of the process that works on it."""
    conn.execute("UPDATE runs SET cancel_asked = 1 WHERE n = ? AND ended_at IS NULL", (n,))


def finish(conn: sqlite3.Connection, n: int, end: RunEnd, *, now: int) -> None:
    """The prompt goes: it is made anew from the messages, and is as long as all of them."""
    conn.execute(
        "UPDATE runs SET status = ?, stop_reason = ?, error = ?, ended_at = ?, prompt = x''"
        " WHERE n = ?",
        (end.status, end.stop_reason, end.error, now, n),
    )


def _value(row: sqlite3.Row) -> Run:
    return Run(
        id=row["id"],
        owner=row["owner"],
        conversation=row["conversation"],
        message=row["message"],
        api=row["api"],
        model=row["model"],
        params=rows.load_object(row["params"]) or {},
        prompt=rows.unpack(row["prompt"]),
        vocab_hash=row["vocab_hash"],
        template_hash=row["template_hash"],
        interactive=row["class"] == "interactive",
        status=row["status"],
        stop_reason=row["stop_reason"],
        attempts=row["attempts"],
        created_at=row["created_at"],
        ended_at=row["ended_at"],
        error=row["error"],
        cancel_asked=bool(row["cancel_asked"]),
    )
