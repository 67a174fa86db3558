"""What must hold in every history: docs/durability.md as assertions on answers and database."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from simulated_client import Client
from simulated_database import SimulatedDatabase, scalar
from simulated_worker import UNTAUGHT

from hobnob.server import wire
from hobnob.store.store import Store
from hobnob.store.values import WriteFailed

OWNER = "local"

MAY_FAIL = {"engine_failed", "interrupted", "queue_timeout", "decode_failed", "model_unavailable"}
BUSY = {"server_overloaded", "queue_timeout", "model_loading", "model_unavailable"}


class SimulatedStore(Store):
    """An append can be committed and still be reported as failed."""

    lost_answers = 0.0
    dice: random.Random

    async def append(self, batch: Any) -> list[str]:
        passed_over = await super().append(batch)
        if self.dice.random() < self.lost_answers:
            raise WriteFailed("The answer got lost.")
        return passed_over


class Promises:
    def __init__(self, database: SimulatedDatabase, script: Sequence[str]) -> None:
        self._conn = database.conn
        self._database = database
        self._whole = "".join(script)
        self._changes = 0

    # ---- at every frame and answer

    def shown(self, client: Client, event: wire.Event) -> None:
        """It is on its way to the client: it must be committed, or said not to be."""
        if event.seq is None or client.deleting or client.warned or client.warned_ahead:
            return
        logged = self.logged(client.run, event.seq).get(event.seq)
        assert logged == event, f"{client.run}: {event.seq} was shown before it was logged"

    def submitted(self, run: str) -> None:
        """The engine is given a run of a conversation."""
        known = scalar(
            self._conn,
            "SELECT count(*) FROM runs r JOIN messages m ON m.n = r.message"
            " JOIN messages u ON u.n = m.parent WHERE r.id = ? AND u.role = 'user' AND u.n < m.n",
            run,
        )
        assert known or self._database.was_deleted(run), "generated before committed"

    def refused(
        self,
        client: Client,
        status: int,
        error: dict[str, str],
        *,
        deleted: bool = False,
        stopping: bool = False,
    ) -> None:
        """Every refusal has its reason in what happened."""
        code, message = error["code"], error["message"]
        reasons = {
            503: code in BUSY or (stopping and code == "server_stopping"),
            507: code == "not_saved",
            404: deleted,
            400: deleted or UNTAUGHT in client.text,
            409: client.place is not None and "key" not in message,  # a reply is being written
            500: code == "engine_failed",
        }
        assert reasons.get(status), f"refused without a reason: {status} {code}: {message}"

    def counters(self) -> None:
        change = scalar(self._conn, "SELECT value FROM meta WHERE key = 'change'")
        assert change >= self._changes, "a change number fell"
        self._changes = change

    def answered(self, client: Client, message: dict[str, Any]) -> None:
        """A stored reply whose end the client has seen, as the server tells of it."""
        stop = client.stop
        if stop is None or client.warned:
            return
        assert (message["status"], message["text"]) == (stop.status, client.shown_text)

    # ---- at the end

    async def end(self, client: Client, store: Store) -> None:
        stop, text = client.stop, client.shown_text
        assert stop is not None and client.events[-1].payload is stop
        assert stop.status in wire.Status.TERMINAL
        assert stop.error is None or stop.error.code in MAY_FAIL, stop
        whole = self._whole
        assert whole.startswith(text) and (stop.status != "completed" or text == whole)
        reply = await store.message(OWNER, client.reply)
        assert (reply.text, reply.status) == (text, stop.status), "stored is not what was shown"
        assert list(self.logged(client.run).values()) == client.events
        assert (await store.run(OWNER, client.run)).prompt == []

    def completion(self, text: str, *, whole: bool) -> None:
        assert text == self._whole if whole else self._whole.startswith(text)

    def stored(self, known: set[str], *, thoroughly: bool) -> None:
        conn = self._conn
        assert scalar(conn, "SELECT count(*) FROM messages WHERE n <= parent") == 0
        twice = "SELECT count(*) FROM (SELECT 1 FROM messages WHERE role = 'user'"
        assert scalar(conn, f"{twice} GROUP BY text HAVING count(*) > 1)") == 0, "stored twice"
        stops = "SELECT count(*) FROM (SELECT 1 FROM run_events WHERE type = 'message_stop'"
        assert scalar(conn, f"{stops} GROUP BY run HAVING count(*) > 1)") == 0, "ended twice"
        for (text,) in conn.execute("SELECT text FROM messages WHERE role = 'user'"):
            assert text in known
        if thoroughly:
            assert [row[0] for row in conn.execute("PRAGMA integrity_check")] == ["ok"]
            assert conn.execute("PRAGMA foreign_key_check").fetchall() == []
            conn.execute(
                "INSERT INTO messages_index (messages_index, rank) VALUES ('integrity-check', 1)"
            )

    # ---- what is committed

    def logged(self, run: str, only: int | None = None) -> dict[int, wire.Event]:
        found = self._conn.execute(
            "SELECT seq, type, data FROM run_events WHERE run = (SELECT n FROM runs WHERE id = ?)"
            " AND seq BETWEEN ? AND ?",
            (run, only or 0, only or 1_000_000),
        )
        return {
            seq: wire.Event(seq, payload)
            for seq, type_, data in found
            if (payload := wire.load(type_, data)) is not None
        }

    @property
    def in_flight(self) -> int:
        return int(scalar(self._conn, "SELECT count(*) FROM runs WHERE ended_at IS NULL"))
