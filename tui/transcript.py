"""Messages as they are shown: stored records and run events to blocks and a state in words.

Pure: no clock, no screen, no network. An entry's closed blocks never change, and an entry that
was streamed ends with the blocks that loading it would give. Events that came before are
skipped by their number, so a stream may be read again from its start.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from hobnob.server import wire
from hobnob.server.wire import Status, Timings, Usage
from hobnob.tui.blocks import Block, Splitter
from hobnob.tui.notice import Notice, NoticeKind
from hobnob.tui.records import Message

USER = "user"
ASSISTANT = "assistant"
TEXT = "text"
REASONING = "reasoning"


class Phase(Enum):
    """How far a reply is. What is shown in place of its text follows from it."""

    SENDING = "sending"  # not accepted by the server yet
    WAITING = "waiting"  # accepted; nothing is known of it yet
    LOADING = "loading"  # the model is being read from disk
    QUEUED = "queued"  # others are before it
    READING = "reading"  # the prompt is being processed
    WRITING = "writing"
    ENDED = "ended"


class Part:
    """One content block of a message, split into blocks as it grows: from when it is first shown,
    so that what is never shown of a long conversation costs nothing."""

    def __init__(self, kind: str, text: str = "", *, ended: bool = False) -> None:
        self.kind = kind
        self.chars = 0
        self.ended = False
        self._source: list[str] = []
        self._splitter: Splitter | None = None
        if text:
            self.add(text)
        if ended:
            self.end()

    @property
    def text(self) -> str:
        return "".join(self._source)

    def since(self, piece: int) -> tuple[str, int]:
        """The text from a piece on, and the number of the next: to read it as it comes."""
        return "".join(self._source[piece:]), len(self._source)

    @property
    def closed(self) -> list[Block]:
        """Blocks that never change again; the list only grows."""
        return self._split().blocks

    def open(self) -> list[Block]:
        """The blocks after `closed`, as far as the text has come."""
        return [] if self.ended else self._split().tail()

    def add(self, text: str) -> None:
        self._source.append(text)
        self.chars += len(text)
        if self._splitter is not None:
            self._splitter.feed(text)

    def end(self) -> None:
        """Safe to call twice."""
        if not self.ended:
            self.ended = True
            if self._splitter is not None:
                self._splitter.close()

    def _split(self) -> Splitter:
        if self._splitter is None:
            self._splitter = Splitter()
            self._splitter.feed(self.text)
            if self.ended:
                self._splitter.close()
        return self._splitter


@dataclass(slots=True, eq=False)
class Entry:
    """One message on the screen. Owned by the UI's thread."""

    id: str
    role: str
    parts: list[Part] = field(default_factory=list)
    phase: Phase = Phase.ENDED
    parent: str | None = None
    run: str | None = None
    model: str | None = None
    created_at: int = 0
    status: str = Status.COMPLETED
    stop_reason: str | None = None
    error: str | None = None
    usage: Usage | None = None
    timings: Timings | None = None
    context: wire.Context | None = None
    exact: bool | None = None  # not known
    progress: float = 0.0  # of loading the model, 0..1
    place: wire.Queued | None = None
    prefill: wire.Prefill | None = None
    trouble: str = ""  # why nothing comes at the moment; empty while the connection is fine
    not_saved: str = ""
    notes: list[str] = field(default_factory=list)  # what happened on the way
    siblings: tuple[str, ...] = ()  # ids of the versions of this message, itself among them
    seq: int = 0  # the last numbered event
    _shadow: list[Part] | None = None  # a second reading of a reply that is shown from the store

    @property
    def text(self) -> str:
        """The words of the message, without its reasoning."""
        return "".join(part.text for part in self.parts if part.kind != REASONING)

    @property
    def live(self) -> bool:
        return self.phase is not Phase.ENDED

    @property
    def cut(self) -> bool:
        """Whether it is a reply that has an end, but not its own, and can be gone on with."""
        cut = self.status in (Status.LENGTH, Status.CANCELLED, Status.FAILED)
        return cut and self.role == ASSISTANT and not self.live and self.chars > 0

    @property
    def chars(self) -> int:
        return sum(part.chars for part in self.parts)

    def code_blocks(self) -> list[str]:
        """The exact bodies of the code blocks, in order."""
        blocks = [b for part in self.parts for b in (*part.closed, *part.open())]
        return [block.text for block in blocks if block.kind == "code"]

    def apply(self, item: wire.Event | Notice) -> None:
        """Take in what the stream of this reply's run says."""
        if isinstance(item, Notice):
            self._hear(item)
            return
        if item.seq is not None:
            if item.seq <= self.seq:
                return
            self.seq = item.seq
        self.trouble = ""
        self._take(item.payload)

    def fail(self, code: str, message: str) -> None:
        """The stream cannot be followed any further."""
        self.trouble = ""
        self.error = message
        self.status = Status.FAILED
        self.stop_reason = code
        self._finish()

    def _take(self, payload: wire.Payload) -> None:
        match payload:
            case wire.Context():
                self.context = payload
            case wire.MessageStart():
                self._start(payload)
            case wire.BlockStart(kind=kind):
                self._growing().append(Part(kind))
                self.phase = Phase.WRITING
            case wire.BlockDelta(text=text):
                self._add(text)
            case wire.BlockStop():
                if self._growing():
                    self._growing()[-1].end()
            case wire.MessageDelta():
                self.usage, self.timings = payload.usage, payload.timings
                self.exact = payload.exact if payload.exact is not None else self.exact
                self.stop_reason = payload.stop_reason
            case wire.MessageStop():
                self.status, self.stop_reason = payload.status, payload.stop_reason
                self.error = payload.error.message if payload.error else None
                self._finish()
            case wire.StreamError(message=message):
                self.trouble = message
            case _:
                self._news(payload)

    def _news(self, payload: wire.Payload) -> None:
        """What is only true for the moment."""
        match payload:
            case wire.Loading(done=done, model=model):
                self.phase, self.progress = Phase.LOADING, done
                self.model = self.model or model
            case wire.Queued():
                self.phase, self.place = Phase.QUEUED, payload
            case wire.Prefill():
                self.phase, self.prefill = Phase.READING, payload
            case wire.NotSaved(message=message):
                self.not_saved = message
            case wire.Restarted(reason=reason):
                self._note(f"the engine was restarted ({reason}); the reply goes on")

    def _start(self, start: wire.MessageStart) -> None:
        self.model, self.exact = start.model, start.exact
        if self.phase in (Phase.SENDING, Phase.WAITING):
            self.phase = Phase.WAITING

    def _growing(self) -> list[Part]:
        return self.parts if self._shadow is None else self._shadow

    def _add(self, text: str) -> None:
        parts = self._growing()
        if not parts:
            parts.append(Part(TEXT))
        parts[-1].add(text)
        self.phase = Phase.WRITING
        if self._shadow is not None and sum(p.chars for p in self._shadow) >= self.chars:
            self.parts, self._shadow = self._shadow, None

    def _finish(self) -> None:
        if self._shadow is not None and self.status in Status.TERMINAL and self._shadow:
            self.parts, self._shadow = self._shadow, None
        for part in self.parts:
            part.end()
        self.phase = Phase.ENDED
        self.place = self.prefill = None

    def _hear(self, notice: Notice) -> None:
        if notice.kind is NoticeKind.CONNECTED:
            self.trouble = ""
        elif notice.kind is NoticeKind.RESTARTED:
            self._note("the server was restarted; the reply goes on")
        elif notice.kind is NoticeKind.RECONNECTING:
            self.trouble = f"{notice.reason} · reconnecting…"
        elif notice.kind is NoticeKind.BUSY:
            self.trouble = f"{notice.reason} · trying again…"
        elif notice.kind is NoticeKind.STARTING:
            self.trouble = "starting the server…"

    def _note(self, words: str) -> None:
        if words not in self.notes:
            self.notes.append(words)


