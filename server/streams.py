"""How events leave as server-sent events, and how a waiting request learns that its client left.

The native stream is FastAPI's own (it sends keep-alives and headers at once); this module turns
our events into its values. `/v1` streams carry no ids and need another keep-alive, so they have a
response of their own, which also ends the run the moment the client is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, TypeVar

from fastapi.sse import ServerSentEvent
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from hobnob.server import wire

PING_SECONDS = 10.0
"""Longest silence on a `/v1` stream; FastAPI's own, on native streams, is 15 s."""
PING = b": ping\n"
"""One line, no blank one after it: it joins the next event's block. A comment with a block of
its own is read as an empty event by some clients, and the OpenAI client fails on it."""
RETRY_MS = 1000
"""What an EventSource waits before it reconnects."""

HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}

T = TypeVar("T")


class ClientGone(Exception):
    """The client closed its connection before the reply was ready."""


def native_event(event: wire.Event, *, first: bool) -> ServerSentEvent:
    """`retry:` travels inside the first event: a block of its own would be an empty event."""
    return ServerSentEvent(
        raw_data=wire.dump(event.payload),
        event=event.payload.TYPE,
        id=None if event.seq is None else str(event.seq),
        retry=RETRY_MS if first else None,
    )


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the client leaves: ClientGone then."""
    gone = asyncio.create_task(_gone(receive))
    task = asyncio.create_task(work)
    try:
        await asyncio.wait({gone, task}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGone
    finally:
        await _end(gone, task)


class CompletionStream(Response):
    """A `/v1` stream of ready-made blocks. `on_close` is called once, however it ends.

    Not the generator's own business: one that was never begun runs no `finally`.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        blocks: AsyncGenerator[str, None],
        *,
        on_close: Callable[[], None],
        ping_s: float = PING_SECONDS,
    ) -> None:
        self._blocks = blocks
        self._on_close = on_close
        self._ping_s = ping_s
        self.status_code = 200
        self.background = None
        self.body = b""
        self.init_headers(HEADERS)
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.create_task(_gone(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for chunk in self._chunks(gone):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            if not gone.done():
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._on_close()
            await _end(gone)
            await self._blocks.aclose()

    async def _chunks(self, gone: asyncio.Task[None]) -> AsyncGenerator[bytes, None]:
        """The blocks with keep-alives between them, until the end or the client's."""
        while True:
            pending = asyncio.create_task(_next(self._blocks))
            try:
                while not pending.done() and not gone.done():
                    done, _ = await asyncio.wait(
                        {pending, gone},
                        timeout=self._ping_s,
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                    if not done:
                        yield PING
                block = None if gone.done() else pending.result()
            finally:
                await _end(pending)
            if block is None:
                return
            yield block.encode("ascii")


async def _next(blocks: AsyncGenerator[str, None]) -> str | None:
    return await anext(blocks, None)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel what is not done and wait for it, so that nothing runs on unseen."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()
