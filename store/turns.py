"""SQL of whole turns: what must be written together or not at all.

A turn is a user message, the reply to come and its run. A step's news are the events of all
runs, and the ends that came with them. All functions run inside the caller's transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hobnob.store import conversations, log, messages, runs
from hobnob.store.conversations import UNSET
from hobnob.store.values import (
    ENDED,
    Append,
    KeyReused,
    LoggedEvent,
    NewRun,
    NotFound,
    RunEnd,
    Said,
    Turn,
)

ALIVE_EVERY_MS = 1000
"""When runs were last worked on is known so precisely, and not written more often."""


@dataclass(frozen=True, slots=True)
class NewConversation:
    """Made in the same transaction as its first turn."""

    title: str = ""
    system: str | None = None
    settings: dict[str, Any] | None = None
    temporary: bool = False
    history: Sequence[Said] = ()  # what was said before the turn


def begin_turn(
    conn: sqlite3.Connection,
    owner: str,
    conversation: str | NewConversation,
    *,
    parent: str | None,
    text: str,
    run: NewRun,
    aside: bool,
    about: str | None = None,
    title: str | None,
    now: int,
) -> Turn:
    if (earlier := _earlier(conn, owner, run)) is not None:
        return earlier
    if isinstance(conversation, NewConversation):
        if parent is not None:
            raise NotFound("There is no such message in a new conversation.")
        place = _new_conversation(conn, owner, conversation, title, now)
        before = messages.insert_said(conn, place, conversation.history, now=now)
    else:
        place = conversations.find(conn, owner, conversation)
        before = _parent(conn, place, parent, "assistant")
        if title is not None and not conversations.get(conn, place).title:
            conversations.update(conn, place, now=now, title=title)
    message = messages.insert_user(conn, place, before, text, about=about, now=now)
    return _begin_run(conn, owner, place, message, run, aside=aside, now=now)


def begin_reply(
    conn: sqlite3.Connection,
    owner: str,
    conversation: str,
    *,
    parent: str,
    run: NewRun,
    aside: bool,
    opening: Callable[[Turn], Sequence[LoggedEvent]] | None = None,
    now: int,
) -> Turn:
    """`opening`: what the log begins with, in the same transaction."""
    if (earlier := _earlier(conn, owner, run)) is not None:
        return earlier
    place = conversations.find(conn, owner, conversation)
    message = messages.find_parent(conn, place, parent, role="user")
    turn = _begin_run(conn, owner, place, message, run, aside=aside, now=now)
    if opening is None:
        return turn
    n = runs.find(conn, owner, turn.run.id)
    log.append(conn, [log.row(n, event) for event in opening(turn)], [])
    return get(conn, n, created=True)


def get(conn: sqlite3.Connection, run: int, *, created: bool) -> Turn:
    """The turn that a run belongs to, as it is now."""
    conversation, message, reply = conn.execute(
        "SELECT m.conversation, m.parent, m.n FROM runs r JOIN messages m ON m.n = r.message"
        " WHERE r.n = ?",
        (run,),
    ).fetchone()
    return Turn(
        conversation=conversations.get(conn, conversation),
        message=messages.get(conn, message),
        reply=messages.get(conn, reply),
        run=runs.get(conn, run),
        created=created,
    )


# ---- one step's news ----


@dataclass(frozen=True, slots=True)
class _Known:
    n: int
    message: int
    conversation: int
    ended: bool


def append(conn: sqlite3.Connection, batch: Sequence[Append], *, now: int) -> list[str]:
    """Runs whose conversation was deleted meanwhile are passed over, and returned; the others
    are written."""
    known = _known(conn, batch)
    new: list[log.Row] = []
    old: list[log.Row] = []
    for item in batch:
        if run := known.get(item.run):
            (old if run.ended else new).extend(log.row(run.n, event) for event in item.events)
    log.append(conn, new, old)
    _note_alive(conn, now)
    for item in batch:
        run = known.get(item.run)
        if run is not None and item.end is not None and not run.ended:
            _finish(conn, run, item.end, now=now)
    return [item.run for item in batch if item.run not in known]


def alive_at(conn: sqlite3.Connection) -> int | None:
    """When runs were last worked on, by a process that may be gone. None: not noted so far."""
    row = conn.execute("SELECT value FROM meta WHERE key = 'alive_at'").fetchone()
    return None if row is None else int(row[0])


def _note_alive(conn: sqlite3.Connection, now: int) -> None:
    conn.execute(
        "INSERT INTO meta (key, value) VALUES ('alive_at', ?) ON CONFLICT (key)"
        " DO UPDATE SET value = excluded.value WHERE abs(excluded.value - value) >= ?",
        (now, ALIVE_EVERY_MS),
    )


def _known(conn: sqlite3.Connection, batch: Sequence[Append]) -> dict[str, _Known]:
    marks = ", ".join("?" * len(batch))
    found = conn.execute(
        "SELECT r.id, r.n, r.message, m.conversation, r.ended_at IS NOT NULL"
        f" FROM runs r JOIN messages m ON m.n = r.message WHERE r.id IN ({marks})",
        [item.run for item in batch],
    )
    return {
        id: _Known(n, message, conversation, bool(ended))
        for id, n, message, conversation, ended in found
    }


def _finish(conn: sqlite3.Connection, run: _Known, end: RunEnd, *, now: int) -> None:
    assert end.status in ENDED, "a run ends in a terminal status"
    messages.finish(conn, run.message, end)
    runs.finish(conn, run.n, end, now=now)
    conversations.update(conn, run.conversation, now=now)


# ---- parts of a beginning ----


def _earlier(conn: sqlite3.Connection, owner: str, run: NewRun) -> Turn | None:
    """The turn that the same request began before."""
    if run.idempotency_key is None:
        return None
    found = runs.by_key(conn, owner, run.idempotency_key)
    if found is None:
        return None
    n, request_hash = found
    if request_hash != (run.request_hash or ""):
        raise KeyReused("This idempotency key was used for another request.")
    return get(conn, n, created=False)


def _new_conversation(
    conn: sqlite3.Connection, owner: str, new: NewConversation, title: str | None, now: int
) -> int:
    return conversations.insert(
        conn,
        owner,
        title=new.title or title or "",
        system=new.system,
        settings=new.settings,
        now=now,
        temporary=new.temporary,
    )


def _parent(conn: sqlite3.Connection, place: int, id: str | None, role: str) -> int | None:
    return None if id is None else messages.find_parent(conn, place, id, role=role)


def _begin_run(
    conn: sqlite3.Connection,
    owner: str,
    place: int,
    message: int,
    run: NewRun,
    *,
    aside: bool,
    now: int,
) -> Turn:
    reply = messages.insert_reply(
        conn, place, message, model=run.model, vocab_hash=run.vocab_hash, now=now
    )
    n = runs.insert(conn, owner, reply, run, now=now)
    stays = aside and conversations.get(conn, place).head is not None
    conversations.update(conn, place, now=now, head=UNSET if stays else reply)
    return get(conn, n, created=True)
