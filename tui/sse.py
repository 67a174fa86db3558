"""Server-sent events out of bytes, however those were cut into pieces. Pure and bounded.

Ours rather than httpx-sse's decoder, which keeps an id for the events after it (so a progress
event would look numbered), keeps a byte order mark, and lets one event grow without bound.
Lines end at CRLF, LF or CR and at nothing else: U+2028 is text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_EVENT_BYTES = 16 * 1024 * 1024

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class EventTooLarge(Exception):
    """One event is over the bound; the stream cannot be read on."""


@dataclass(frozen=True, slots=True)
class RawEvent:
    type: str
    data: str
    id: str | None  # of this very event; None when it has none


class Parser:
    """Feed it what arrives. What is incomplete when the bytes end was never sent: drop it."""

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._line = bytearray()  # the line that has not ended yet
        self._first = True
        self._after_cr = False
        self._begin_event()

    def feed(self, chunk: bytes) -> list[RawEvent]:
        """The events that are complete now. Raises EventTooLarge."""
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        self._after_cr |= chunk.endswith(b"\r")
        *ended, rest = _LINE_END.split(chunk)
        events: list[RawEvent] = []
        for end in ended:
            self._line += end
            event = self._take_line(bytes(self._line))
            self._line.clear()
            if event is not None:
                events.append(event)
        self._line += rest
        self._bound(len(self._line))
        return events

    def _begin_event(self) -> None:
        self._type = ""
        self._data: list[str] = []
        self._id: str | None = None
        self._bytes = 0

    def _bound(self, more: int) -> None:
        if self._bytes + more > self._limit:
            raise EventTooLarge(f"an event of more than {self._limit} bytes")

    def _take_line(self, line: bytes) -> RawEvent | None:
        if self._first:
            self._first = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._end_event()
        self._bound(len(line))
        self._bytes += len(line)
        name, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._type = value
        elif name == "id" and "\0" not in value:
            self._id = value
        return None

    def _end_event(self) -> RawEvent | None:
        data = "\n".join(self._data)
        event = RawEvent(self._type or "message", data, self._id) if data else None
        self._begin_event()
        return event
