"""A client in a history: one message or wish for a reply, sent perhaps more than once with one key,
and its reply read through cuts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from simulated_edge import Edge, Exchange

from hobnob.server import wire
from hobnob.tui.sse import RawEvent

Check = Callable[["Client", wire.Event], None]


@dataclass
class Client:
    key: str
    path: str
    body: dict[str, Any]
    place: str | None = None  # the conversation that it writes to; None: a new one
    turn: dict[str, Any] | None = None  # what was answered
    deleting: bool = False
    events: list[wire.Event] = field(default_factory=list)  # numbered ones that were read
    stream: Exchange | None = None
    warned: bool = False  # told by `not_saved`, on some connection of this life
    warned_ahead: bool = False  # the warning is on its way, on this connection
    _sent: int = 0  # the last number on its way
    _last: wire.Payload | None = None  # read from this connection

    @property
    def text(self) -> str:
        """Its message; empty where it only wants a reply."""
        return str(self.body.get("text", ""))

    @property
    def conversation(self) -> str:
        return str(self._turn["conversation"]["id"])

    @property
    def run(self) -> str:
        return str(self._turn["run"]["id"])

    @property
    def reply(self) -> str:
        return str(self._turn["reply"]["id"])

    @property
    def message(self) -> dict[str, Any]:
        """The user's."""
        return self._turn["message"]  # type: ignore[no-any-return]

    @property
    def _turn(self) -> dict[str, Any]:
        assert self.turn is not None
        return self.turn

    @property
    def stop(self) -> wire.MessageStop | None:
        last = self.events[-1].payload if self.events else None
        return last if isinstance(last, wire.MessageStop) else None

    @property
    def shown_text(self) -> str:
        payloads = (event.payload for event in self.events)
        return "".join(one.text for one in payloads if isinstance(one, wire.BlockDelta))

    # ---- reading

    async def read(self, edge: Edge, at_most: int, check: Check, patience_s: float) -> None:
        """Reads on, over a new connection where there is none; until nothing comes in time."""
        if self.stream is None and not await self._open(edge, check):
            return
        assert self.stream is not None
        try:
            for _ in range(at_most):
                event = await self.stream.next_within(patience_s)
                if event is None or self.deleting:
                    return
                self._take(event)
        except StopAsyncIteration:
            self._ended()

    def hang_up(self) -> None:
        """The connection is cut, with what was on its way."""
        if self.stream is not None:
            self.stream.cut()
            self.stream = None

    def die_with_the_server(self) -> None:
        self.stream = None
        self.warned = self.warned_ahead = False

    async def _open(self, edge: Edge, check: Check) -> bool:
        path, after = f"{wire.API}/runs/{self.run}/events", len(self.events)
        self.warned_ahead, self._sent, self._last = False, after, None
        stream = edge.call("GET", path, after=after, shown=lambda raw: self._shown(raw, check))
        status = await stream.opened()
        if self.deleting:
            stream.cut()
            return False
        if status == 204:
            assert self.stop is not None, "no more is said, and the end was not"
            return False
        assert status == 200 and stream.streams, f"{self.run} cannot be read: {stream.json}"
        self.stream = stream
        return True

    def _shown(self, raw: RawEvent, check: Check) -> wire.Event:
        payload = wire.load(raw.type, raw.data)
        assert payload is not None, raw
        event = wire.Event(None if raw.id is None else int(raw.id), payload)
        if event.seq is not None:
            assert event.seq == self._sent + 1, f"{self.run}: {event.seq} after {self._sent}"
            self._sent = event.seq
        if isinstance(payload, wire.NotSaved):
            self.warned_ahead = True
        check(self, event)
        return event

    def _take(self, event: wire.Event) -> None:
        self._last = event.payload
        if isinstance(event.payload, wire.NotSaved):
            self.warned = True
        if event.seq is not None:
            assert self.stop is None, "something comes after the end"
            self.events.append(event)

    def _ended(self) -> None:
        self.stream = None
        if not self.deleting:
            ends = isinstance(self._last, wire.MessageStop | wire.StreamError)
            assert ends, f"{self.run}: the stream ends with {self._last}"
