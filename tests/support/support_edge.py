"""The whole HTTP edge over a real store and a scripted engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from fake_engine import FakeEngine
from fastapi import FastAPI
from support_http import served

from hobnob.server.app import Parts, build_app, routers
from hobnob.server.changes import Changes
from hobnob.server.lifecycle import Lifecycle
from hobnob.server.requests import RunSettings
from hobnob.server.runs import Runs
from hobnob.server.security import Policy
from hobnob.server.served import ServedModel
from hobnob.server.status import Identity, StatusReport
from hobnob.server.tally import Tally
from hobnob.server.temporary import Temporary
from hobnob.server.wire import API
from hobnob.store.store import Store, utc_ms

KEY = "test-key"
MODEL = ServedModel("tiny.gguf", "/models/tiny.gguf", 1_700_000_000)
PATIENCE_SECONDS = 10
"""Only a failing test waits for as long."""


@dataclass(slots=True)
class Edge:
    app: FastAPI
    parts: Parts
    engine: FakeEngine
    runs: Runs
    store: Store
    lifecycle: Lifecycle
    url: str
    client: httpx.AsyncClient

    async def call(self, method: str, path: str, **fields: Any) -> httpx.Response:
        """A native route."""
        return await self.client.request(method, f"{API}{path}", **fields)

    async def chat(self, text: str = "hi", **fields: Any) -> httpx.Response:
        messages = [{"role": "user", "content": text}]
        body = {"model": "default", "messages": messages, **fields}
        return await self.client.post("/v1/chat/completions", json=body)

    async def raw(self, path: str, content: bytes) -> httpx.Response:
        return await self.client.post(
            path, content=content, headers={"content-type": "application/json"}
        )

    async def send(self, text: str = "hi", conversation: str = "new", **fields: Any) -> Any:
        path = f"/conversations/{conversation}/messages"
        answer = await self.call("POST", path, json={"text": text, **fields})
        assert answer.status_code == 202, answer.text
        return answer.json()

    def routes(self) -> list[tuple[str, str]]:
        """Method and path of everything that is served."""
        found = [route for router in routers(self.parts) for route in router.routes]
        pairs = [(method, route.path) for route in found for method in route.methods]  # type: ignore[attr-defined]
        assert len(pairs) > 20
        return pairs

    async def until(self, condition: Any) -> None:
        """Waits for something that the server does by itself; bounded."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():
                await asyncio.sleep(0.005)


@asynccontextmanager
async def edge_at(
    path: Path,
    engine: FakeEngine | None = None,
    *,
    playing: bool = True,
    sockets: bool = True,
    **settings: Any,
) -> AsyncIterator[Edge]:
    """`playing`: the engine works by itself. Without `sockets` a reply arrives as a whole."""
    engine = engine or FakeEngine()
    store = await Store.open(path / "hobnob.db")
    lifecycle = Lifecycle()
    runs = Runs(store, engine, RunSettings(model=MODEL.id, **settings), now_ms=utc_ms)
    await runs.start()
    temporary = Temporary(store, runs)
    await temporary.adopt()
    deleting = asyncio.create_task(temporary.run())
    player = asyncio.create_task(engine.autoplay()) if playing else None
    identity = Identity("http://here", await store.instance(), True, MODEL, False, ["8 streams"])
    parts = Parts(
        store=store,
        engine=engine,
        runs=runs,
        changes=Changes(store),
        temporary=temporary,
        lifecycle=lifecycle,
        policy=Policy(keys=(KEY.encode(),)),
        model=MODEL,
        report=StatusReport(identity, engine, runs, lifecycle),
        models=lambda: [{"id": MODEL.id, "path": MODEL.path}],
        tally=Tally(engine),
    )
    app = build_app(parts)
    headers = {"authorization": f"Bearer {KEY}"}
    try:
        async with AsyncExitStack() as stack:
            transport = None if sockets else httpx.ASGITransport(app)
            url = await stack.enter_async_context(served(app)) if sockets else "http://localhost"
            client = httpx.AsyncClient(
                base_url=url, headers=headers, transport=transport, trust_env=False
            )
            await stack.enter_async_context(client)
            yield Edge(app, parts, engine, runs, store, lifecycle, url, client)
    finally:
        deleting.cancel()
        await asyncio.wait([deleting])
        if player is not None:
            player.cancel()
            await asyncio.wait([player])
        await runs.stop()
        await store.close()


def sse(text: str) -> list[dict[str, str]]:
    """The blocks of an event stream as their fields, comments left out."""
    blocks = []
    for block in text.split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        if lines:
            blocks.append(dict(line.split(": ", 1) for line in lines))
    return blocks
