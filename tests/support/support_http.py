"""A real uvicorn on a loopback port, in the test's own loop, for tests where sockets matter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import ASGIApp

from hobnob.server import listener


@asynccontextmanager
async def served(app: ASGIApp) -> AsyncIterator[str]:
    """Yields the base URL. Leaving it ends the server and every connection."""
    socket = listener.bind("127.0.0.1", 0, or_any=False)
    listening = asyncio.Event()
    server = listener.EdgeServer(app, on_listening=listening.set)
    serving = asyncio.create_task(server.serve(sockets=[socket]))
    try:
        await listening.wait()
        yield listener.url_of(socket)[2]
    finally:
        server.should_exit = True
        server.let_go()
        await serving
