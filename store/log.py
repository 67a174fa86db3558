"""SQL of the run log: numbered events, appended for all runs of a step at once.

Appending the same events again changes nothing (a commit whose answer was lost may be repeated);
another event under a number in use is refused, and so is anything after a run's end.
All functions take a connection and run inside the caller's transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from hobnob.store import rows
from hobnob.store.values import LoggedEvent, StoreError

BLOCK_START = "content_block_start"
BLOCK_DELTA = "content_block_delta"
"""The two types of event that the store understands, to show what a running reply has so far."""

Row = tuple[int, int, str, str, bytes | None]


def append(conn: sqlite3.Connection, new: Sequence[Row], old: Sequence[Row]) -> None:
    """Writes the new rows; the old ones, of runs that have ended, must be there already."""
    written = 0
    if new:
        written = conn.executemany(
            "INSERT INTO run_events (run, seq, type, data, tokens) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (run, seq) DO NOTHING",
            new,
        ).rowcount
    _verify(conn, old if written == len(new) else [*old, *new])


def row(run: int, event: LoggedEvent) -> Row:
    return run, event.seq, event.type, event.data, rows.pack_or_none(event.tokens)


def events(conn: sqlite3.Connection, run: int, after: int) -> list[LoggedEvent]:
    found = conn.execute(
        "SELECT seq, type, data, tokens FROM run_events WHERE run = ? AND seq > ? ORDER BY seq",
        (run, after),
    )
    return [
        LoggedEvent(seq=seq, type=type, data=data, tokens=rows.unpack(tokens))
        for seq, type, data, tokens in found
    ]


def blocks(conn: sqlite3.Connection, run: int) -> list[dict[str, Any]]:
    """The reply's content as far as it is logged: the deltas joined, block by block."""
    kinds: dict[int, str] = {}
    texts: dict[int, list[str]] = {}
    for type, data in conn.execute(
        "SELECT type, data FROM run_events WHERE run = ? AND type IN (?, ?) ORDER BY seq",
        (run, BLOCK_START, BLOCK_DELTA),
    ):
        event = rows.load_object(data) or {}
        index = int(event.get("index", 0))
        pieces = texts.setdefault(index, [])
        if type == BLOCK_START:
            kinds[index] = str(event.get("kind", "text"))
        else:
            pieces.append(str(event.get("text", "")))
    return [{"type": kinds.get(i, "text"), "text": "".join(texts[i])} for i in sorted(texts)]


def prune(conn: sqlite3.Connection, ended_before: int, *, limit: int) -> int:
    """Drops the logs of at most `limit` runs that ended before; how many it were."""
    found = conn.execute(
        "SELECT n FROM runs WHERE ended_at < ? AND log_pruned = 0 LIMIT ?", (ended_before, limit)
    ).fetchall()
    conn.executemany("DELETE FROM run_events WHERE run = ?", found)
    conn.executemany("UPDATE runs SET log_pruned = 1, prompt = x'' WHERE n = ?", found)
    return len(found)


def _verify(conn: sqlite3.Connection, expected: Sequence[Row]) -> None:
    """Raises StoreError unless each of these rows is in the log as it is here."""
    for row in expected:
        found = conn.execute(
            "SELECT run, seq, type, data, tokens FROM run_events WHERE run = ? AND seq = ?", row[:2]
        ).fetchone()
        if found is None:
            raise StoreError(f"Event {row[1]} came after the end of its run.")
        if tuple(found) != row:
            raise StoreError(f"Event {row[1]} of a run is in the log already, with other content.")
