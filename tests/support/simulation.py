"""The server's core through one seeded history of faults; the same seed gives the same history.

Real: the registry of runs, dispatch, journal, recovery, and the store's SQL. Scripted: the engine.
Simulated: the clock, the disk, the death of processes. After every move the promises of
docs/durability.md are checked on what clients were shown and what is committed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from fake_engine import FakeEngine
from simulated_database import SimulatedDatabase, scalar
from virtual_loop import VirtualLoop

from hobnob.server import wire
from hobnob.server.engine.protocol import ChatMessage, Finish, Output, Submit
from hobnob.server.engine.state import EngineState
from hobnob.server.errors import Gone, HobnobError, Internal
from hobnob.server.live import LiveRun
from hobnob.server.log import Reader
from hobnob.server.requests import CompletionRequest, ReplyRequest, RunSettings, TurnRequest
from hobnob.server.runs import Runs
from hobnob.store import rows
from hobnob.store.store import Store
from hobnob.store.values import StoreError, Turn, WriteFailed

OWNER = "local"
MOVES = 45
LIVES = 3
PIECES = ["the ", "", "größte ", "🦊", "", "\r\n", '{"a": ', "1}", "", "over", "\u2028", "é"]
"""An empty piece is a token whose text is held back until a later one."""
MOVE_WEIGHTS = {
    "send": 10,
    "repeat": 2,
    "complete": 2,
    "abandon": 1,
    "step": 34,
    "progress": 3,
    "engine": 14,
    "fault": 0.5,
    "disk": 2.5,
    "hang": 1,
    "answers": 1,
    "doom": 1.5,
    "clock": 1,
    "wait": 2,
    "cancel": 1.5,
    "delete": 1,
    "cut": 3,
    "pull": 25,
}
MAY_FAIL = {"engine_failed", "interrupted", "queue_timeout", "decode_failed", "model_unavailable"}


class SimulatedStore(Store):
    """An append can be committed and still be reported as failed."""

    lost_answers = 0.0
    dice: random.Random

    async def append(self, batch: Any) -> list[str]:
        passed_over = await super().append(batch)
        if self.dice.random() < self.lost_answers:
            raise WriteFailed("The answer got lost.")
        return passed_over


class CheckedEngine(FakeEngine):
    """Looks, when it is given a run, whether the message it answers is committed."""

    def __init__(self, script: list[str], database: SimulatedDatabase, *, loading: bool):
        super().__init__(script, loading=loading)
        self._database = database

    def submit(self, submit: Submit) -> None:
        known = scalar(
            self._database.conn,
            "SELECT count(*) FROM runs r JOIN messages m ON m.n = r.message"
            " JOIN messages u ON u.n = m.parent WHERE r.id = ? AND u.role = 'user' AND u.n < m.n",
            submit.run,
        ) or self._database.was_deleted(submit.run)
        assert known or submit.run.startswith("run_"), "generated before committed"
        super().submit(submit)


@dataclass
class Client:
    """Sends one message, perhaps more than once, and reads its reply through cuts."""

    text: str
    request: TurnRequest | ReplyRequest
    turn: Turn | None = None
    deleting: bool = False
    events: list[wire.Event] = field(default_factory=list)
    reader: Reader | None = None
    warned: bool = False  # told by `not_saved`, on some connection of this life

    @property
    def run(self) -> str:
        assert self.turn is not None
        return self.turn.run.id


class Simulation:
    def __init__(self, seed: int):
        self.seed = seed
        self.dice = random.Random(seed)
        self.script = self.dice.choices(PIECES, k=self.dice.randint(1, 14))
        self.database = SimulatedDatabase(self.dice)
        self.clients: list[Client] = []
        self.completions: list[tuple[LiveRun, Reader]] = []
        self.deleted: set[str] = set()  # conversations, from the wish on
        self.trace: list[str] = []
        self.now = 1_000.0
        self.clock_step_ms = 0
        self.changes = 0
        self.faults: list[dict[str, Any]] = []

    def run(self) -> list[str]:
        """Raises AssertionError where a promise is broken; returns what happened."""
        ids = iter(f"{n:020x}" for n in range(1_000_000))
        with mock.patch.object(rows, "new_id", lambda: next(ids)):
            try:
                for number in range(LIVES):
                    self._in_a_loop(self._live)
                    self._after_death()
                    self.note(f"life {number} is over")
                self._in_a_loop(self._last_life)
            finally:
                self.database.dispose()
        return self.trace

    def note(self, what: str) -> None:
        self.trace.append(f"{self.now:.3f} {what}")

    # ---- lives

    def _in_a_loop(self, life: Callable[[], Awaitable[None]]) -> None:
        loop = VirtualLoop(self.now)
        loop.set_exception_handler(lambda _, context: self.faults.append(context))
        try:
            loop.run_until_complete(life())
        finally:
            self.database.dead = True  # whatever still runs may not write any more
            for task in (tasks := asyncio.all_tasks(loop)):
                task.cancel()
            if tasks:
                loop.run_until_complete(asyncio.wait(tasks, timeout=1))
            self.now = loop.now
            loop.close()
        assert not self.faults, self.faults

    async def _live(self) -> None:
        if not await self._start(loading=self.dice.random() < 0.3, doomed=self.dice.random() < 0.1):
            return
        for _ in range(self.dice.randint(1, MOVES)):
            await self._move()
            for _ in range(self.dice.choice([0, 0, 1, 4])):
                await asyncio.sleep(0)
            self.now = asyncio.get_running_loop().time()
            if self.database.dead:
                self.note("died after a commit")
                return
            self._check_counters()
        if self.dice.random() < 0.4:
            self.note("stops")
            await self.runs.stop()
        else:
            self.note("is killed")

    async def _start(self, *, loading: bool, doomed: bool) -> bool:
        """False: it died while it started."""
        self.database.revive()
        self.engine = CheckedEngine(self.script, self.database, loading=loading)
        database: Any = self.database
        self.store = SimulatedStore(database, self._now_ms, int(self.now * 1000))
        self.store.dice = self.dice
        settings = RunSettings(
            model="sim",
            store_retry_s=0.5,
            finished_kept=self.dice.choice([0, 1, 64]),
            max_running=4,
            max_waiting=6,
            queue_timeout_s=self.dice.choice([0.0, 60.0, 300.0]),
        )
        self.runs = Runs(
            self.store, self.engine, settings, now_ms=self._now_ms, choose_seed=lambda: 7
        )
        if doomed:
            self.database.dies_in = self.dice.randint(1, 3)
        self.now += self.dice.choice([0.0, 1.0, 30.0, 700.0])  # nobody was there
        asyncio.get_running_loop().now = self.now  # type: ignore[attr-defined]
        starting = asyncio.ensure_future(self.runs.start())
        await asyncio.wait([starting, self.database.death], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
        return not self.database.dead

    def _now_ms(self) -> int:
        return int(self.now * 1000) + self.clock_step_ms

    def _after_death(self) -> None:
        """What was shown and not saved is lost, and only that; everybody has to come back."""
        for client in self.clients:
            client.reader = None
            if client.turn is None or client.deleting:
                continue
            saved = self._logged(client.run)
            kept = [event for event in client.events if (event.seq or 0) in saved]
            assert client.warned or kept == client.events, f"{client.run} lost what was shown"
            client.events = kept
            client.warned = False
        self.completions.clear()

    async def _last_life(self) -> None:
        """Everything works: every run comes to its one end."""
        assert await self._start(loading=False, doomed=False)
        for client in self.clients:
            if client.turn is None and not client.deleting:
                await self._send(client)
        for _ in range(1000):
            self.engine.finish_all()
            await asyncio.sleep(0.05)
            if self.runs.live_count == 0 and self._in_flight() == 0:
                break
        assert self.runs.live_count == 0 and self._in_flight() == 0, "a run never ends"
        for client in self.clients:
            if client.turn is not None and not client.deleting:
                await self._check_end(client)
        self._check_stored()
        await self.runs.stop()

    # ---- moves

    async def _move(self) -> None:
        (move,) = self.dice.choices(list(MOVE_WEIGHTS), list(MOVE_WEIGHTS.values()))
        await getattr(self, f"_move_{move}")()

    async def _move_send(self) -> None:
        self._spawn(self._send(self._new_client()))

    async def _move_repeat(self) -> None:
        if self.clients:
            self._spawn(self._send(self.dice.choice(self.clients)))  # the same key again

    async def _move_complete(self) -> None:
        self._spawn(self._complete())

    async def _move_abandon(self) -> None:
        if self.completions:
            self.runs.abandon(self.completions.pop()[0])

    async def _move_step(self) -> None:
        names = list(self.engine.runs)
        if names and self.engine.status.state is EngineState.READY:
            chosen = self.dice.sample(names, self.dice.randint(1, len(names)))
            self.note(f"step of {len(chosen)}")
            self.engine.step(*chosen)

    async def _move_progress(self) -> None:
        names = list(self.engine.runs)
        if names:
            name = self.dice.choice(names)
            self.engine.queue(name, 1, 2.0)
            self.engine.prefill(name, 1, 2)

    async def _move_engine(self) -> None:
        """It dies, and comes back some moves later; seldom it fails for good."""
        state, engine = self.engine.status.state, self.engine
        if state is EngineState.FAILED:
            return
        if state is not EngineState.READY:
            if self.dice.random() < 0.05:
                self.note("engine cannot load")
                engine.fail()
            else:
                self.note("engine is ready")
                engine.get_ready()
        elif self.dice.random() < 0.3:
            self.note("engine dies")
            engine.die("The engine was ended by SIGKILL.")

    async def _move_fault(self) -> None:
        """A fault of one run's own."""
        names = list(self.engine.runs)
        if names:
            finish = Finish("error", error_code="decode_failed", error="A step failed.")
            self.engine.report(Output(self.dice.choice(names), [], "", finish=finish))

    async def _move_disk(self) -> None:
        self.database.full = not self.database.full
        self.note(f"disk full: {self.database.full}")

    async def _move_hang(self) -> None:
        self.database.hang(self.dice.choice([0.1, 3.0, 60.0]))
        self.note("disk hangs")

    async def _move_answers(self) -> None:
        self.store.lost_answers = self.dice.choice([0.0, 0.5])

    async def _move_doom(self) -> None:
        self.database.dies_in = self.dice.randint(1, 5)

    async def _move_clock(self) -> None:
        self.clock_step_ms = self.dice.choice([0, -3_600_000, 86_400_000])

    async def _move_wait(self) -> None:
        await asyncio.sleep(self.dice.choice([0.6, 5.0, 400.0]))

    async def _move_cancel(self) -> None:
        if self.clients:
            self._spawn(self._cancel(self.dice.choice(self.clients)))

    async def _move_delete(self) -> None:
        if self.clients:
            self._spawn(self._delete(self.dice.choice(self.clients)))

    async def _move_cut(self) -> None:
        if self.clients:
            self.dice.choice(self.clients).reader = None  # its connection is cut

    async def _move_pull(self) -> None:
        if not self.clients:
            return
        client, count = self.dice.choice(self.clients), self.dice.randint(1, 8)
        pulling = asyncio.ensure_future(self._pull(client, count))
        await asyncio.wait([pulling, self.database.death], return_when=asyncio.FIRST_COMPLETED)
        if pulling.done():
            pulling.result()

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(lambda done: None if done.cancelled() else done.result())

    def _new_client(self) -> Client:
        number = len(self.clients)
        known = [c.turn for c in self.clients if c.turn is not None and not c.deleting]
        text, key = f"message {number}", f"key {number}"
        request: TurnRequest | ReplyRequest
        if known and self.dice.random() < 0.2:
            turn = self.dice.choice(known)
            request = ReplyRequest(
                OWNER, turn.conversation.id, turn.message.id, idempotency_key=key
            )
        else:
            place = self.dice.choice([None, *(turn.conversation.id for turn in known)])
            request = TurnRequest(OWNER, place, text, idempotency_key=key)
        client = Client(text, request)
        self.clients.append(client)
        return client

    async def _send(self, client: Client) -> None:
        """With the same key, however often: one turn."""
        if client.deleting:
            return
        request = client.request
        try:
            if isinstance(request, TurnRequest):
                turn = await self.runs.accept(request)
            else:
                turn = await self.runs.accept_reply(request)
        except Internal:
            raise
        except (HobnobError, StoreError) as error:
            self.note(f"refused: {type(error).__name__}")
            return
        if client.deleting:
            return  # the key went with its conversation
        assert client.turn is None or client.turn.run.id == turn.run.id, "one key, two runs"
        if client.turn is None:
            self.note(f"accepted {turn.run.id}")
        client.turn = turn
        if turn.conversation.id in self.deleted:
            client.deleting = True

    async def _complete(self) -> None:
        with suppress(HobnobError):
            live = await self.runs.complete(CompletionRequest(OWNER, [ChatMessage("user", "hi")]))
            self.completions.append((live, live.read()))

    async def _cancel(self, client: Client) -> None:
        if client.turn is None or client.deleting:
            return
        with suppress(StoreError):
            await self.runs.cancel(OWNER, client.run)

    async def _delete(self, client: Client) -> None:
        """As the route does it."""
        if client.turn is None:
            return
        conversation = client.turn.conversation.id
        for other in self.clients:
            place = getattr(other.request, "conversation", None)
            same = other.turn is not None and other.turn.conversation.id == conversation
            if same or place == conversation:
                other.deleting = True
        self.note(f"deletes {conversation}")
        self.deleted.add(conversation)
        try:
            await self.runs.cancel_conversation(OWNER, conversation)
            await self.store.delete_conversation(OWNER, conversation)
        except StoreError as error:
            self.note(f"not deleted: {type(error).__name__}")
            return
        await self.runs.cancel_conversation(OWNER, conversation)

    async def _pull(self, client: Client, at_most: int) -> None:
        """Reads on, and looks at once whether what is shown is committed."""
        if client.turn is None or client.deleting:
            return
        try:
            if client.reader is None:
                client.reader = await self.runs.follow(OWNER, client.run, len(client.events))
            for _ in range(at_most):
                event = await client.reader.next_within(0.0001)
                if event is None or client.deleting:
                    return
                self._shown(client, event)
        except StopAsyncIteration:
            client.reader = None
        except Internal:
            raise
        except (Gone, StoreError) as error:
            raise AssertionError(f"{client.run} cannot be read: {error}") from error

    def _shown(self, client: Client, event: wire.Event) -> None:
        if isinstance(event.payload, wire.NotSaved):
            client.warned = True
        if event.seq is None:
            return
        assert event.seq == len(client.events) + 1, f"{client.run}: {event.seq} after a gap"
        assert not any(isinstance(e.payload, wire.MessageStop) for e in client.events)
        client.events.append(event)
        if not client.warned:
            logged = self._logged(client.run, event.seq).get(event.seq)
            assert logged == event, f"{client.run}: {event.seq} was shown before it was logged"

    # ---- promises

    def _logged(self, run: str, only: int | None = None) -> dict[int, wire.Event]:
        found = self.database.conn.execute(
            "SELECT seq, type, data FROM run_events WHERE run = (SELECT n FROM runs WHERE id = ?)"
            " AND seq BETWEEN ? AND ?",
            (run, only or 0, only or 1_000_000),
        )
        return {
            seq: wire.Event(seq, payload)
            for seq, type_, data in found
            if (payload := wire.load(type_, data)) is not None
        }

    def _in_flight(self) -> int:
        sql = "SELECT count(*) FROM runs WHERE ended_at IS NULL"
        return int(scalar(self.database.conn, sql))

    def _check_counters(self) -> None:
        change = scalar(self.database.conn, "SELECT value FROM meta WHERE key = 'change'")
        assert change >= self.changes, "a change number fell"
        self.changes = change

    async def _check_end(self, client: Client) -> None:
        async with asyncio.timeout(60):
            while not any(isinstance(e.payload, wire.MessageStop) for e in client.events):
                await self._pull(client, 100)
                await asyncio.sleep(0.1)  # committed, and on its way to be shown
        events = client.events
        stop = events[-1].payload
        assert isinstance(stop, wire.MessageStop) and stop.status in wire.Status.TERMINAL
        assert stop.error is None or stop.error.code in MAY_FAIL, stop
        text = "".join(e.payload.text for e in events if isinstance(e.payload, wire.BlockDelta))
        whole = "".join(self.script)
        assert whole.startswith(text) and (stop.status != "completed" or text == whole)
        assert client.turn is not None
        reply = await self.store.message(OWNER, client.turn.reply.id)
        assert (reply.text, reply.status) == (text, stop.status), "stored is not what was shown"
        assert list(self._logged(client.run).values()) == events
        assert (await self.store.run(OWNER, client.run)).prompt == []

    def _check_stored(self) -> None:
        conn = self.database.conn
        assert scalar(conn, "SELECT count(*) FROM messages WHERE n <= parent") == 0
        twice = "SELECT count(*) FROM (SELECT 1 FROM messages WHERE role = 'user'"
        assert scalar(conn, f"{twice} GROUP BY text HAVING count(*) > 1)") == 0, "stored twice"
        stops = "SELECT count(*) FROM (SELECT 1 FROM run_events WHERE type = 'message_stop'"
        assert scalar(conn, f"{stops} GROUP BY run HAVING count(*) > 1)") == 0, "ended twice"
        known = {client.text for client in self.clients}
        for (text,) in conn.execute("SELECT text FROM messages WHERE role = 'user'"):
            assert text in known
        if self.seed % 10 == 0:
            assert [row[0] for row in conn.execute("PRAGMA integrity_check")] == ["ok"]
            assert conn.execute("PRAGMA foreign_key_check").fetchall() == []
            conn.execute(
                "INSERT INTO messages_index (messages_index, rank) VALUES ('integrity-check', 1)"
            )


def simulate(seed: int) -> list[str]:
    return Simulation(seed).run()
