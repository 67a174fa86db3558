"""Small values for tests of the store, with every field that the test does not care about."""

from __future__ import annotations

import json
from typing import Any

from hobnob.store.store import Store
from hobnob.store.values import Append, LoggedEvent, Message, NewRun, RunEnd, Turn

ME = "local"


class SettableClock:
    """UTC milliseconds that only move when a test says so."""

    def __init__(self) -> None:
        self.now = 1_800_000_000_000

    def __call__(self) -> int:
        return self.now


def new_run(**fields: Any) -> NewRun:
    values: dict[str, Any] = {
        "api": "native",
        "model": "tiny",
        "params": {"seed": 2**64 - 1, "temperature": 0.8},
        "prompt": [1, 2, 300, 70_000],
        "vocab_hash": "v1",
        "template_hash": "t1",
    }
    return NewRun(**(values | fields))


def start(seq: int, kind: str = "text", index: int = 0) -> LoggedEvent:
    return LoggedEvent(seq, "content_block_start", json.dumps({"index": index, "kind": kind}))


def delta(seq: int, text: str, tokens: list[int] | None = None, index: int = 0) -> LoggedEvent:
    data = json.dumps({"index": index, "text": text})
    return LoggedEvent(seq, "content_block_delta", data, tokens or [])


def stop(seq: int) -> LoggedEvent:
    return LoggedEvent(seq, "message_stop", json.dumps({"status": "completed"}))


def end(text: str, tokens: list[int] | None = None, **fields: Any) -> RunEnd:
    values: dict[str, Any] = {
        "status": "completed",
        "stop_reason": "end_turn",
        "text": text,
        "blocks": [{"type": "text", "text": text}],
        "tokens": tokens or [],
    }
    return RunEnd(**(values | fields))


async def first_turn(store: Store, text: str = "hello", owner: str = ME, **fields: Any) -> Turn:
    """A turn that begins a new conversation."""
    return await store.begin_turn(owner, None, parent=None, text=text, run=new_run(**fields))


async def said(store: Store, text: str, reply: str = "yes", owner: str = ME) -> Turn:
    """A whole turn in a new conversation: the message and the finished reply."""
    turn = await first_turn(store, text, owner)
    await answer(store, turn, reply)
    return turn


async def versions(store: Store, message: Message) -> list[str]:
    """Ids of the messages with the same parent, itself among them, in the order of writing."""
    tree = await store.messages(ME, message.conversation)
    return [one.id for one in tree if one.parent == message.parent]


async def answer(store: Store, turn: Turn, reply: str) -> None:
    """Ends the turn's run with this reply."""
    events = [start(1), delta(2, reply, [7, 8]), stop(3)]
    await store.append([Append(turn.run.id, events, end(reply, [7, 8]))])
