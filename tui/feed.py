"""What changes in the history, by whomever, as one series over any number of connections.

Promises: each change once and in order; what was missed is made up for, or `Position` says that
the lists are to be read again. Never gives up, and never starts a server: whoever has something
to ask does that, and the feed goes on with whatever serves then.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import aclosing

from hobnob.server import wire
from hobnob.server.wire import ChangePayload
from hobnob.tui.connection import Backoff, Connection, Dropped, is_busy
from hobnob.tui.notice import ClientError, Notice, NoticeKind
from hobnob.tui.sse import EventTooLarge, Parser, RawEvent

QUIET_FAILURES = 1
"""So many tries in a row may fail before it is said: a restart is not worth a word."""


class Feed:
    """Owned by the one task that reads `items`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._last: int | None = None  # the number of the last change read
        self._waits = Backoff(math.inf)
        self._failures = 0

    async def items(self) -> AsyncGenerator[ChangePayload | Notice, None]:
        """Never ends. Raises ClientError when this server has no such feed for us."""
        while True:
            try:
                async with aclosing(self._read_once()) as items:
                    async for item in items:
                        yield item
                reason, asked_s = "the connection ended", None
            except Dropped as dropped:
                reason, asked_s = dropped.reason, None
            except ClientError as refused:
                if refused.code == "gone" and self._last is not None:
                    self._last = None
                    continue
                if not is_busy(refused):
                    raise
                reason, asked_s = refused.message.rstrip("."), refused.retry_after_s
            self._failures += 1
            delay = self._waits.next(asked_s)
            assert delay is not None, "its patience has no end"
            if self._failures > QUIET_FAILURES:
                yield Notice(NoticeKind.RECONNECTING, reason, delay)
            await asyncio.sleep(delay)
            await self._connection.look()

    async def _read_once(self) -> AsyncGenerator[ChangePayload | Notice, None]:
        """What one connection brings. Raises Dropped and ClientError."""
        headers = {} if self._last is None else {"Last-Event-ID": str(self._last)}
        parser = Parser()
        try:
            async with self._connection.stream("/changes", headers) as response:
                if self._failures > QUIET_FAILURES:
                    yield Notice(NoticeKind.CONNECTED, "connected again")
                self._failures = 0
                async for chunk in response.aiter_raw():
                    self._waits.reset()
                    for raw in parser.feed(chunk):
                        payload = self._accept(raw)
                        if payload is not None:
                            yield payload
        except EventTooLarge:
            raise Dropped("the server sent an event of absurd size") from None

    def _accept(self, raw: RawEvent) -> ChangePayload | None:
        """The change if it is new and understood; None to skip it."""
        payload = wire.load_change(raw.type, raw.data)
        if isinstance(payload, wire.StreamError):
            if payload.code == "gone":
                self._last = None
            raise Dropped(str(payload.message).rstrip("."))
        if payload is None or raw.id is None or not raw.id.isdecimal():
            return None
        number = int(raw.id)
        if self._last is not None and number <= self._last:
            return None
        self._last = number
        return payload
