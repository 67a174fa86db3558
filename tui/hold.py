"""Holding a temporary conversation, over any number of connections, so that the server keeps it.

Never gives up while the conversation may be there, and never starts a server: whoever has
something to ask does that, and finds the conversation if this takes hold of it again in time.
"""

from __future__ import annotations

import asyncio
import math

from hobnob.server import wire
from hobnob.tui.connection import Backoff, Connection, Dropped, is_busy
from hobnob.tui.notice import ClientError
from hobnob.tui.sse import EventTooLarge, Parser

SERVER_IN_TROUBLE = 500
"""And above: answers that may be others soon."""


async def hold(connection: Connection, path: str) -> None:
    """Until it is cancelled. Raises ClientError when the conversation is gone or cannot be held."""
    waits = Backoff(math.inf)
    while True:
        asked_s = None
        try:
            await _hold_once(connection, path, waits)
        except Dropped:
            pass
        except ClientError as error:
            if not is_busy(error) and (error.status or 0) < SERVER_IN_TROUBLE:
                raise
            asked_s = error.retry_after_s
        delay = waits.next(asked_s)
        assert delay is not None, "its patience has no end"
        await asyncio.sleep(delay)
        await connection.look()


async def _hold_once(connection: Connection, path: str, waits: Backoff) -> None:
    """Returns when the connection has ended."""
    parser = Parser()
    async with connection.stream(path, {}) as response:
        waits.reset()
        try:
            async for chunk in response.aiter_raw():
                for raw in parser.feed(chunk):
                    _heed(wire.load(raw.type, raw.data))
        except EventTooLarge:
            raise Dropped("the server sent an event of absurd size") from None


def _heed(payload: wire.Payload | None) -> None:
    if isinstance(payload, wire.StreamError) and payload.code == "not_found":
        raise ClientError(payload.code, payload.message, status=404)
