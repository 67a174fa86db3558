"""How events leave as server-sent events, and how a waiting request learns that its client left.

FastAPI's event-stream response and formatting, but not its generator routes: those fail with a
traceback when a client leaves while it is being sent to, and their keep-alive is a block of its
own, which some clients take for an empty event. One response serves both APIs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from fastapi.sse import EventSourceResponse, format_sse_event
from starlette.types import Receive, Scope, Send

from hobnob.server import wire

PING_SECONDS = 10.0
"""Longest silence on a stream, through queueing and reading of the prompt too."""
PING = ": ping\n"
"""One line, no blank one after it: it joins the next event's block. As a block of its own it is
an empty event to some clients when the one before had an id; the OpenAI client fails on it."""
RETRY_MS = 1000
"""What an EventSource waits before it reconnects."""

HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class ClientGone(Exception):
    """The client closed its connection before the reply was ready."""


class Source(Protocol[T_co]):
    """A reader of a log, or of anything else that goes on and on."""

    async def next_within(self, seconds: float) -> T_co | None:
        """The next one, or None when none came in time. StopAsyncIteration at the end."""


async def rendered(
    reader: Source[T], render: Callable[[T], str], *, ping_s: float | None = None
) -> AsyncGenerator[str, None]:
    """What `render` makes of each event, and a keep-alive whenever nothing went out for so long.

    An event may come to nothing, so the silence is counted here and not by the reader.
    """
    clock = asyncio.get_running_loop().time
    patience_s = PING_SECONDS if ping_s is None else ping_s
    due = clock() + patience_s
    while True:
        try:
            event = await reader.next_within(max(0.0, due - clock()))
        except StopAsyncIteration:
            return
        text = render(event) if event is not None else ""
        if text or clock() >= due:
            yield text or PING
            due = clock() + patience_s


def native(
    reader: Source[wire.Event | wire.Change], *, ping_s: float | None = None
) -> AsyncGenerator[str, None]:
    """The native stream. `retry:` travels inside the first event, not in a block of its own."""
    first = True

    def render(event: wire.Event | wire.Change) -> str:
        nonlocal first
        retry, first = (RETRY_MS if first else None), False
        block = format_sse_event(
            data_str=wire.dump(event.payload),
            event=event.payload.TYPE,
            id=None if event.seq is None else str(event.seq),
            retry=retry,
        )
        return block.decode("ascii")

    return rendered(reader, render, ping_s=ping_s)


class EventStream(EventSourceResponse):
    """Sends ready-made blocks until they end or the client leaves, which it notices at once.

    `on_close` is called once, however it ends. It is not the generator's business: one that was
    never begun runs no `finally`.
    """

    def __init__(
        self, blocks: AsyncGenerator[str, None], *, on_close: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(blocks, headers=HEADERS)
        self._blocks = blocks
        self._on_close = on_close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await unless_gone(receive, self.stream_response(send))
        except ClientGone:
            return
        finally:
            self._on_close()
            await self._blocks.aclose()


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


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel what is not done and wait for it, so that nothing runs on unseen."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()
