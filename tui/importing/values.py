"""What a file with conversations is read into, whoever wrote it. Plain values."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

Block = dict[str, Any]
"""One part of a message: `{"type": "text" | "reasoning" | …, "text": …}`."""

USER = "user"
ASSISTANT = "assistant"
SYSTEM = "system"
NOBODY = ""
"""The role of a node that only holds a place in the tree: nothing of it is shown."""


class Unreadable(Exception):
    """The file, or one conversation of it, cannot be read: one sentence for a person."""


class Empty(Unreadable):
    """A conversation without a message."""


@dataclass(frozen=True, slots=True)
class Node:
    """One message, or a place in the tree where the file has something that is no message."""

    id: str  # as in the file
    parent: str | None = None
    role: str = NOBODY
    blocks: list[Block] = field(default_factory=list)
    created_at: int | None = None  # UTC milliseconds; None: the file does not say
    model: str | None = None
    status: str = "completed"
    stop_reason: str | None = None
    error: str | None = None
    usage: dict[str, Any] | None = None
    timings: dict[str, Any] | None = None
    left_out: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Found:
    """One conversation as a file has it, its tree as it is there."""

    source: str  # which tool's, a part of the ids that are made
    id: str  # as in the file, or made of its content
    nodes: list[Node]
    title: str = ""
    system: str | None = None
    head: str | None = None  # id of the newest node of the branch that is shown
    settings: dict[str, Any] = field(default_factory=dict)
    pinned: bool = False
    created_at: int | None = None
    updated_at: int | None = None
    left_out: Counter[str] = field(default_factory=Counter)
    ours: bool = False  # from hobnob: ids, order and empty replies stay as they are


@dataclass(frozen=True, slots=True)
class Ready:
    """A conversation as it is posted, and what of the file's is not in it."""

    body: dict[str, Any]
    left_out: Counter[str]

    @property
    def id(self) -> str:
        return str(self.body["id"])

    @property
    def title(self) -> str:
        return str(self.body["title"])


@dataclass(frozen=True, slots=True)
class Reading:
    """All of a file: what can be imported, in the order in which it is to be, and the rest."""

    tool: str  # for people
    found: list[Found]
    unreadable: list[str] = field(default_factory=list)  # a sentence for each conversation
    left_out: Counter[str] = field(default_factory=Counter)


def words(left_out: Counter[str]) -> str:
    """Such as `3 images, 1 file`; empty when nothing was left out."""
    return ", ".join(
        f"{count} {kind if count == 1 else _plural(kind)}"
        for kind, count in sorted(left_out.items())
        if count
    )


def _plural(kind: str) -> str:
    """Of its first word where more follow it: `reply that …`, `part of …`."""
    noun, between, rest = kind.partition(" of ")
    noun = f"{noun[:-1]}ies" if noun.endswith("ply") else f"{noun}s"
    return noun + between + rest
