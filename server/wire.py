"""What travels between server and clients: run events, and their text as server-sent events.

Standard library only: the TUI and the CLI import this module and nothing else from the server.
Numbered events are durable (logged before they are shown, replayed after a reconnect);
the others are news of the moment and are never replayed. A client skips what it does not know.

Order in a run's log:
    context · message_start · (content_block_start · content_block_delta* · content_block_stop)*
    · message_delta · message_stop
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, get_args

WIRE_VERSION = 1

API = "/hobnob/v1"
"""Prefix of the native routes."""


class Status:
    """How a run stands. The last five are terminal: the run has its `message_stop`."""

    QUEUED = "queued"  # accepted and stored; the engine has not taken it into a sequence yet
    RUNNING = "running"  # in a sequence, or to be continued after a restart
    COMPLETED = "completed"  # the model ended it, or a stop string did
    LENGTH = "length"  # max_tokens or the context window ended it
    CANCELLED = "cancelled"
    REFUSED = "refused"
    FAILED = "failed"

    TERMINAL = frozenset({COMPLETED, LENGTH, CANCELLED, REFUSED, FAILED})


class StopReason:
    """Why the text ends where it ends."""

    END_TURN = "end_turn"  # the model's end-of-generation token
    STOP_STRING = "stop_string"
    MAX_TOKENS = "max_tokens"
    CONTEXT = "context"  # the window is full
    CANCELLED = "cancelled"
    REFUSED = "refused"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one run. The end-of-generation token is not counted."""

    prompt_tokens: int = 0
    cached_tokens: int = 0  # the part of prompt_tokens that was not computed again
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds, and drafts. queued + planned + prefill + first_decode = time to first token."""

    queued_s: float = 0.0
    planned_s: float = 0.0
    prefill_s: float = 0.0
    first_decode_s: float = 0.0
    decode_s: float = 0.0  # from the first token to the last
    token_p50_s: float = 0.0  # time per output token after the first
    token_p99_s: float = 0.0
    token_max_s: float = 0.0
    drafted: int = 0  # tokens that were guessed and computed together
    accepted: int = 0  # of these, the ones that became part of the reply
    decoded: int = 0  # tokens that the times are of, not those that were there before; 0: unknown

    @property
    def first_token_s(self) -> float:
        return self.queued_s + self.planned_s + self.prefill_s + self.first_decode_s


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as clients see it. `code` is one of docs/scripting.md."""

    code: str
    message: str


# ---- numbered events --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Context:
    """What went into the prompt. `left_out` are ids of messages that did not fit, oldest first."""

    TYPE: ClassVar[str] = "context"
    NUMBERED: ClassVar[bool] = True
    prompt_tokens: int
    n_ctx: int
    included: int  # messages in the prompt, the system prompt not counted
    left_out: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MessageStart:
    TYPE: ClassVar[str] = "message_start"
    NUMBERED: ClassVar[bool] = True
    run: str
    conversation: str
    message: str  # id of the reply
    model: str
    seed: int
    exact: bool | None = False
    """Bit-equal whatever shares the batch; None: not known, since the model still loads."""
    wire: int = WIRE_VERSION


@dataclass(frozen=True, slots=True)
class BlockStart:
    TYPE: ClassVar[str] = "content_block_start"
    NUMBERED: ClassVar[bool] = True
    index: int
    kind: str = "text"  # text | reasoning | tool_use


@dataclass(frozen=True, slots=True)
class BlockDelta:
    TYPE: ClassVar[str] = "content_block_delta"
    NUMBERED: ClassVar[bool] = True
    index: int
    text: str


@dataclass(frozen=True, slots=True)
class BlockStop:
    TYPE: ClassVar[str] = "content_block_stop"
    NUMBERED: ClassVar[bool] = True
    index: int


@dataclass(frozen=True, slots=True)
class MessageDelta:
    TYPE: ClassVar[str] = "message_delta"
    NUMBERED: ClassVar[bool] = True
    stop_reason: str
    stop_string: str | None = None
    usage: Usage = field(default_factory=Usage)
    timings: Timings = field(default_factory=Timings)
    exact: bool | None = None
    """Whether all of it was; None: it never came to the engine, or its log is gone."""


@dataclass(frozen=True, slots=True)
class MessageStop:
    """The one terminal event of a run."""

    TYPE: ClassVar[str] = "message_stop"
    NUMBERED: ClassVar[bool] = True
    status: str
    stop_reason: str
    error: Failure | None = None


# ---- unnumbered events ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Loading:
    """The model's weights are being read. `done` is 0..1."""

    TYPE: ClassVar[str] = "loading"
    NUMBERED: ClassVar[bool] = False
    model: str
    done: float


