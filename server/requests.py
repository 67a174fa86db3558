"""What the HTTP edge hands to `Runs`: plain values, already free of HTTP and pydantic."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hobnob.server.engine.protocol import ChatMessage
from hobnob.store.values import Said

ROOT = "root"
"""As `TurnRequest.parent`: a first message of the conversation (an edited one, for instance)."""


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """A user message to which a reply is wanted."""

    owner: str
    conversation: str | None  # None: begin a new one with `system`, `title`, `settings`
    text: str
    parent: str | None = None  # None: the conversation's head; ROOT: no parent
    options: Mapping[str, Any] = field(default_factory=dict)  # as sampling_options.resolve takes
    instructions: str | None = None  # the system prompt of this reply alone; None: as ever
    aside: bool = False  # the conversation's head stays where it is
    about: str | None = None  # a reply: asked at its branch's end, though it stands at the root
    system: str | None = None
    title: str | None = None  # None: made from the text
    settings: Mapping[str, Any] = field(default_factory=dict)
    temporary: bool = False  # the new conversation is in no list and goes with who holds it
    history: Sequence[Said] = ()  # what the new conversation begins with, before `text`
    idempotency_key: str | None = None
    interactive: bool = True

    @property
    def request_hash(self) -> str:
        """The same for the same request; the key itself is not part of it."""
        return _hash(
            "turn",
            self.conversation,
            self.parent,
            self.text,
            dict(self.options),
            self.instructions,
            self.aside,
            self.system,
            self.title,
            dict(self.settings),
            self.temporary,
            *([[(one.role, one.text) for one in self.history]] if self.history else []),
            *([] if self.about is None else [self.about]),
        )

    @property
    def first_text(self) -> str:
        """The user's first words of the conversation, where it is a new one."""
        return self.history[0].text if self.history else self.text


@dataclass(frozen=True, slots=True)
class ReplyRequest:
    """Another reply to a user message that is stored already (regenerate)."""

    owner: str
    conversation: str
    parent: str  # id of the user message
    options: Mapping[str, Any] = field(default_factory=dict)
    instructions: str | None = None
    aside: bool = False
    idempotency_key: str | None = None
    interactive: bool = True

    @property
    def request_hash(self) -> str:
        return _hash(
            "reply",
            self.conversation,
            self.parent,
            dict(self.options),
            self.instructions,
            self.aside,
        )


@dataclass(frozen=True, slots=True)
class ContinueRequest:
    """Another version of a reply that was cut, which begins with what there is of it."""

    owner: str
    conversation: str
    message: str  # id of the reply
    options: Mapping[str, Any] = field(default_factory=dict)  # over those that it was asked with
    aside: bool = False
    idempotency_key: str | None = None
    interactive: bool = True

    @property
    def request_hash(self) -> str:
        return _hash("continue", self.conversation, self.message, dict(self.options), self.aside)


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A reply to given messages that is not stored and ends with its client (`/v1`)."""

    owner: str
    messages: list[ChatMessage]
    options: Mapping[str, Any] = field(default_factory=dict)
    interactive: bool = True


@dataclass(frozen=True, slots=True)
class QuestionRequest:
    """Asked at the end of what is shown of a conversation; neither it nor its answer is stored."""

    owner: str
    conversation: str
    text: str
    options: Mapping[str, Any] = field(default_factory=dict)  # the conversation's do not count
    yields: bool = False  # it ends as soon as any other run comes

    @property
    def interactive(self) -> bool:
        return not self.yields


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The bounds and defaults of runs, from the config. See docs for each."""

    model: str = ""  # the model's id as clients see it; empty: the name in its file
    max_running: int = 8  # sequences of the engine
    max_waiting: int = 32  # runs accepted beyond those
    max_waiting_tokens: int = 262_144  # prompt tokens of waiting runs together
    queue_timeout_s: float = 300.0  # wait in the engine's queue while it is ready; 0: do not wait
    reply_tokens: int = 1024  # room that planning keeps free for a reply without max_tokens
    max_text_bytes: int = 1_048_576  # of one message, checked before it is tokenised
    wait_for_model: bool = True  # False: 503 model_loading while the weights load
    recover_age_s: float = 600.0  # at start, older runs in flight end as failed
    finished_kept: int = 64  # ended runs kept in memory for late readers
    finished_kept_bytes: int = 8 * 1024 * 1024
    store_retry_s: float = 0.5  # between attempts while the store cannot write
    store_patience_s: float = 1.0  # for one append; then replies are shown before they are saved
    sampling: Mapping[str, Any] = field(default_factory=dict)  # default options


def _hash(*parts: Any) -> str:
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
