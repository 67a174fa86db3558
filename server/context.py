"""What of a conversation goes into the prompt, and what is left out.

Pure but for the renderer that it is given: exact counts through the model's own template.
Whole oldest turns are left out until the prompt and the room kept for the reply fit the window;
never the system message, never a summary, never the newest user message. O(log n) renderings for
n turns.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from hobnob.server.engine.protocol import ChatMessage
from hobnob.server.errors import EmptyPrompt, PromptTooLong

Renderer = Callable[[list[ChatMessage]], Awaitable[list[int]]]

MIN_REPLY_TOKENS = 1
"""A prompt that fills the window to the last token leaves nothing to generate."""

WHOLE_FIRST_BYTES_PER_TOKEN = 16
"""A history of more bytes per token of the window than this is never rendered whole: hardly any
text has such long tokens, and a conversation of years must not be tokenised for every message."""

MERGED_WITH = "\n\n"
"""Between user messages that follow each other (their replies were left out as empty):
templates that insist on user and assistant in turn would refuse them."""


@dataclass(frozen=True, slots=True)
class Item:
    """One message of the history. `id` is None for the message that is not stored yet."""

    message: ChatMessage
    id: str | None = None
    summary: bool = False
    """It stands for what was said before, and is left out never."""


@dataclass(frozen=True, slots=True)
class Plan:
    messages: list[ChatMessage]
    prompt: list[int]
    included: int  # stored and new messages in the prompt, the system message not counted
    n_ctx: int
    left_out: list[str] = field(default_factory=list)  # ids, oldest first


async def plan(history: Sequence[Item], render: Renderer, *, n_ctx: int, reserve: int) -> Plan:
    """The longest run of newest turns that fits. `reserve`: tokens to keep free for the reply.

    Where even the newest message alone cannot leave that much room, less is kept, down to
    MIN_REPLY_TOKENS. Raises PromptTooLong when that does not fit either.
    """
    split = _Split.of(history)
    limit = n_ctx - max(reserve, MIN_REPLY_TOKENS)
    search = _Search(split, render, limit)
    kept, prompt = await search.run(whole_first=split.size_bytes <= _whole_bytes(n_ctx))
    if len(prompt) + MIN_REPLY_TOKENS > n_ctx:
        raise PromptTooLong(len(prompt), n_ctx)
    messages = split.messages(kept)
    left_out = [item.id for turn in split.older[: len(split.older) - kept] for item in turn]
    return Plan(
        messages=messages,
        prompt=prompt,
        included=len(split.spoken) - len(left_out),
        n_ctx=n_ctx,
        left_out=[id_ for id_ in left_out if id_ is not None],
    )


@dataclass(frozen=True, slots=True)
class _Split:
    """What is never left out, older turns, and the turn that is being asked."""

    front: list[Item]
    """System messages, and after them a summary."""
    older: list[list[Item]]
    newest: list[Item]
    size_bytes: int

    @classmethod
    def of(cls, history: Sequence[Item]) -> _Split:
        front = []
        rest = list(history)
        while rest and (rest[0].message.role == "system" or rest[0].summary):
            front.append(rest.pop(0))
        turns: list[list[Item]] = []
        for item in rest:
            if item.message.role == "user" or not turns:
                turns.append([])
            turns[-1].append(item)
        if not turns:
            raise EmptyPrompt("There is no message to reply to.", param="messages")
        size = sum(len(item.message.text.encode("utf-8", "replace")) for item in history)
        return cls(front, turns[:-1], turns[-1], size)

    @property
    def spoken(self) -> list[Item]:
        """All but the system messages."""
        items = [*self.front, *(item for turn in self.older for item in turn), *self.newest]
        return [item for item in items if item.message.role != "system"]

    def messages(self, kept: int) -> list[ChatMessage]:
        """The messages with the `kept` newest of the older turns."""
        turns = self.older[len(self.older) - kept :]
        items = [*self.front, *(item for turn in turns for item in turn), *self.newest]
        merged: list[ChatMessage] = []
        for item in items:
            if merged and merged[-1].role == item.message.role == "user":
                merged[-1] = ChatMessage("user", merged[-1].text + MERGED_WITH + item.message.text)
            else:
                merged.append(item.message)
        return merged


class _Search:
    """Finds the largest number of older turns whose rendering stays within `limit` tokens."""

    def __init__(self, split: _Split, render: Renderer, limit: int):
        self._split = split
        self._render = render
        self._limit = limit
        self._best: tuple[int, list[int]] = (0, [])

    async def run(self, *, whole_first: bool) -> tuple[int, list[int]]:
        """The number and its prompt. With 0, the prompt may be over the limit."""
        total = len(self._split.older)
        if whole_first and total and await self._fits(total):
            return self._best
        if not await self._fits(0) or total == 0:
            return self._best
        too_many = total if whole_first else total + 1
        step = 1
        while self._best[0] + step < too_many:  # gallop: no rendering is far over the window
            if await self._fits(self._best[0] + step):
                step *= 2
            else:
                too_many = self._best[0] + step
        await self._bisect(too_many)
        return self._best

    async def _bisect(self, too_many: int) -> None:
        while too_many - self._best[0] > 1:
            middle = (self._best[0] + too_many) // 2
            if not await self._fits(middle):
                too_many = middle

    async def _fits(self, kept: int) -> bool:
        prompt = await self._render(self._split.messages(kept))
        fits = len(prompt) <= self._limit
        if fits or kept == 0:
            self._best = (kept, prompt)
        return fits


def _whole_bytes(n_ctx: int) -> int:
    return WHOLE_FIRST_BYTES_PER_TOKEN * n_ctx
