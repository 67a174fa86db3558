"""A scripted server: the native API over a bare socket, so that tests decide each byte.

Everything it serves by default is one conversation with one run, whose log is `events`. An
answer put into `scripts` under a path is acted out once, in order, in place of the default.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from hobnob.server import wire
from hobnob.server.wire import API, Event

RUN, CONVERSATION, MESSAGE, REPLY = "run1", "conversation1", "message1", "reply1"
KEY = "test-key"


@dataclass
class Request:
    method: str
    path: str  # without the API prefix and the query
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Act = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


def reply_events(*texts: str, status: str = wire.Status.COMPLETED, **stop: Any) -> list[Event]:
    """The whole log of a run that says `texts`, one delta each."""
    reason = {
        wire.Status.COMPLETED: wire.StopReason.END_TURN,
        wire.Status.LENGTH: wire.StopReason.MAX_TOKENS,
        wire.Status.CANCELLED: wire.StopReason.CANCELLED,
    }.get(status, wire.StopReason.ERROR)
    payloads: list[wire.Payload] = [
        wire.Context(prompt_tokens=10, n_ctx=2048, included=1),
        wire.MessageStart(RUN, CONVERSATION, REPLY, "fake-model", seed=7),
        wire.BlockStart(0),
        *(wire.BlockDelta(0, text) for text in texts),
        wire.BlockStop(0),
        wire.MessageDelta(reason, usage=wire.Usage(10, 0, len(texts))),
        wire.MessageStop(status, reason, **stop),
    ]
    return [Event(n, payload) for n, payload in enumerate(payloads, start=1)]


def http(status: int, body: bytes = b"", **headers: str) -> bytes:
    head = {"Content-Length": str(len(body)), "Content-Type": "application/json"}
    head |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    return f"HTTP/1.1 {status} Whatever\r\n{lines}\r\n".encode() + body


def refusal(status: int, code: str, message: str = "No.", **headers: str) -> bytes:
    return http(
        status, json.dumps({"error": {"code": code, "message": message}}).encode(), **headers
    )


def body_of(events: Iterable[Event]) -> bytes:
    return "".join(wire.sse(event) for event in events).encode()


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def says(raw: bytes) -> Act:
    """Writes these bytes and closes."""

    async def act(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(raw)

    return act


def streams(body: bytes, *, complete: bool = True) -> Act:
    """An event stream with this body; incomplete: the chunked encoding is cut off."""
    return says(STREAM_HEAD + chunk(body) + (b"0\r\n\r\n" if complete else b""))


async def hangs_up(request: Request, writer: asyncio.StreamWriter) -> None:
    """Takes the request and closes without a word."""


async def hangs(request: Request, writer: asyncio.StreamWriter) -> None:
    """Takes the request and says nothing until the client leaves."""
    await asyncio.Event().wait()


@dataclass
class FakeServer:
    events: list[Event] = field(default_factory=lambda: reply_events("Hello", " world."))
    text: str | None = None  # of the stored reply; None: the joined deltas
    scripts: dict[str, list[Act]] = field(default_factory=lambda: defaultdict(list))
    requests: list[Request] = field(default_factory=list)
    cancelled: bool = False
    conversations: list[dict[str, Any]] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    status: dict[str, Any] = field(default_factory=dict)  # more of what `/status` answers
    host: str = "127.0.0.1"
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def asked(self, method: str, path: str) -> list[Request]:
        return [one for one in self.requests if (one.method, one.path) == (method, path)]

    @property
    def resumed_from(self) -> list[int]:
        """The Last-Event-IDs of the stream's requests, 0 where there was none."""
        asked = self.asked("GET", f"/runs/{RUN}/events")
        return [int(one.headers.get("last-event-id", 0)) for one in asked]

    @asynccontextmanager
    async def running(self) -> Any:
        server = await asyncio.start_server(self._connected, self.host, self.port)
        self.port = server.sockets[0].getsockname()[1]
        self._tasks: set[asyncio.Task[None]] = set()
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (request := await _read(reader)) is not None:
            self.requests.append(request)
            script = self.scripts[request.path]
            if script:
                act = script.pop(0)
                gone = asyncio.ensure_future(reader.read())
                acting = asyncio.ensure_future(act(request, writer))
                await asyncio.wait({gone, acting}, return_when=asyncio.FIRST_COMPLETED)
                gone.cancel()
                acting.cancel()
                await writer.drain()
                return
            await self._answer(request, writer)
            await writer.drain()

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        if request.headers.get("authorization") != f"Bearer {KEY}":
            writer.write(refusal(401, "unauthorized", "A valid key is needed."))
            return
        path, parts = request.path, request.path.strip("/").split("/")
        if path == f"/runs/{RUN}/events":
            writer.write(self.stream_from(int(request.headers.get("last-event-id", 0))))
            return
        if parts[-1] == "cancel":
            self.cancelled = True
        body = self._json(request, parts)
        if body is None:
            writer.write(refusal(404, "not_found", "There is nothing at this address."))
        else:
            writer.write(http(202 if request.method == "POST" else 200, json.dumps(body).encode()))

    def stream_from(self, after: int) -> bytes:
        """The default answer to GET …/events, whole."""
        return STREAM_HEAD + chunk(self.body_from(after)) + b"0\r\n\r\n"

    def body_from(self, after: int) -> bytes:
        """Its body alone."""
        return body_of(event for event in self.events if (event.seq or 0) > after)

    def _json(self, request: Request, parts: list[str]) -> Any:
        match request.method, parts:
            case "GET", ["health"]:
                return {"state": "ready", "wire": wire.WIRE_VERSION, "instance": "fake"}
            case "GET", ["status"]:
                model = {"id": "fake-model", "path": "/models/fake.gguf", "n_ctx": 2048}
                return {"server": {"pid": 1, "url": self.url}, "model": model, **self.status}
            case "GET", ["models"]:
                return {"models": [{"id": "fake-model", "path": "/models/fake.gguf"}]}
            case "GET", ["conversations"]:
                found = self.conversations
                if (pinned := request.query.get("pinned")) is not None:
                    found = [one for one in found if one.get("pinned", False) == (pinned == "true")]
                if (title := request.query.get("title")) is not None:
                    found = [one for one in found if one.get("title") == title]
                return {"conversations": found}
            case "GET", ["messages", id]:
                return next((one for one in self.messages if one["id"] == id), None)
            case "GET", ["search"]:
                hit = {"conversation": CONVERSATION, "message": REPLY, "snippet": "a \x02hit\x03"}
                return {"hits": [hit]}
            case "POST", ["conversations", _, "messages" | "replies"]:
                return self._turn()
            case "GET", ["conversations", id, "messages"]:
                return {
                    "conversation": self._conversation(id),
                    "messages": self.messages or [self._reply()],
                    "siblings": {},
                }
            case "GET", ["conversations", id]:
                return self._conversation(id)
            case "PATCH", ["conversations", id]:
                found = self._conversation(id)
                found.update(request.json, change=found.get("change", 0) + 1)
                return found
            case "DELETE", ["conversations", id]:
                self.deleted.append(id)
                return {}
            case _, ["runs", id, *_] if id == RUN:
                return self._run()
        return None

    def _conversation(self, id: str) -> dict[str, Any]:
        for one in self.conversations:
            if one["id"].startswith(id):
                return one
        return {"id": CONVERSATION, "title": "A title"}

    def _run(self) -> dict[str, Any]:
        stop = self.events[-1].payload
        status = stop.status if isinstance(stop, wire.MessageStop) else wire.Status.RUNNING
        return {"id": RUN, "conversation": CONVERSATION, "message": REPLY, "status": status}

    def _reply(self) -> dict[str, Any]:
        deltas = [e.payload.text for e in self.events if isinstance(e.payload, wire.BlockDelta)]
        text = "".join(deltas) if self.text is None else self.text
        stop = self.events[-1].payload
        done = isinstance(stop, wire.MessageStop)
        return {
            "id": REPLY,
            "role": "assistant",
            "text": text,
            "status": stop.status if done else wire.Status.RUNNING,
            "stop_reason": stop.stop_reason if done else None,
            "run": RUN,
        }

    def _turn(self) -> dict[str, Any]:
        return {
            "conversation": self._conversation(CONVERSATION),
            "message": {"id": MESSAGE, "role": "user"},
            "reply": {"id": REPLY, "role": "assistant", "status": wire.Status.RUNNING},
            "run": self._run(),
        }


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    method, target, _ = first.split(" ")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    parts = urlsplit(target)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    return Request(method, parts.path.removeprefix(API), query, headers, body)


async def asked(server: FakeServer, method: str, path: str, times: int = 1) -> None:
    """Wait for a request, or several of a kind."""
    async with asyncio.timeout(30):
        while len(server.asked(method, path)) < times:
            await asyncio.sleep(0.01)
