"""hobnob's native API, where a scenario needs it: stored conversations and the status."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

from bench.load import Client, Reply, record

API = "/hobnob/v1"
NEW = "new"
"""In place of a conversation: begin one."""


@dataclass(slots=True)
class Turn:
    conversation: str
    reply: Reply


async def status(client: Client) -> dict[str, Any]:
    response = await client.http.get(f"{API}/status")
    response.raise_for_status()
    found: dict[str, Any] = response.json()
    return found


async def send(client: Client, conversation: str, text: str, max_tokens: int, seed: int) -> Turn:
    """A message and the stream of its reply; `new` begins a conversation."""
    options = {"max_tokens": max_tokens, "seed": seed, "ignore_eos": True}
    reply = Reply(time.perf_counter())
    path = f"{API}/conversations/{conversation}/messages"
    accepted = await client.http.post(path, json={"text": text, "options": options})
    accepted.raise_for_status()
    body = accepted.json()
    async with client.http.stream("GET", accepted.headers["Location"]) as response:
        response.raise_for_status()
        await record(response, reply)
    reply.ended = time.perf_counter()
    _read_events(reply)
    return Turn(body["conversation"]["id"], reply)


def _read_events(reply: Reply) -> None:
    """What the lines of a run's event stream say."""
    kind = b""
    for when, line in reply.lines:
        name, _, value = line.partition(b":")
        if name == b"event":
            kind = value.strip()
            continue
        data = json.loads(value)
        if kind == b"content_block_delta":
            reply.delta(when, data["text"])
        elif kind == b"message_delta":
            usage = data["usage"]
            reply.prompt_tokens = usage["prompt_tokens"]
            reply.cached_tokens = usage["cached_tokens"]
            reply.completion_tokens = usage["completion_tokens"]
        elif kind == b"message_stop":
            reply.finish = data["stop_reason"]
            if data.get("error"):
                reply.error = data["error"]["message"]
        elif kind == b"error":
            reply.error = data["message"]
    reply.close()
