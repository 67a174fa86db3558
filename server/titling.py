"""Titles by the model: asked once a conversation has its first reply, or when somebody wants one.

The question is in memory only: no message and no run of the conversation. By itself it is asked
while nobody needs the engine, and ends when somebody comes. What is not asked by the end of the
process is never asked: the first words stay. A title that was set by a user, also meanwhile, stays.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from hobnob.server import errors, wire
from hobnob.server.live import LiveRun
from hobnob.server.requests import QuestionRequest
from hobnob.server.runs import Runs
from hobnob.server.title import title_from, title_of_reply
from hobnob.store.store import Store
from hobnob.store.values import Conversation, StoreError

TITLE_TOKENS = 32
MOST_WAITING = 64
"""Conversations whose first reply has ended while others were written; more keep their words."""
ATTEMPTS = 3
"""Somebody else may come as often before the words stay."""
LOOK_SECONDS = 0.25
PATIENCE_SECONDS = 600.0
"""How long nobody may be needing the engine before the words stay."""

REQUEST = (
    "Write a title for our conversation so far: at most six words, in the language of the "
    "conversation. Write the title and nothing else, on one line."
)
OPTIONS = {
    "temperature": 0,
    "mirostat": 0,
    "max_tokens": TITLE_TOKENS,
    "stop": ["\n"],
    "ignore_eos": False,
    "response_format": {"type": "text"},
}


class _First(NamedTuple):
    """A run that may be the first of its conversation that completed."""

    owner: str
    conversation: str
    run: str


class Titling:
    """Listens to the runs from here on."""

    def __init__(self, store: Store, runs: Runs) -> None:
        self._store = store
        self._runs = runs
        self._waiting: deque[_First] = deque()
        self._some = asyncio.Event()
        runs.listen(self._ended)

    def _ended(self, live: LiveRun) -> None:
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append(_First(live.job.owner, live.job.conversation, live.id))
            self._some.set()

    async def run(self) -> None:
        """Works until cancelled, on one conversation at a time."""
        while True:
            await self._some.wait()
            first = self._waiting.popleft()
            if not self._waiting:
                self._some.clear()
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await self._title(first)
            except (errors.HobnobError, StoreError, TimeoutError):
                continue  # the words stay; whoever wants another title says so

    async def _title(self, first: _First) -> None:
        for _ in range(ATTEMPTS):
            await asyncio.sleep(LOOK_SECONDS)  # who broke it off, or deletes, goes on meanwhile
            while not self._runs.free:
                await asyncio.sleep(LOOK_SECONDS)
            words = await self._words(first)
            if words is None:
                return
            try:
                title = await _ask(self._runs, first.owner, first.conversation, yields=True)
            except errors.ServerStopping:
                continue  # or somebody came
            except errors.Conflict:
                continue  # the next reply is being written already
            if title:
                await self._store.retitle(first.owner, first.conversation, title, was=words)
            return

    async def _words(self, first: _First) -> str | None:
        """The title, where it is the first words and the run is the first that completed."""
        begun = await self._store.beginning(first.owner, first.conversation, first.run)
        if begun is None or begun.title != title_from(begun.text):
            return None
        return begun.title


async def title_now(store: Store, runs: Runs, conversation: Conversation) -> bool:
    """Whether the model found one, and nobody set another meanwhile. Raises as `Runs.accept`."""
    owner, id = conversation.owner, conversation.id
    title = await _ask(runs, owner, id, yields=False)
    return bool(title) and await store.retitle(owner, id, title, was=conversation.title)


async def _ask(runs: Runs, owner: str, conversation: str, *, yields: bool) -> str:
    """What the model writes, made a title; empty where it is none. Raises ServerStopping when it
    was broken off, EngineFailed, and as `Runs.question`."""
    live = await runs.question(
        QuestionRequest(owner, conversation, REQUEST, OPTIONS, yields=yields)
    )
    try:
        async for event in live.read():
            if isinstance(event.payload, wire.MessageStop):
                return _title_of(live.text, event.payload)
    finally:
        runs.abandon(live)
    raise errors.ServerStopping("The server is stopping.")


def _title_of(text: str, stop: wire.MessageStop) -> str:
    if stop.status == wire.Status.COMPLETED:
        return title_of_reply(text)
    if stop.status == wire.Status.CANCELLED:
        raise errors.ServerStopping("The question for a title was broken off.")
    if stop.error is not None:
        raise errors.EngineFailed(stop.error.message)
    return ""  # cut before its end
