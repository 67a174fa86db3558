"""The load generator: many streams in one event loop, each with the time of every delta.

While a stream runs only times and raw lines are kept; the JSON is read when it is over, so that
the client costs the machine under test as little as it can. One clock: time.perf_counter.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from bench import statistics

Messages = Sequence[Mapping[str, str]]

READ_SECONDS = 300.0
"""A server that sends nothing for this long has failed."""


@dataclass(slots=True)
class Reply:
    """One streamed reply, as its client saw it."""

    sent: float
    lines: list[tuple[float, bytes]] = field(default_factory=list)
    ended: float = math.nan
    error: str | None = None
    finish: str | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    arrivals: list[float] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)

    @property
    def seen(self) -> int:
        """Lines so far: about the number of deltas, while the stream runs."""
        return len(self.lines)

    @property
    def complete(self) -> bool:
        return self.error is None and self.finish is not None

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def first_token_s(self) -> float:
        """Infinite where none came: late is late."""
        return self.arrivals[0] - self.sent if self.arrivals else math.inf

    @property
    def decode_tps(self) -> float:
        if not self.arrivals:
            return math.nan
        return statistics.rate(self.completion_tokens, self.arrivals[0], self.arrivals[-1])

    @property
    def gaps(self) -> list[float]:
        return statistics.gaps(self.arrivals)

    def delta(self, when: float, text: str) -> None:
        if text:
            self.arrivals.append(when)
            self.pieces.append(text)

    def close(self) -> None:
        """Servers that report no usage send a chunk for each token."""
        if not self.completion_tokens:
            self.completion_tokens = len(self.arrivals)


class Client:
    """Speaks to one server. `adapt` turns the common body into what that server understands."""

    def __init__(
        self, url: str, *, headers: Mapping[str, str], model: str, extra: Mapping[str, Any]
    ) -> None:
        self.model = model
        self._extra = dict(extra)
        self.http = httpx.AsyncClient(
            base_url=url,
            headers=dict(headers),
            timeout=httpx.Timeout(30.0, read=READ_SECONDS, pool=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
            trust_env=False,
        )

    async def close(self) -> None:
        await self.http.aclose()

    def start(
        self, messages: Messages, max_tokens: int, **options: Any
    ) -> tuple[Reply, asyncio.Task[Reply]]:
        """The reply fills while the task runs. Cancelling the task closes the connection."""
        reply = Reply(time.perf_counter())
        return reply, asyncio.create_task(
            self._run(reply, self._body(messages, max_tokens, options))
        )

    async def chat(self, messages: Messages, max_tokens: int, **options: Any) -> Reply:
        return await self.start(messages, max_tokens, **options)[1]

    async def together(
        self, many: Sequence[Messages], max_tokens: int | Sequence[int], **options: Any
    ) -> list[Reply]:
        """All at once; the order of the replies is that of the requests."""
        lengths = [max_tokens] * len(many) if isinstance(max_tokens, int) else max_tokens
        tasks = [
            self.start(messages, length, **{**options, "seed": options.get("seed", 1) + number})[1]
            for number, (messages, length) in enumerate(zip(many, lengths, strict=True))
        ]
        return list(await asyncio.gather(*tasks))

    def _body(
        self, messages: Messages, max_tokens: int, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Replies have a set length, drawn as a chat would draw them, unless asked otherwise."""
        return {
            "model": self.model,
            "messages": list(messages),
            "max_tokens": max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0.8,
            "top_k": 40,
            "top_p": 0.95,
            "min_p": 0.05,
            "seed": 1,
            **self._extra,
            **options,
        }

    async def _run(self, reply: Reply, body: Mapping[str, Any]) -> Reply:
        try:
            async with self.http.stream("POST", "/v1/chat/completions", json=body) as response:
                if response.status_code != 200:
                    await response.aread()
                    reply.error = f"{response.status_code} {response.text[:300]}"
                else:
                    await record(response, reply)
        except httpx.HTTPError as error:
            reply.error = f"{type(error).__name__}: {error}"
        finally:
            reply.ended = time.perf_counter()
            _read_chunks(reply)
        return reply


async def record(response: httpx.Response, reply: Reply) -> None:
    """Keeps the lines of an event stream with the time at which each was complete."""
    buffer = b""
    async for data in response.aiter_raw():
        now = time.perf_counter()
        *whole, buffer = (buffer + data).split(b"\n")
        for line in whole:
            if line.startswith((b"data:", b"event:")):
                reply.lines.append((now, line.rstrip()))


def _read_chunks(reply: Reply) -> None:
    """What the lines of a chat completion stream say."""
    for when, line in reply.lines:
        data = line.partition(b":")[2].strip()
        if not line.startswith(b"data:") or data == b"[DONE]":
            continue
        try:
            chunk = json.loads(data)
        except ValueError:
            reply.error = reply.error or f"unreadable chunk: {data[:80]!r}"
            continue
        if "error" in chunk:
            reply.error = json.dumps(chunk["error"])[:300]
            continue
        _take_chunk(reply, when, chunk)
    reply.close()


def _take_chunk(reply: Reply, when: float, chunk: Mapping[str, Any]) -> None:
    if usage := chunk.get("usage"):
        reply.prompt_tokens = usage["prompt_tokens"]
        reply.completion_tokens = usage["completion_tokens"]
        reply.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    for choice in chunk.get("choices", []):
        delta = choice.get("delta") or {}
        # A model that thinks sends its thoughts apart; they are tokens like any other.
        reply.delta(when, delta.get("content") or delta.get("reasoning_content") or "")
        reply.finish = choice.get("finish_reason") or reply.finish
