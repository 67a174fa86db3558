"""One run as one gapless series of events, over any number of connections.

Promises: each numbered event once and in order; a stream that just ends is never taken as the
end of the reply; when the log is gone, the rest comes from the stored message, so that the
joined deltas are the stored text in every case. Slow is not dropped: keep-alives count as life.
A local server that dies is started again; one that was told to stop stays stopped, and is only
followed if somebody else starts it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from hobnob.server import wire
from hobnob.server.wire import Event
from hobnob.tui.connection import RESTARTED, Backoff, Connection, Dropped, is_busy
from hobnob.tui.notice import ClientError, Notice, NoticeKind
from hobnob.tui.records import Message, Run, branch, build
from hobnob.tui.sse import EventTooLarge, Parser, RawEvent

STREAM_PATIENCE_SECONDS = 120.0
"""How long a run is tried for while nothing at all is heard of it."""
STOPPED_PATIENCE_SECONDS = 30.0
"""How long we wait for somebody to start a local server again that was told to stop."""
MAX_FRUITLESS = 4
"""Connections in a row that bring a gap or an unknown error, and nothing new."""
POLL_SECONDS = 0.5

_STOPPING = "server_stopping"


class _LogGone(Exception):
    """The server cannot give (all of) the log: read the stored message."""


class Follow:
    """Owned by the one task that reads `items`."""

    def __init__(
        self,
        connection: Connection,
        run: str,
        after: int = 0,
        *,
        patience_s: float = STREAM_PATIENCE_SECONDS,
    ):
        self._connection = connection
        self._servers = connection.servers
        self._run = run
        self._last = after
        self._whole = after == 0  # we have seen, or will see, the reply from its start
        self._text: list[str] = []
        self._block: int | None = None  # the block that is open
        self._waits = Backoff(patience_s)
        self._stopped = False  # the local server was told to stop: not ours to start again
        self._stop_waits = Backoff(min(patience_s, STOPPED_PATIENCE_SECONDS))
        self._fruitless = 0
        self._lost = False

    async def items(self) -> AsyncGenerator[Event | Notice, None]:
        """Ends after message_stop. Raises ClientError when the run cannot be followed."""
        while True:
            try:
                async with aclosing(self._read_once()) as items:
                    async for item in items:
                        yield item
                        if isinstance(item, Event) and isinstance(item.payload, wire.MessageStop):
                            return
                raise Dropped("the stream ended early")
            except _LogGone:
                break
            except Dropped as dropped:
                delay = self._backoff.next()
                if delay is None:
                    raise self._given_up(dropped.reason) from None
                yield Notice(NoticeKind.RECONNECTING, dropped.reason, delay)
            except ClientError as refused:
                if refused.code == _STOPPING:
                    self._told_to_stop()
                asked = self._backoff.next(refused.retry_after_s) if is_busy(refused) else None
                if asked is None:
                    raise
                delay = asked
                yield Notice(NoticeKind.BUSY, refused.message, delay)
            self._lost = True
            await asyncio.sleep(delay)
            await self._revive()
            if self._connection.servers != self._servers:
                self._servers = self._connection.servers
                yield RESTARTED
        yield Notice(NoticeKind.STORED, "the rest is read from the stored reply")
        for event in await self._from_store():
            yield event

    async def _revive(self) -> None:
        # Where it fails, the next try finds the same out, and counts it.
        with suppress(Dropped):
            await self._connection.revive(start=not self._stopped)

    async def _read_once(self) -> AsyncGenerator[Event | Notice, None]:
        """The events of one connection. Raises Dropped, _LogGone and ClientError."""
        headers = {"Last-Event-ID": str(self._last)} if self._last else {}
        path = f"/runs/{self._run}/events"
        try:
            async with self._connection.stream(path, headers) as response:
                if response.status_code == 204:
                    raise _LogGone
                if self._lost:
                    self._lost = False
                    yield Notice(NoticeKind.CONNECTED, "connected again")
                parser = Parser()
                async for chunk in response.aiter_raw():
                    for raw in parser.feed(chunk):
                        event = self._accept(raw)
                        if event is not None:
                            yield event
        except EventTooLarge:
            raise ClientError("bad_answer", "The server sent an event of absurd size.") from None
        except ClientError as error:
            if error.code == "gone":
                raise _LogGone from None
            raise

    def _accept(self, raw: RawEvent) -> Event | None:
        """The event if it is new and understood; None to skip it."""
        payload = wire.load(raw.type, raw.data)
        if payload is None:
            return None
        if isinstance(payload, wire.StreamError):
            raise self._cut(payload)
        if not payload.NUMBERED:
            self._heard()
            return Event(None, payload)
        seq = int(raw.id) if raw.id is not None and raw.id.isdecimal() else None
        if seq is not None and seq <= self._last:
            return None  # had it: a replay that began too early
        if seq != self._last + 1 or not self._take(payload):
            self._count_fruitless(_LogGone())
            raise Dropped("an event was missing")
        self._last = seq
        self._heard()
        return Event(seq, payload)

    def _take(self, payload: wire.Payload) -> bool:
        """Keep what `_from_store` needs to know; False if the payload makes no sense."""
        match payload:
            case wire.BlockStart(index=index):
                self._block = index
            case wire.BlockDelta(text=text):
                if not isinstance(text, str):
                    return False
                self._text.append(text)
            case wire.BlockStop():
                self._block = None
            case wire.MessageStop(status=status):
                return status in wire.Status.TERMINAL
            case _:
                pass
        return True

    def _heard(self) -> None:
        self._waits.reset()
        self._stop_waits.reset()
        self._stopped = False
        self._fruitless = 0

    @property
    def _backoff(self) -> Backoff:
        return self._stop_waits if self._stopped else self._waits

    def _told_to_stop(self) -> None:
        self._stopped = self._connection.local

    def _given_up(self, reason: str) -> ClientError:
        if self._stopped:
            return ClientError(_STOPPING, "The server was stopped; the reply waits for its start.")
        return self._connection.unreachable(reason)

    def _cut(self, error: wire.StreamError) -> Exception:
        """What an error event means: this stream is over, the run need not be."""
        if error.code != _STOPPING:
            self._count_fruitless(ClientError(str(error.code), str(error.message)))
            return Dropped(str(error.message).rstrip("."))
        self._told_to_stop()
        return Dropped("the server is stopping")

    def _count_fruitless(self, then: Exception) -> None:
        self._fruitless += 1
        if self._fruitless >= MAX_FRUITLESS:
            raise then

    # ---- when the log is gone -----------------------------------------------------------------

    async def _from_store(self) -> list[Event]:
        """Events, unnumbered, that complete what was yielded so far to the stored reply."""
        run = await self._ended()
        message = await self._message(run)
        shown = "".join(self._text)
        if not self._whole or not message.text.startswith(shown):
            raise ClientError("gone", "The log of this run is gone; its reply is in the history.")
        payloads: list[wire.Payload] = []
        missing = message.text[len(shown) :]
        if missing:
            index = 0 if self._block is None else self._block
            if self._block is None:
                payloads.append(wire.BlockStart(index))
            payloads += [wire.BlockDelta(index, missing), wire.BlockStop(index)]
        payloads += _ending(message)
        return [Event(None, payload) for payload in payloads]

    async def _ended(self) -> Run:
        while True:
            raw = await self._connection.json("GET", f"/runs/{self._run}")
            run = build(Run, raw)
            if run.status in wire.Status.TERMINAL:
                return run
            await asyncio.sleep(POLL_SECONDS)

    async def _message(self, run: Run) -> Message:
        raw = await self._connection.json(
            "GET",
            f"/conversations/{run.conversation}/messages",
            params={"leaf": run.message, "limit": 1},
        )
        for message in branch(raw).messages:
            if message.id == run.message:
                return message
        raise ClientError("not_found", "The reply of this run is not in the history.")


def _ending(message: Message) -> list[wire.Payload]:
    stop_reason = message.stop_reason or wire.StopReason.ERROR
    failed = message.status in (wire.Status.FAILED, wire.Status.REFUSED)
    error = wire.Failure(message.status, message.error or "The reply failed.") if failed else None
    return [
        wire.MessageDelta(
            stop_reason,
            usage=build(wire.Usage, message.usage or {}),
            timings=build(wire.Timings, message.timings or {}),
        ),
        wire.MessageStop(message.status, stop_reason, error),
    ]
