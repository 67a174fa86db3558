"""One run's numbered log in memory, its news of the moment, and the readers of both.

A producer appends and never waits; each reader pulls with a cursor of its own. A reader that does
not read costs a cursor and nothing else. Knows nothing of the store, the engine or HTTP.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field

from hobnob.server import wire
from hobnob.server.engine.protocol import Logprob

ENTRY_OVERHEAD_BYTES = 400
"""What an entry takes in memory besides its text and ids, roughly."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A numbered event with what the wire does not carry."""

    seq: int
    payload: wire.Payload
    tokens: list[int] = field(default_factory=list)
    logprobs: list[Logprob] = field(default_factory=list)

    @property
    def event(self) -> wire.Event:
        return wire.Event(self.seq, self.payload)


class RunLog:
    """Entries are numbered `base + 1 …` without a gap; ended once the last one is in."""

    __slots__ = ("base", "entries", "ended", "closing", "size_bytes", "_news", "_version", "_wakes")

    def __init__(self, base: int = 0):
        self.base = base
        self.entries: list[LogEntry] = []
        self.ended = False  # the terminal event is published
        self.closing: wire.StreamError | None = None  # readers end with it, the run need not
        self.size_bytes = 0
        self._news: dict[type[object], tuple[int, wire.Payload]] = {}
        self._version = 0
        self._wakes: weakref.WeakSet[asyncio.Event] = weakref.WeakSet()

    @property
    def last_seq(self) -> int:
        return self.base + len(self.entries)

    @property
    def version(self) -> int:
        """Grows with every piece of news."""
        return self._version

    # ---- producer

    def publish(self, entries: Iterable[LogEntry], *, ended: bool = False) -> None:
        """Shows the entries to every reader. Order and numbers are the caller's duty."""
        assert not self.ended, "a log that has ended takes no more entries"
        for entry in entries:
            assert entry.seq == self.last_seq + 1, f"entry {entry.seq} after {self.last_seq}"
            self.entries.append(entry)
            self.size_bytes += _size(entry)
        self.ended = ended
        if ended:
            self.untell(wire.Loading, wire.Queued, wire.Prefill, wire.Restarted)
        self._wake()

    def tell(self, payload: wire.Payload) -> None:
        """News of the moment: replaces older news of the same type. Not after the end."""
        assert not payload.NUMBERED, f"{payload.TYPE} is numbered: publish it"
        if self.ended and not isinstance(payload, wire.NotSaved):
            return
        self._version += 1
        self._news[type(payload)] = (self._version, payload)
        self._wake()

    def untell(self, *types: type[object]) -> None:
        """Takes back news that no longer holds, so that a late reader is not told."""
        for type_ in types:
            self._news.pop(type_, None)

    def tells(self, type_: type[object]) -> bool:
        """Whether a reader that comes now is told such news."""
        return type_ in self._news

    def close(self, error: wire.StreamError) -> None:
        """Ends every reader with `error` once it has read what is published."""
        if self.closing is None:
            self.closing = error
            self._wake()

    # ---- readers

    def subscribe(self, wake: asyncio.Event) -> None:
        """`wake` is set at each change for as long as somebody else keeps it alive."""
        self._wakes.add(wake)

    @property
    def readers(self) -> int:
        return len(self._wakes)

    def news_after(self, version: int) -> tuple[int, wire.Payload] | None:
        """The oldest news that is newer than `version`."""
        fresh = [item for item in self._news.values() if item[0] > version]
        return min(fresh, key=lambda item: item[0], default=None)

    def _wake(self) -> None:
        for wake in self._wakes:
            wake.set()


class Reader:
    """Reads one run's events from a cursor on: `async for`, or `next_within` for keep-alives.

    Ends after the terminal event, or after a StreamError. A read that is cancelled loses nothing:
    the next one goes on. Dropping the reader is enough to end it, and never ends the run.
    """

    __slots__ = ("entry", "_log", "_cursor", "_seen", "_joined", "_wake", "_over")

    def __init__(self, log: RunLog, after: int = 0):
        assert log.base <= after <= log.last_seq, "the cursor lies outside the log"
        self.entry: LogEntry | None = None  # behind the numbered event read last
        self._log = log
        self._cursor = after
        self._seen = 0
        self._joined = log.version
        self._wake = asyncio.Event()
        self._over = False
        log.subscribe(self._wake)

    @property
    def at_end(self) -> bool:
        """Nothing will ever be read again: the terminal event lies before the cursor."""
        return self._over or (self._log.ended and self._cursor == self._log.last_seq)

    def __aiter__(self) -> Reader:
        return self

    async def __anext__(self) -> wire.Event:
        while True:
            event = self._read()
            if event is not None:
                return event
            if self.at_end:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()

    async def next_within(self, seconds: float) -> wire.Event | None:
        """The next event, or None when none came in time. StopAsyncIteration at the end."""
        try:
            async with asyncio.timeout(seconds):
                return await anext(self)
        except TimeoutError:
            return None

    def _read(self) -> wire.Event | None:
        """News first: that a delta is not saved must be said before it is shown."""
        if self.at_end:
            return None
        news = self._next_news()
        if news is not None:
            return wire.Event(None, news)
        if self._cursor < self._log.last_seq:
            self.entry = self._log.entries[self._cursor - self._log.base]
            self._cursor += 1
            return self.entry.event
        if self._log.closing is not None:
            self._over = True
            return wire.Event(None, self._log.closing)
        return None

    def _next_news(self) -> wire.Payload | None:
        while (news := self._log.news_after(self._seen)) is not None:
            self._seen, payload = news
            # Whoever joins after a restart has missed nothing.
            if not (isinstance(payload, wire.Restarted) and self._seen <= self._joined):
                return payload
        return None


def _size(entry: LogEntry) -> int:
    text = entry.payload.text if isinstance(entry.payload, wire.BlockDelta) else ""
    return ENTRY_OVERHEAD_BYTES + 4 * len(text) + 8 * len(entry.tokens)
