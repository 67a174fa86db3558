"""The server's core through one seeded history of faults; the same seed gives the same history.

Real: the application with its routes and streams, the registry of runs, dispatch, journal,
recovery, the store's SQL, the engine's handle with its frames. Scripted: what the engine process
says. Simulated: the clock, the disk, the connections, the death of processes. The promises of
docs/durability.md are checked at every frame that is sent and after every move.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any
from unittest import mock

from simulated_client import Client
from simulated_database import SimulatedDatabase
from simulated_edge import MODEL, Edge, Exchange
from simulated_promises import Promises, SimulatedStore
from simulated_worker import (
    POISON,
    UNREADABLE,
    UNTAUGHT,
    SimulatedWorker,
    no_process,
    poisoned,
)
from virtual_loop import VirtualLoop

from hobnob.server import continuing
from hobnob.server.engine.handle import Engine
from hobnob.server.engine.process import EngineProcess
from hobnob.server.engine.protocol import (
    Configure,
    Finish,
    Output,
    Place,
    PrefillProgress,
    Stepped,
    Submit,
)
from hobnob.server.engine.state import EngineState
from hobnob.server.requests import ROOT, RunSettings
from hobnob.server.runs import Runs
from hobnob.server.wire import API
from hobnob.store import rows

MOVES = 45
LIVES = [1, 2, 3]
PIECES = ["the ", "", "größte ", "🦊", "", "\r\n", '{"a": ', "1}", "", "over", "\u2028", "é"]
"""An empty piece is a token whose text is held back until a later one."""
STEP_FAILED = "A step failed."
MARKS = [""] * 40 + [POISON, UNREADABLE, UNTAUGHT]
MOVE_WEIGHTS = {
    "send": 10,
    "repeat": 2,
    "complete": 1,
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
    "wait": 3,
    "cancel": 1.5,
    "delete": 1,
    "change": 1,
    "look": 1,
    "warm": 0.5,
    "cut": 3,
    "pull": 25,
}


class Simulation:
    def __init__(self, seed: int):
        self.seed = seed
        self.dice = random.Random(seed)
        self.script = self.dice.choices(PIECES, k=self.dice.randint(1, 14))
        self.database = SimulatedDatabase(self.dice)
        self.promises = Promises(self.database, self.script)
        self.clients: list[Client] = []
        self.completions: list[Exchange] = []
        self.deleted: set[str] = set()  # conversations, from the wish on
        self.spared: set[str] = set()  # runs in the engine in the last life that are not poison
        self.trace: list[str] = []
        self.now = 1_000.0
        self.clock_step_ms = 0
        self.processes = 0
        self.faults: list[dict[str, Any]] = []

    def run(self) -> list[str]:
        """Raises AssertionError where a promise is broken; returns what happened."""
        ids = iter(f"{n:020x}" for n in range(1_000_000))
        with mock.patch.object(rows, "new_id", lambda: next(ids)):
            try:
                for number in range(self.dice.choice(LIVES)):
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
            self.now, dice = loop.now, self.dice.getstate()
            self.database.dead = True  # whatever still runs may not write any more
            for task in (tasks := asyncio.all_tasks(loop)):
                task.cancel()
            if tasks:
                loop.run_until_complete(asyncio.wait(tasks, timeout=1))
            loop.close()
            self.dice.setstate(dice)  # in which order they were cancelled is nobody's choice
        assert not self.faults, self.faults

    async def _live(self) -> None:
        if not await self._start(calm=False, doomed=self.dice.random() < 0.1):
            return
        for _ in range(self.dice.randint(1, MOVES)):
            await self._move()
            for _ in range(self.dice.choice([0, 0, 1, 4])):
                await asyncio.sleep(0)
            self.now = asyncio.get_running_loop().time()
            if self.database.dead:
                self.note("died after a commit")
                return
            self.promises.counters()
        if self.dice.random() < 0.4:
            self.note("stops")
            await self._stop()
        else:
            self.note("is killed")

    async def _start(self, *, calm: bool, doomed: bool) -> bool:
        """False: it died while it started."""
        self.database.revive()
        self.calm = calm
        self.worker: SimulatedWorker | None = None
        self.tasks: list[asyncio.Task[None]] = []  # or they are collected while they wait
        self.slow_loads = not calm and self.dice.random() < 0.3
        self.engine = Engine(Configure("/models/sim.gguf"), self._spawn_engine)
        database: Any = self.database
        self.store = SimulatedStore(database, self._now_ms, int(self.now * 1000))
        self.store.dice = self.dice
        settings = RunSettings(
            model=MODEL.id,
            store_retry_s=0.5,
            finished_kept=self.dice.choice([0, 1, 64]),
            max_running=4,
            max_waiting=6,
            queue_timeout_s=self.dice.choice([0.0, 60.0, 300.0]),
        )
        if doomed:
            self.database.dies_in = self.dice.randint(1, 3)
        self.now += self.dice.choice([0.0, 1.0, 30.0, 700.0])  # nobody was there
        loop = asyncio.get_running_loop()
        loop.now = self.now  # type: ignore[attr-defined]
        await self.engine.start()
        self.runs = Runs(
            self.store, self.engine, settings, now_ms=self._now_ms, choose_seed=lambda: 7
        )
        self.edge = Edge(self.store, self.engine, self.runs, loop.time)
        return await self._unless_it_dies(self.runs.start())

    async def _unless_it_dies(self, work: Any) -> bool:
        """Whether the work was done before the server died."""
        task = asyncio.ensure_future(work)
        await asyncio.wait([task, self.database.death], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        return not self.database.dead

    async def _spawn_engine(self) -> EngineProcess:
        if not self.calm and self.dice.random() < 0.03:
            self.note("no process can be started")
            raise no_process()
        self.processes += 1
        self.worker = SimulatedWorker(
            self.script,
            self.dice,
            self.processes,
            calm=self.calm,
            submitted=self._submitted,
        )
        if not self.calm and not self.slow_loads and self.dice.random() < 0.8:
            self.worker.load_on(3)
        return self.worker.as_process()

    def _submitted(self, submit: Submit) -> None:
        if self.calm and not poisoned(submit):
            self.spared.add(submit.run)
        if not submit.warm and not submit.run.startswith("run_"):  # those are of /v1
            self.promises.submitted(submit.run)

    def _now_ms(self) -> int:
        return int(self.now * 1000) + self.clock_step_ms

    async def _stop(self) -> None:
        """Every reader is told, nobody else is let in, and the engine goes."""
        await self.edge.stop()
        for client in self.clients:
            if client.stream is not None and not client.deleting:
                await self._pull(client, 10_000, patience_s=5.0)
                assert client.stream is None, f"{client.run}: a stream stays open"
        refused = self.edge.call("GET", f"{API}/conversations")
        assert await refused.opened() == 503 and refused.json["error"]["code"] == "server_stopping"
        await self.engine.close()

    def _after_death(self) -> None:
        """What was shown and not saved is lost, and only that; everybody has to come back."""
        for client in self.clients:
            if client.turn is not None and not client.deleting:
                saved = self.promises.logged(client.run)
                kept = [event for event in client.events if event.seq in saved]
                assert client.warned or kept == client.events, f"{client.run} lost what was shown"
                client.events = kept
            client.die_with_the_server()
        self.completions.clear()

    async def _last_life(self) -> None:
        """Everything works, but what is poison: every run comes to its one end."""
        assert await self._start(calm=True, doomed=False)
        for _ in range(2):  # what waits for a reply that is being written is accepted after it
            for client in self.clients:
                if client.turn is None and not client.deleting:
                    await self._send(client, hasty=False)
            await self._finish_all()
        for client in self._known():
            await self._check_end(client)
        texts = {client.text for client in self.clients}
        self.promises.stored(texts, thoroughly=self.seed % 10 == 0)
        await self._stop()

    async def _finish_all(self) -> None:
        for patience_s in [0.05] * 50 + [5.0] * 200:
            while names := self._in_engine():
                self._the_worker.step(names)
            await asyncio.sleep(patience_s)
            if self.runs.live_count == 0 and self.promises.in_flight == 0:
                return
        raise AssertionError("a run never ends")

    async def _check_end(self, client: Client) -> None:
        async with asyncio.timeout(60):
            while client.stop is None:
                await self._pull(client, 100)
                await asyncio.sleep(0.1)  # committed, and on its way to be shown
        await self.promises.end(client, self.store)
        if client.run in self.spared:
            ends_by_it = client.stop.error is not None and client.stop.error.code == "engine_failed"
            assert not ends_by_it, f"{client.run} ends for what another one did"

    # ---- moves: the engine

    async def _move(self) -> None:
        (move,) = self.dice.choices(list(MOVE_WEIGHTS), list(MOVE_WEIGHTS.values()))
        await getattr(self, f"_move_{move}")()

    def _in_engine(self) -> list[str]:
        """Runs that it has taken up; none while it cannot step."""
        worker = self.worker
        if worker is None or worker.hangs or not worker.ready:
            return []
        worker.drain()
        return list(worker.runs)

    @property
    def _the_worker(self) -> SimulatedWorker:
        assert self.worker is not None
        return self.worker

    async def _move_step(self) -> None:
        names = self._in_engine()
        if names:
            chosen = self.dice.sample(names, self.dice.randint(1, len(names)))
            self.note(f"step of {len(chosen)}")
            self._the_worker.step(chosen)

    async def _move_progress(self) -> None:
        names = self._in_engine()
        if names:
            name = self.dice.choice(names)
            self._the_worker.say(Stepped(places=[Place(name, 1, 2.0)]))
            self._the_worker.say(Stepped(prefills=[PrefillProgress(name, 1, 2, 0)]))

    async def _move_engine(self) -> None:
        """It loads on, or has a fault; without one, what it waits for comes."""
        worker = self.worker
        if self.engine.status.state is EngineState.FAILED:
            return
        if worker is None or worker.is_dead:
            await asyncio.sleep(self.dice.choice([0.0, 0.3, 2.0]))
        elif not worker.ready:
            self._load_on(worker)
        elif worker.hangs:
            await asyncio.sleep(self.dice.choice([1.0, 130.0]))
        elif self.dice.random() < 0.2:
            kinds = [
                "dies",
                "dies",
                "dies",
                "breaks off",
                "breaks off",
                "hangs",
                "is lost",
                "raves",
            ]
            self._break(worker, self.dice.choice(kinds))

    def _load_on(self, worker: SimulatedWorker) -> None:
        roll = self.dice.random()
        if roll < 0.03:
            self.note("engine cannot load")
            worker.fail_to_load()
        elif roll < 0.13:
            self._break(worker, self.dice.choice(["dies", "hangs", "raves"]))
        else:
            self.note("engine loads on")
            worker.load_on(self.dice.choice([1, 2, 3, 3]))

    def _break(self, worker: SimulatedWorker, kind: str) -> None:
        self.note(f"engine {kind}")
        match kind:
            case "dies":
                worker.die(self.dice.choice([-9, -11, 1, 0]))
            case "breaks off":
                worker.break_off(-9)
            case "hangs":
                worker.hangs = True
            case "is lost":
                worker.hangs = worker.unkillable = True
            case "raves":
                worker.talk_nonsense()

    async def _move_fault(self) -> None:
        """A fault of one run's own, or news of one that nobody knows."""
        names = self._in_engine()
        if names:
            finish = Finish("error", error_code="decode_failed", error=STEP_FAILED)
            self._the_worker.report(Output(self.dice.choice(names), [], "", finish=finish))
            self._the_worker.report(Output("nobody", [1], "x"))

    # ---- moves: the disk and the clock

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
        """Now and then for as long as a silent engine is given, or a place in the queue."""
        worker, seconds = self.worker, self.dice.choice([0.02, 0.6, 2.0, 5.0, 70.0, 130.0, 400.0])
        silent = worker is not None and worker.hangs and bool(worker.owes)
        await asyncio.sleep(seconds)
        if worker is not None and silent and seconds >= 130.0:
            assert self.engine.status.pid != worker.pid, "a silent engine stays"

    # ---- moves: clients

    async def _move_send(self) -> None:
        self._spawn(self._send(self._new_client(), hasty=self.dice.random() < 0.1))

    async def _move_repeat(self) -> None:
        if self.clients:
            self._spawn(self._send(self.dice.choice(self.clients), hasty=False))  # the same key

    async def _move_cancel(self) -> None:
        known = self._known()
        if known:
            client = self.dice.choice(known)
            self._spawn(self._ask("POST", f"{API}/runs/{client.run}/cancel", client.conversation))

    async def _move_delete(self) -> None:
        if known := self._known():
            self._spawn(self._delete(self.dice.choice(known).conversation))

    async def _move_change(self) -> None:
        """Another device sets something."""
        if known := self._known():
            place = self.dice.choice(known).conversation
            body = self.dice.choice([{"settings": {"top_k": 1}}, {"title": "T"}, {"pinned": True}])
            self._spawn(self._ask("PATCH", f"{API}/conversations/{place}", place, body))

    async def _move_warm(self) -> None:
        if known := self._known():
            place = self.dice.choice(known).conversation
            self._spawn(self._ask("POST", f"{API}/conversations/{place}/warm", place))

    async def _move_look(self) -> None:
        if known := self._known():
            await self._unless_it_dies(self._look(self.dice.choice(known)))

    async def _move_cut(self) -> None:
        if self.clients:
            self.dice.choice(self.clients).hang_up()

    async def _move_pull(self) -> None:
        if self.clients:
            client, count = self.dice.choice(self.clients), self.dice.randint(1, 8)
            await self._unless_it_dies(self._pull(client, count))

    async def _move_complete(self) -> None:
        self._spawn(self._complete(streamed=self.dice.random() < 0.7))

    async def _move_abandon(self) -> None:
        if self.completions:
            self.completions.pop().cut()

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(lambda done: None if done.cancelled() else done.result())
        self.tasks.append(task)

    def _known(self) -> list[Client]:
        """Clients whose turn was accepted and is there."""
        return [c for c in self.clients if c.turn is not None and not c.deleting]

    def _new_client(self) -> Client:
        """A message, an edited one, another reply, or the rest of one that was cut."""
        known, number = self._known(), len(self.clients)
        cut = [c for c in known if c.stop is not None and c.stop.status in continuing.CUT]
        body: dict[str, Any] = {}
        if self.dice.random() < 0.2:
            body["options"] = {"max_tokens": self.dice.randint(1, 5)}
        roll, place = self.dice.random(), None
        if cut and roll < 0.25:
            before = self.dice.choice(cut)
            place, kind, body["continue"] = before.conversation, "replies", before.reply
        elif known and roll < 0.4:
            before = self.dice.choice(known)
            place, kind, body["parent"] = before.conversation, "replies", before.message["id"]
        else:
            kind, body["text"] = "messages", f"message {number} {self.dice.choice(MARKS)}"
            before = self.dice.choice([None, *known])
            if before is not None:
                place = before.conversation
                if roll > 0.9:
                    body["parent"] = before.message["parent"] or ROOT
        path = f"{API}/conversations/{place or 'new'}/{kind}"
        client = Client(f"key-{number}", path, body, place)
        self.clients.append(client)
        return client

    async def _send(self, client: Client, *, hasty: bool) -> None:
        """With the same key, however often: one turn."""
        if client.deleting:
            return
        exchange = self.edge.call("POST", client.path, client.body, key=client.key)
        if hasty:
            await asyncio.sleep(self.dice.choice([0.0, 0.001, 0.3]))
            exchange.cut()
            self.note("left before the answer")
            return
        status, answer = await exchange.opened(), exchange.json
        if client.deleting:
            return  # the key went with its conversation
        if status != 202:
            self.note(f"refused: {answer['error']['code']}")
            self.promises.refused(
                client,
                status,
                answer["error"],
                deleted=client.place in self.deleted,
                stopping=self.edge.lifecycle.stopping,
            )
            return
        known = client.turn["run"]["id"] if client.turn is not None else answer["run"]["id"]
        assert answer["run"]["id"] == known, "one key, two runs"
        if client.turn is None:
            self.note(f"accepted {answer['run']['id']}")
        client.turn = answer
        if client.conversation in self.deleted:
            client.deleting = True

    async def _pull(self, client: Client, at_most: int, patience_s: float = 0.0001) -> None:
        """Reads on; what is sent is looked at when it is sent."""
        if client.turn is not None and not client.deleting:
            await client.read(self.edge, at_most, self.promises.shown, patience_s)

    async def _ask(self, method: str, path: str, place: str, body: Any = None) -> Any:
        """The answer, or None where the conversation is being deleted or nothing can be stored."""
        exchange = self.edge.call(method, path, body)
        status = await exchange.opened()
        if status >= 400:
            code = exchange.json["error"]["code"]
            reasons = {404: place in self.deleted, 507: method != "GET", 410: place in self.deleted}
            if status == 503:
                stopping = self.edge.lifecycle.stopping and code == "server_stopping"
                reasons[503] = stopping or path.endswith("/warm")
            assert reasons.get(status), f"{method} {path}: {status} {code}"
            return None
        return exchange.json

    async def _delete(self, conversation: str) -> None:
        for other in self.clients:
            same = other.turn is not None and other.conversation == conversation
            if same or other.place == conversation:
                other.deleting = True
        self.note(f"deletes {conversation}")
        self.deleted.add(conversation)
        await self._ask("DELETE", f"{API}/conversations/{conversation}", conversation)

    async def _look(self, client: Client) -> None:
        """The branch of a reply, as any client reads it again."""
        path = f"{API}/conversations/{client.conversation}/messages?leaf={client.reply}"
        page = await self._ask("GET", path, client.conversation)
        if page is not None and not client.deleting:
            reply = page["messages"][-1]
            assert reply["id"] == client.reply
            self.promises.answered(client, reply)

    async def _complete(self, *, streamed: bool) -> None:
        body = {
            "model": "default",
            "messages": [{"role": "user", "content": "hi"}],
            "stream": streamed,
        }
        exchange = self.edge.call("POST", "/v1/chat/completions", body)
        self.completions.append(exchange)
        status = await exchange.opened()
        if exchange.gone or status != 200:
            error = None if exchange.gone else exchange.json["error"]
            known = error is None or error["code"] != "internal" or error["message"] == STEP_FAILED
            assert known, error
        elif streamed:
            await self._read_completion(exchange)
        else:
            choice = exchange.json["choices"][0]
            whole = choice["finish_reason"] == "stop"
            self.promises.completion(choice["message"]["content"] or "", whole=whole)

    async def _read_completion(self, exchange: Exchange) -> None:
        text, whole = "", False
        try:
            while (raw := await exchange.next_within(1000.0)) is not None:
                if raw.data == "[DONE]":
                    whole = True
                    continue
                for choice in json.loads(raw.data).get("choices", []):
                    text += choice["delta"].get("content", "")
        except StopAsyncIteration:
            pass
        self.promises.completion(text, whole=whole)


def simulate(seed: int) -> list[str]:
    return Simulation(seed).run()