@dataclass(frozen=True, slots=True)
class Queued:
    TYPE: ClassVar[str] = "queued"
    NUMBERED: ClassVar[bool] = False
    position: int  # 1 is next
    eta_s: float | None = None


@dataclass(frozen=True, slots=True)
class Prefill:
    TYPE: ClassVar[str] = "prefill"
    NUMBERED: ClassVar[bool] = False
    done: int
    total: int
    cached: int = 0


@dataclass(frozen=True, slots=True)
class NotSaved:
    """The store cannot write: what follows is shown but would not survive a crash."""

    TYPE: ClassVar[str] = "not_saved"
    NUMBERED: ClassVar[bool] = False
    message: str


@dataclass(frozen=True, slots=True)
class Restarted:
    """The engine died and was started again; the run goes on from its log."""

    TYPE: ClassVar[str] = "restarted"
    NUMBERED: ClassVar[bool] = False
    reason: str


@dataclass(frozen=True, slots=True)
class StreamError:
    """This stream ends here, the run need not: see `code` (server_stopping: reconnect)."""

    TYPE: ClassVar[str] = "error"
    NUMBERED: ClassVar[bool] = False
    code: str
    message: str


Payload = (
    Context
    | MessageStart
    | BlockStart
    | BlockDelta
    | BlockStop
    | MessageDelta
    | MessageStop
    | Loading
    | Queued
    | Prefill
    | NotSaved
    | Restarted
    | StreamError
)

_BY_TYPE: dict[str, type[Any]] = {cls.TYPE: cls for cls in get_args(Payload)}


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a run's stream. `seq` counts from 1 in the log and is None when unnumbered."""

    seq: int | None
    payload: Payload


# ---- the feed of changes ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Position:
    """The feed begins here: what was changed before is to be read from the lists."""

    TYPE: ClassVar[str] = "position"
    change: int


@dataclass(frozen=True, slots=True)
class ConversationChanged:
    """It, or a message of it, was written. The fields are those of GET /conversations/{id}."""

    TYPE: ClassVar[str] = "conversation"
    conversation: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ConversationDeleted:
    TYPE: ClassVar[str] = "deleted"
    conversation: str


ChangePayload = Position | ConversationChanged | ConversationDeleted | StreamError

_CHANGES_BY_TYPE: dict[str, type[Any]] = {cls.TYPE: cls for cls in get_args(ChangePayload)}


@dataclass(frozen=True, slots=True)
class Change:
    """One event of the feed. `seq` is the change number, and grows; None for a StreamError."""

    seq: int | None
    payload: ChangePayload


# ---- as text ----------------------------------------------------------------------------------

_NESTED: dict[str, type[Any]] = {"usage": Usage, "timings": Timings, "error": Failure}
_NAMES: dict[type[Any], list[str]] = {
    cls: [one.name for one in fields(cls)]
    for cls in (*_BY_TYPE.values(), *_CHANGES_BY_TYPE.values(), *_NESTED.values())
}


def dump(payload: Payload | ChangePayload) -> str:
    """The payload as JSON text, without its type. ASCII only, so no reader can split it."""
    return json.dumps(asdict(payload), ensure_ascii=True, separators=(",", ":"))


def load(type_: str, data: str) -> Payload | None:
    """The payload for a type and its JSON text; None when the type is unknown or the text odd."""
    return _load(_BY_TYPE.get(type_), data)  # type: ignore[no-any-return]


def load_change(type_: str, data: str) -> ChangePayload | None:
    """As `load`, for the feed of changes."""
    return _load(_CHANGES_BY_TYPE.get(type_), data)  # type: ignore[no-any-return]


def _load(cls: type[Any] | None, data: str) -> Any:
    if cls is None:
        return None
    try:
        raw = json.loads(data)
        return cls(**_known(cls, raw))
    except (ValueError, TypeError):
        return None


def sse(event: Event) -> str:
    """The event as a block of an event stream."""
    number = "" if event.seq is None else f"id: {event.seq}\n"
    return f"{number}event: {event.payload.TYPE}\ndata: {dump(event.payload)}\n\n"


def _known(cls: type[Any], raw: Any) -> dict[str, Any]:
    """Only the fields that we know: a newer server may send more."""
    if not isinstance(raw, dict):
        raise TypeError("not an object")
    values = {name: raw[name] for name in _NAMES[cls] if name in raw}
    for name, nested in _NESTED.items():
        if isinstance(values.get(name), dict):
            values[name] = nested(**_known(nested, values[name]))
    return values
