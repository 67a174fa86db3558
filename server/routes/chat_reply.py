"""The reply of /v1/chat/completions, whole or in chunks, from a run's events. Pure.

A failure inside a stream is an `error` object and then the end: no `finish_reason`, no
`[DONE]`, so that no client takes a piece for the whole.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hobnob.server import errors, wire
from hobnob.server.engine.protocol import Logprob
from hobnob.server.routes import envelopes

LOWEST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON cannot say."""
DONE = "data: [DONE]\n\n"

_FINISH = {
    wire.StopReason.END_TURN: "stop",
    wire.StopReason.STOP_STRING: "stop",
    wire.StopReason.MAX_TOKENS: "length",
    wire.StopReason.CONTEXT: "length",
    wire.StopReason.REFUSED: "content_filter",
}


class _TooLong(errors.InvalidRequest):
    """Found out only once the model had loaded; the message has both numbers."""

    code = errors.PromptTooLong.code


_FAILURES: dict[str, type[errors.HobnobError]] = {
    cls.code: cls
    for cls in (
        errors.QueueTimeout,
        errors.ModelLoading,
        errors.ServerStopping,
        errors.ModelUnavailable,
        errors.Busy,
        errors.InvalidRequest,
        errors.EngineFailed,
        _TooLong,
    )
}


@dataclass(frozen=True, slots=True)
class Header:
    """What every chunk of one reply repeats."""

    id: str
    created: int  # UTC seconds
    model: str  # the one that answers, whatever name it was asked for by
    fingerprint: str
    with_usage: bool = False  # a last chunk has the usage, so the others say null


@dataclass(slots=True)
class Outcome:
    """What a run's events come to."""

    text: list[str] = field(default_factory=list)
    logprobs: list[dict[str, Any]] = field(default_factory=list)
    usage: wire.Usage = field(default_factory=wire.Usage)
    finish_reason: str | None = None
    failure: errors.HobnobError | None = None

    def take(self, payload: wire.Payload, logprobs: Sequence[Logprob] = ()) -> str:
        """The text that this event adds."""
        self.logprobs += [_logprob(one) for one in logprobs]
        if isinstance(payload, wire.BlockDelta):
            self.text.append(payload.text)
            return payload.text
        if isinstance(payload, wire.MessageDelta):
            self.usage = payload.usage
            self.finish_reason = _FINISH.get(payload.stop_reason)
        elif isinstance(payload, wire.MessageStop):
            self._end(payload)
        elif isinstance(payload, wire.StreamError):
            self.failure = failure_of(payload.code, payload.message)
        return ""

    def _end(self, stop: wire.MessageStop) -> None:
        if stop.status in (wire.Status.FAILED, wire.Status.CANCELLED):
            error = stop.error or wire.Failure("internal", "The reply was cancelled.")
            self.failure = failure_of(error.code, error.message)
        else:
            self.finish_reason = _FINISH.get(stop.stop_reason, self.finish_reason)


def failure_of(code: str, message: str) -> errors.HobnobError:
    """The error behind a code that came through the event stream."""
    if code == errors.ServerStopping.code:
        message = "The server is stopping."  # these runs do not go on, whatever was said
    return _FAILURES.get(code, errors.Internal)(message)


def whole(header: Header, outcome: Outcome, *, with_logprobs: bool) -> dict[str, Any]:
    message = {"role": "assistant", "content": "".join(outcome.text), "refusal": None}
    choice = {
        "index": 0,
        "message": message,
        "logprobs": _logprobs(outcome.logprobs) if with_logprobs else None,
        "finish_reason": outcome.finish_reason,
    }
    reply = _head(header, "chat.completion")
    return {**reply, "choices": [choice], "usage": usage_json(outcome.usage)}


def chunk(
    header: Header,
    delta: dict[str, Any],
    *,
    logprobs: list[dict[str, Any]] | None = None,
    finish_reason: str | None = None,
) -> str:
    choice = {
        "index": 0,
        "delta": delta,
        "logprobs": _logprobs(logprobs) if logprobs else None,
        "finish_reason": finish_reason,
    }
    head = _head(header, "chat.completion.chunk")
    usage = {"usage": None} if header.with_usage else {}
    return _data({**head, "choices": [choice], **usage})


def usage_chunk(header: Header, usage: wire.Usage) -> str:
    head = _head(header, "chat.completion.chunk")
    return _data({**head, "choices": [], "usage": usage_json(usage)})


def error_block(error: Exception) -> str:
    problem = envelopes.problem_of(error)
    return _data(envelopes.envelope(envelopes.Api.OPENAI, problem))


def usage_json(usage: wire.Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


def _head(header: Header, kind: str) -> dict[str, Any]:
    return {
        "id": header.id,
        "object": kind,
        "created": header.created,
        "model": header.model,
        "system_fingerprint": header.fingerprint,
    }


def _logprobs(content: list[dict[str, Any]]) -> dict[str, Any]:
    return {"content": content, "refusal": None}


def _logprob(one: Logprob) -> dict[str, Any]:
    top = [_token(piece, value) for _, piece, value in one.top]
    return {**_token(one.piece, one.logprob), "top_logprobs": top}


def _token(piece: bytes, logprob: float) -> dict[str, Any]:
    """A token may be part of a character: `bytes` is exact, `token` is for reading."""
    value = logprob if math.isfinite(logprob) else LOWEST_LOGPROB
    return {"token": piece.decode("utf-8", "replace"), "logprob": value, "bytes": list(piece)}


def _data(value: dict[str, Any]) -> str:
    """ASCII only: some clients split lines at characters that are none to the standard."""
    return f"data: {json.dumps(value, separators=(',', ':'), allow_nan=False)}\n\n"
