"""Questions to the engine's text thread that are waiting for their answer.

They survive the death of a process: the next one is asked again. One that was with two processes
when they died is given up, since it may be what killed them. Bounded in number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from hobnob.server.engine.protocol import Render, Rendered, Tokenize
from hobnob.server.errors import Busy, EngineFailed, HobnobError, InvalidRequest, TextTooLong

MAX_OPEN = 256
MAX_DEATHS = 2

Question = Render | Tokenize


@dataclass(slots=True)
class _Open:
    question: Question
    answer: asyncio.Future[list[int]]
    asked: bool = False  # of the present process
    deaths: int = 0


class Questions:
    def __init__(self) -> None:
        self._open: dict[int, _Open] = {}
        self._last_id = 0
        self._ask: Callable[[Question], None] | None = None  # set while a process can answer

    def next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    @property
    def open_count(self) -> int:
        return len(self._open)

    async def put(self, question: Question) -> list[int]:
        """The answer. Raises InvalidRequest (what the template said), EngineFailed or Busy."""
        if len(self._open) >= MAX_OPEN:
            raise Busy("Too many prompts are being read at once.", retry_after_s=1)
        waiting = _Open(question, asyncio.get_running_loop().create_future())
        self._open[question.id] = waiting
        try:
            self._put_to(waiting)
            return await waiting.answer
        finally:
            self._open.pop(question.id, None)

    def can_ask(self, ask: Callable[[Question], None]) -> None:
        """A process answers from now on: it is asked all that is open."""
        self._ask = ask
        for waiting in self._open.values():
            self._put_to(waiting)

    def answered(self, rendered: Rendered) -> None:
        """No effect when nobody waits for it any more."""
        waiting = self._open.get(rendered.id)
        if waiting is None or waiting.answer.done():
            return
        if rendered.error is None:
            waiting.answer.set_result(rendered.tokens)
        else:
            kind = TextTooLong if rendered.too_long else InvalidRequest
            waiting.answer.set_exception(kind(rendered.error, param="messages"))

    def died(self, reason: str) -> bool:
        """The process that was asked is gone. Whether it had something to answer."""
        self._ask = None
        reading = False
        for waiting in self._open.values():
            if waiting.asked:
                reading = True
                waiting.asked = False
                waiting.deaths += 1
                if waiting.deaths >= MAX_DEATHS and not waiting.answer.done():
                    error = EngineFailed(f"The prompt could not be read. {reason}")
                    waiting.answer.set_exception(error)
        return reading

    def refuse(self, error: HobnobError) -> None:
        """No process will answer: whoever waits is told."""
        for waiting in self._open.values():
            if not waiting.answer.done():
                waiting.answer.set_exception(error)

    def _put_to(self, waiting: _Open) -> None:
        if self._ask is not None and not waiting.asked:
            waiting.asked = True
            self._ask(waiting.question)
