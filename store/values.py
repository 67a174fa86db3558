"""Plain values of the store. They know nothing of SQLite, HTTP or the engine.

Every id is random and public; every `*_at` is UTC milliseconds and never decides an order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hobnob.store.rows import new_id

LOCAL_OWNER = "local"

QUEUED = "queued"
RUNNING = "running"
LIVE = (QUEUED, RUNNING)
"""Statuses of runs and replies that have not ended."""

ENDED = ("completed", "length", "cancelled", "refused", "failed")
"""Statuses of those that have: the terminal ones of server/wire.py, tested against it."""


ABOUT = "about"
"""In the block of a first message: the reply at whose end it was asked, for a summary."""


class StoreError(Exception):
    """Base of the store's own errors; one sentence for a person."""


class NotFound(StoreError):
    """No such row for this owner."""


class Closed(StoreError):
    """The store was closed, or the thread that writes has ended."""


class SchemaTooNew(StoreError):
    """The database was written by a newer version; it was left unchanged."""


class KeyReused(StoreError):
    """The idempotency key was used before with another request."""


class IdTaken(StoreError):
    """A message that is imported has the id of one that is there already."""


class BadParent(StoreError):
    """Such a message cannot follow that one: users follow replies, replies follow users."""


class WriteFailed(StoreError):
    """SQLite could not write (disk full, read-only, I/O error). Nothing of the call was kept."""


class Locked(WriteFailed):
    """Another program held the database locked for longer than we wait."""


class Damaged(WriteFailed):
    """The file is not a database, not one of ours, or broken."""


class Stale(WriteFailed):
    """Another process has opened the database since, or the file that this one opened is not the
    one of that name any more: it may not write to it any more."""


@dataclass(frozen=True, slots=True)
class Conversation:
    id: str
    owner: str
    title: str
    system: str | None
    head: str | None  # id of the newest message of the branch shown
    settings: dict[str, Any]  # sampling options of this conversation
    pinned: bool  # stands first in the list
    temporary: bool  # in no list, and deleted when nobody holds it
    created_at: int
    updated_at: int
    change: int  # grows on every write to the conversation


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a conversation's title was made from."""

    title: str
    text: str  # of the first message


@dataclass(frozen=True, slots=True)
class Deletion:
    """What is left of a deleted conversation, so that other devices learn of it."""

    conversation: str
    change: int


@dataclass(frozen=True, slots=True)
class Message:
    id: str
    conversation: str
    parent: str | None
    role: str  # user | assistant
    text: str  # the blocks' text joined: what is searched and shown plainly
    blocks: list[dict[str, Any]]  # [{"type": "text", "text": …}, …]
    status: str  # user messages: completed; replies: a wire.Status
    created_at: int
    model: str | None = None
    tokens: list[int] | None = None  # ids of a reply as generated
    vocab_hash: str | None = None  # of the tokenizer that `tokens` belong to
    stop_reason: str | None = None
    error: str | None = None
    usage: dict[str, Any] | None = None
    timings: dict[str, Any] | None = None
    run: str | None = None  # public id of the run that wrote a reply


@dataclass(frozen=True, slots=True)
class Said:
    """A message that a new conversation begins with; no run of ours wrote it. The id is what it
    will be stored under, so that it has a name before."""

    role: str  # user | assistant
    text: str
    id: str = field(default_factory=new_id)


@dataclass(frozen=True, slots=True)
class Page:
    """Messages of one branch that follow each other, up to its end or to one that was named."""

    conversation: Conversation
    messages: list[Message]
    earlier: int  # messages of the branch before these
    siblings: dict[str, list[str]]  # of those that have other versions: the ids of all


@dataclass(frozen=True, slots=True)
class NewRun:
    """What is known of a run when it is accepted."""

    api: str  # native
    model: str
    params: dict[str, Any]  # resolved sampling options, the seed among them
    prompt: list[int]  # token ids
    vocab_hash: str
    template_hash: str
    interactive: bool = True
    idempotency_key: str | None = None
    request_hash: str | None = None


@dataclass(frozen=True, slots=True)
class Run:
    id: str
    owner: str
    conversation: str
    message: str  # id of the reply
    api: str
    model: str
    params: dict[str, Any]
    prompt: list[int]  # empty once the run has ended
    vocab_hash: str
    template_hash: str
    interactive: bool
    status: str
    stop_reason: str | None
    attempts: int  # times handed to an engine
    created_at: int
    ended_at: int | None = None
    error: str | None = None
    cancel_asked: bool = False


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """One numbered event as it lies in the log. `tokens` are the ids behind a delta's text."""

    seq: int
    type: str
    data: str  # JSON text, as wire.dump writes it
    tokens: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a run ended, written to the run and its reply with the terminal event."""

    status: str
    stop_reason: str
    text: str
    blocks: list[dict[str, Any]]
    tokens: list[int]
    error: str | None = None
    usage: dict[str, Any] | None = None
    timings: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Append:
    """New log rows of one run, and its end if it has come."""

    run: str
    events: list[LoggedEvent]
    end: RunEnd | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """A user message, the reply to come, and the run that will write it."""

    conversation: Conversation
    message: Message
    reply: Message
    run: Run
    created: bool  # False: the idempotency key named an earlier turn


@dataclass(frozen=True, slots=True)
class Replies:
    """A user's message and all replies to it, oldest first, each with its run."""

    conversation: Conversation
    message: Message
    replies: list[tuple[Message, Run | None]]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A user's message that has several replies."""

    conversation: str
    title: str
    message: str
    text: str  # the message's beginning
    replies: int
    created_at: int  # of the newest reply


@dataclass(frozen=True, slots=True)
class Hit:
    conversation: str
    title: str
    message: str
    role: str
    snippet: str  # plain text, matches between \x02 and \x03
    created_at: int