def entry(message: Message, siblings: Iterable[str] = ()) -> Entry:
    """A stored message. One that is still being written shows what there is of it."""
    live = message.role == ASSISTANT and message.status in (Status.QUEUED, Status.RUNNING)
    made = Entry(
        id=message.id,
        role=message.role or "unknown",
        parts=_parts(message, ended=not live),
        phase=Phase.WAITING if live else Phase.ENDED,
        parent=message.parent,
        run=message.run,
        model=message.model,
        created_at=message.created_at,
        status=message.status,
        stop_reason=message.stop_reason,
        error=message.error,
        usage=_built(Usage, message.usage),
        timings=_built(Timings, message.timings),
        siblings=tuple(siblings),
    )
    if live:
        made._shadow = []
    return made


def draft_entry(text: str) -> Entry:
    """A message that is on its way to the server."""
    return Entry(id="", role=USER, parts=[Part(TEXT, text, ended=True)], phase=Phase.SENDING)


def _parts(message: Message, *, ended: bool) -> list[Part]:
    parts = []
    for block in message.blocks if message.role != USER else ():
        kind, text = block.get("type"), block.get("text")
        if isinstance(kind, str) and isinstance(text, str) and text:
            parts.append(Part(kind, text, ended=ended))
    if not parts and message.text:
        parts.append(Part(TEXT, message.text, ended=ended))
    return parts


def _built(cls: type[Any], raw: dict[str, Any] | None) -> Any:
    """Usage or Timings from stored JSON; None when it makes no sense."""
    if not isinstance(raw, dict):
        return None
    numbers = {
        name: value
        for name, value in raw.items()
        if name in cls.__dataclass_fields__ and isinstance(value, int | float)
    }
    return cls(**numbers)
