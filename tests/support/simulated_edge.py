"""The real application, called in memory: requests, streams, and clients that go at any moment.

The application is built once; its parts are those of the life that goes on. What an application
sends is what a server would write to the socket: a client that reads slowly holds it up, one
that has gone is written to in vain.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable
from functools import cache
from typing import Any

from fastapi import FastAPI

from hobnob.server import wire
from hobnob.server.app import Parts, build_app
from hobnob.server.changes import Changes
from hobnob.server.engine.state import EnginePort
from hobnob.server.lifecycle import Lifecycle
from hobnob.server.runs import Runs
from hobnob.server.security import Policy
from hobnob.server.served import ServedModel
from hobnob.server.status import Identity, StatusReport
from hobnob.server.tally import Tally
from hobnob.server.temporary import Temporary
from hobnob.store.store import Store
from hobnob.tui.sse import Parser, RawEvent

KEY = "simulated"
MODEL = ServedModel("sim", "/models/sim.gguf", 1_700_000_000)
ROOM = 6
"""Frames on their way to a client before the application has to wait for it."""

Part = list[tuple[bytes, bytes]]


class Present:
    """Whatever plays this part in the life that goes on."""

    def __init__(self) -> None:
        self.it: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.it, name)


class Edge:
    """One process's application and what it works with."""

    def __init__(self, store: Store, engine: EnginePort, runs: Runs, now_s: Callable[[], float]):
        self.lifecycle = Lifecycle(now_s)
        self.changes = Changes(store)
        self.runs = runs
        self._exchanges: list[Exchange] = []  # or one that waits is collected
        identity = Identity("http://here", "instance", False, MODEL, False, [])
        self._parts: dict[str, Any] = {
            "store": store,
            "engine": engine,
            "runs": runs,
            "changes": self.changes,
            "temporary": Temporary(store, runs),
            "lifecycle": self.lifecycle,
            "report": StatusReport(identity, engine, runs, self.lifecycle),
            "tally": Tally(engine),
        }

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        key: str | None = None,
        after: int | None = None,
        shown: Callable[[RawEvent], Any] | None = None,
    ) -> Exchange:
        """`shown` is asked what each event of a stream is, at the moment when it is sent."""
        app, present = _app()
        for name, part in self._parts.items():
            present[name].it = part
        headers = [(b"host", b"localhost"), (b"authorization", b"Bearer " + KEY.encode())]
        if key is not None:
            headers.append((b"idempotency-key", key.encode()))
        if after is not None:
            headers.append((b"last-event-id", str(after).encode()))
        content = b"" if body is None else json.dumps(body).encode()
        if body is not None:
            headers.append((b"content-type", b"application/json"))
            headers.append((b"content-length", str(len(content)).encode()))
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
            "state": {},
        }
        made = Exchange(app, scope, content, shown or (lambda event: event))
        self._exchanges.append(made)
        return made

    async def stop(self) -> None:
        """As serving.py does it: new work is refused, and every reader is told."""
        self.lifecycle.request_stop()
        self.changes.close(wire.StreamError("server_stopping", "The server is stopping."))
        await self.runs.stop()


@cache
def _app() -> tuple[FastAPI, dict[str, Present]]:
    names = ("store", "engine", "runs", "changes", "temporary", "lifecycle", "report", "tally")
    present = {name: Present() for name in names}
    parts: dict[str, Any] = {
        **present,
        "policy": Policy(keys=(KEY.encode(),)),
        "model": MODEL,
        "models": list,
    }
    return build_app(Parts(**parts)), present


class Exchange:
    """One request on a connection of its own, and what comes of it."""

    def __init__(
        self, app: FastAPI, scope: dict[str, Any], content: bytes, shown: Callable[[RawEvent], Any]
    ) -> None:
        self.status: int | None = None  # None: nothing was answered yet
        self.streams = False
        self.over = False  # the application has said all that it has to say
        self.gone = False  # the client is
        self._content: bytes | None = content
        self._shown = shown
        self._body = bytearray()
        self._parser = Parser()
        self._events: deque[Any] = deque()  # sent and not read
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._cut = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(app(scope, self._receive, self._send))
        self._task.add_done_callback(self._done)

    # ---- the client's side

    async def opened(self) -> int:
        """The status; of what is not a stream, once its body is there too. 0: there is none."""
        while not (self.streams or self.over):
            await self._wait()
        return self.status or 0

    @property
    def json(self) -> Any:
        return json.loads(self._body) if self._body else None

    async def next_within(self, seconds: float) -> Any:
        """The next event, or None when none comes in time. StopAsyncIteration at the end."""
        if not self._events and not self.over:
            try:
                async with asyncio.timeout(seconds):
                    while not self._events and not self.over:
                        await self._wait()
            except TimeoutError:
                return None
        if not self._events:
            raise StopAsyncIteration
        self._room.set()
        return self._events.popleft()

    def cut(self) -> None:
        """The connection is gone, with all that was on its way."""
        self.gone = True
        self._events.clear()
        self._cut.set()
        self._room.set()

    async def _wait(self) -> None:
        self._news.clear()
        await self._news.wait()

    # ---- the application's side

    async def _receive(self) -> dict[str, Any]:
        if self._content is not None:
            content, self._content = self._content, None
            return {"type": "http.request", "body": content, "more_body": False}
        await self._cut.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if self.gone:
            return
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.streams = (
                dict(message["headers"]).get(b"content-type", b"").startswith(b"text/event-stream")
            )
        elif self.streams:
            self._events.extend(self._shown(one) for one in self._parser.feed(message["body"]))
        else:
            self._body += message["body"]
        self._news.set()
        while len(self._events) > ROOM and not self.gone:
            self._room.clear()
            await self._room.wait()

    def _done(self, task: asyncio.Task[None]) -> None:
        self.over = True
        self._news.set()
        if not task.cancelled():
            task.result()  # a fault reaches the loop's handler
            assert self.gone or self.status is not None, "a request was not answered"
