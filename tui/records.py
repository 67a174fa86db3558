"""What the native API answers, as plain values. Fields that are not known here are ignored."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from hobnob.tui.notice import ClientError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Conversation:
    id: str
    title: str = ""
    system: str | None = None
    head: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    pinned: bool = False  # stands first in the list
    temporary: bool = False  # in no list, and deleted when nobody holds it
    created_at: int = 0  # UTC milliseconds, as every *_at
    updated_at: int = 0
    change: int = 0  # grows on every write; the list is ordered by it


@dataclass(frozen=True, slots=True)
class Message:
    id: str
    conversation: str = ""
    parent: str | None = None
    role: str = ""  # user | assistant
    text: str = ""
    status: str = ""  # a wire.Status
    created_at: int = 0
    model: str | None = None
    stop_reason: str | None = None
    error: str | None = None
    usage: dict[str, Any] | None = None
    timings: dict[str, Any] | None = None
    run: str | None = None
    blocks: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Run:
    id: str
    conversation: str = ""
    message: str = ""  # id of the reply
    model: str = ""
    status: str = ""
    stop_reason: str | None = None
    error: str | None = None
    params: dict[str, Any] = field(default_factory=dict)  # options as resolved, and what was asked


@dataclass(frozen=True, slots=True)
class Turn:
    """The answer to a message that was accepted: it, the reply to come, and its run."""

    conversation: Conversation
    message: Message
    reply: Message
    run: Run


@dataclass(frozen=True, slots=True)
class Branch:
    """One path through a conversation, root to leaf, or the end of it.

    `siblings` maps the id of each message that has alternatives to the ids of all of them.
    """

    conversation: Conversation
    messages: list[Message] = field(default_factory=list)
    siblings: dict[str, list[str]] = field(default_factory=dict)
    earlier: int = 0  # messages of the path before these

    def after(self, before: Branch) -> Branch:
        """Together with the part of the path that ends where this one begins."""
        messages = [*before.messages, *self.messages]
        siblings = {**before.siblings, **self.siblings}
        return Branch(self.conversation, messages, siblings, before.earlier)


@dataclass(frozen=True, slots=True)
class Replies:
    """All replies to a user's message, oldest first, each with the run that wrote it."""

    conversation: Conversation
    message: Message
    replies: list[tuple[Message, Run]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A user's message with several replies."""

    conversation: str
    message: str
    title: str = ""
    text: str = ""  # the message's beginning
    replies: int = 0
    created_at: int = 0


@dataclass(frozen=True, slots=True)
class Tree:
    """A whole conversation: every message in the order of writing, parents before children."""

    conversation: Conversation
    messages: list[Message] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Hit:
    conversation: str
    title: str = ""
    message: str = ""
    role: str = ""
    snippet: str = ""  # matches between \x02 and \x03
    created_at: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What a message would put into the prompt if it were sent now."""

    text_tokens: int = 0  # of the message alone
    prompt_tokens: int = 0
    cached_tokens: int | None = None  # of these, not to be computed again; None: not known
    n_ctx: int = 0
    included: int = 0
    left_out: list[str] = field(default_factory=list)  # ids of messages


@dataclass(frozen=True, slots=True)
class Counted:
    tokens: int


def build(cls: type[T], raw: Any) -> T:
    """A value from its JSON object. Raises ClientError when it is not one."""
    if not isinstance(raw, dict):
        raise _odd(f"expected an object for {cls.__name__}")
    known = {f.name: raw[f.name] for f in fields(cls) if f.name in raw}  # type: ignore[arg-type]
    try:
        return cls(**known)
    except TypeError:
        raise _odd(f"a {cls.__name__} lacks a field") from None


def branch(raw: Any) -> Branch:
    flat = build(Branch, raw)
    return Branch(
        build(Conversation, flat.conversation),
        [build(Message, one) for one in items(raw, "messages")],
        flat.siblings,
        flat.earlier if isinstance(flat.earlier, int) else 0,
    )


def tree(raw: Any) -> Tree:
    flat = build(Tree, raw)
    return Tree(
        build(Conversation, flat.conversation),
        [build(Message, one) for one in items(raw, "messages")],
    )


def turn(raw: Any) -> Turn:
    flat = build(Turn, raw)
    return Turn(
        build(Conversation, flat.conversation),
        build(Message, flat.message),
        build(Message, flat.reply),
        build(Run, flat.run),
    )


def replies(raw: Any) -> Replies:
    flat = build(Replies, raw)
    return Replies(
        build(Conversation, flat.conversation),
        build(Message, flat.message),
        [_reply(one) for one in items(raw, "replies")],
    )


def _reply(raw: Any) -> tuple[Message, Run]:
    """A reply without a run is one that was read in from elsewhere."""
    if not isinstance(raw, dict):
        raise _odd("a reply is not an object")
    return build(Message, raw.get("reply")), build(Run, raw.get("run") or {"id": ""})


def items(raw: Any, name: str) -> list[Any]:
    """The list under `name`. Raises ClientError."""
    found = raw.get(name) if isinstance(raw, dict) else None
    if not isinstance(found, list):
        raise _odd(f"there is no list of {name}")
    return found


def _odd(what: str) -> ClientError:
    return ClientError("bad_answer", f"The server's answer is odd: {what}.")
