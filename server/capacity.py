"""From two numbers to every bound that depends on them. Pure, and explained line by line.

`streams` replies at once and `reply_tokens` per reply say what the server is for; sequences,
queue and buffers follow. What is set by hand in the configuration is taken as it is. The cells
are the engine's choice, which knows the model and the memory, unless they are configured.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

QUEUE_PER_STREAM = 4
PROMPT_PER_REPLY = 8  # a waiting run's prompt is taken to be that many times its reply
SLOW_TOKEN_SECONDS = 0.1  # between two tokens of one reply of a full batch, on a small machine
KEPT_PER_STREAM = 8
BYTES_PER_KEPT_TOKEN = 512  # of a log in memory: text, ids and the JSON around them

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the configuration says. None: derive it."""

    streams: int = 8
    reply_tokens: int = 1024
    sequences: int | None = None
    queue: int | None = None
    queue_tokens: int | None = None
    queue_timeout_s: float | None = None
    kept_replies: int | None = None


@dataclass(frozen=True, slots=True)
class Capacity:
    sequences: int  # replies generated at once
    reply_tokens: int  # room that planning keeps free for a reply
    queue: int  # runs that may wait beyond those
    queue_tokens: int  # their prompts together
    queue_timeout_s: float
    kept_replies: int  # ended ones, in memory for clients that come back
    kept_bytes: int
    explain: list[str] = field(default_factory=list)  # one line for each choice


def derive(wishes: Wishes) -> Capacity:
    """All bounds, and why they are what they are."""
    explain: list[str] = []

    def take(name: str, given: _Number | None, derived: _Number, why: str) -> _Number:
        value = derived if given is None else given
        explain.append(f"{name}: {value:.12g} ({why if given is None else 'as configured'})")
        return value

    reply = wishes.reply_tokens
    sequences = take(
        "sequences", wishes.sequences or None, wishes.streams, "one for each of capacity.streams"
    )
    queue = take(
        "queue",
        wishes.queue,
        QUEUE_PER_STREAM * wishes.streams,
        f"{QUEUE_PER_STREAM} for each stream",
    )
    queue_tokens = take(
        "queue_tokens",
        wishes.queue_tokens,
        max(queue, 1) * PROMPT_PER_REPLY * reply,
        f"for each that waits {PROMPT_PER_REPLY} times capacity.reply_tokens",
    )
    queue_timeout_s = take(
        "queue_timeout_s",
        wishes.queue_timeout_s,
        -(-queue // sequences) * reply * SLOW_TOKEN_SECONDS,
        f"until the last one begins, at {SLOW_TOKEN_SECONDS} s for a token",
    )
    kept = take(
        "kept_replies",
        wishes.kept_replies,
        KEPT_PER_STREAM * wishes.streams,
        f"{KEPT_PER_STREAM} for each stream",
    )
    return Capacity(
        sequences=sequences,
        reply_tokens=reply,
        queue=queue,
        queue_tokens=queue_tokens,
        queue_timeout_s=queue_timeout_s,
        kept_replies=kept,
        kept_bytes=kept * reply * BYTES_PER_KEPT_TOKEN,
        explain=explain,
    )
