"""A reply that was cut, gone on with: what is kept of it, and how the new reply's log begins.

The new reply is a version beside the one that was cut, which stays as it is. Its run is one that
has already drawn the kept ids, like that of an earlier server. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec.structs import replace as changed

from hobnob.server import sampling_options, wire
from hobnob.server.context import Plan
from hobnob.server.errors import Conflict, InvalidRequest
from hobnob.server.log import LogEntry
from hobnob.server.sampling_options import Options
from hobnob.store.values import LIVE, Message, Run, Turn

CUT = frozenset({wire.Status.LENGTH, wire.Status.CANCELLED, wire.Status.FAILED})
"""How a reply ended that can be gone on with."""

CONTINUED = "continued"
"""In a run's params: which reply it goes on with, and how many of its tokens are of that one."""

_NO_CHARACTER = "\ufffd"


@dataclass(frozen=True, slots=True)
class Kept:
    """What a new run takes over from one that was cut. With no ids, though there is text, these
    are to be made from it: another tokenizer's, or lost with a damaged log."""

    message: str  # id of the reply
    text: str
    tokens: list[int]
    options: dict[str, Any]  # as they were for that run, its seed among them
    asked: dict[str, Any]  # of these, what was asked for beyond the conversation's settings
    instructions: str | None


def kept_of(reply: Message, run: Run | None, vocab_hash: str) -> Kept:
    """Raises InvalidRequest and Conflict for a message that cannot be gone on with."""
    if reply.role != "assistant":
        raise InvalidRequest("Only a reply can be gone on with.", param="continue")
    if reply.status in LIVE:
        raise Conflict("The reply is still being written.")
    if reply.status not in CUT:
        raise Conflict("The reply has ended by itself; there is nothing to go on with.")
    ours = reply.vocab_hash == vocab_hash
    tokens = list(reply.tokens or []) if ours else []
    options = _options_of(run) if run is not None else {}
    if not ours:
        options.pop("logit_bias", None)  # of ids that mean something else here
    asked = _object(run.params.get("asked")) if run is not None else {}
    instructions = asked.get("instructions")
    return Kept(
        message=reply.id,
        text=reply.text if tokens else reply.text.rstrip(_NO_CHARACTER),
        tokens=tokens,
        options=options,
        asked=_object(asked.get("options")),
        instructions=instructions if isinstance(instructions, str) else None,
    )


def grown(options: Options, kept: Kept) -> Options:
    """With room for the kept tokens: `max_tokens` is meant for what is still to come."""
    sampling = options.sampling
    if not sampling.max_tokens:
        return options
    most = sampling_options.INTEGERS["max_tokens"][1]
    max_tokens = min(sampling.max_tokens + len(kept.tokens), most)
    return replace(options, sampling=changed(sampling, max_tokens=max_tokens))


def opening(kept: Kept, stops: Sequence[str], plan: Plan, seed: int, turn: Turn) -> list[LogEntry]:
    """The events that the new run's log begins with: those before any text, and the kept text."""
    payloads: list[wire.Payload] = [
        wire.Context(len(plan.prompt), plan.n_ctx, plan.included, plan.left_out),
        wire.MessageStart(
            run=turn.run.id,
            conversation=turn.conversation.id,
            message=turn.reply.id,
            model=turn.run.model,
            seed=seed,
            exact=False,  # nobody knows any more how the kept ids were computed
        ),
        wire.BlockStart(index=0),
    ]
    entries = [LogEntry(seq, payload, [], []) for seq, payload in enumerate(payloads, start=1)]
    if kept.tokens:
        delta = wire.BlockDelta(index=0, text=certain(kept.text, stops))
        entries.append(LogEntry(len(entries) + 1, delta, kept.tokens, []))
    return entries


def certain(text: str, stops: Sequence[str]) -> str:
    """The text without an end that may become another: half a character (shown as U+FFFD), or
    what may be the beginning of a stop string. The engine shows it again when it knows."""
    text = text.rstrip(_NO_CHARACTER)
    held = max(
        (size for stop in stops for size in range(1, len(stop)) if text.endswith(stop[:size])),
        default=0,
    )
    return text[: len(text) - held]


def _options_of(run: Run) -> dict[str, Any]:
    """What it was given, as a layer of options."""
    options = {name: run.params[name] for name in sampling_options.NAMES if name in run.params}
    before = _object(run.params.get(CONTINUED)).get("tokens")
    if isinstance(before, int) and options.get("max_tokens"):
        options["max_tokens"] = max(options["max_tokens"] - before, 1)
    return options


def _object(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}
