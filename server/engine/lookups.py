"""Questions to the step thread about what is in the cells, which are waiting for their answer.

An answer is only worth something at once: whoever asks gives up after a moment, and the death of
a process answers everything with "not known". Bounded in number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hobnob.server.engine.protocol import Found

PATIENCE_SECONDS = 1.0
"""A step of a long prompt on a CPU can take longer; then the answer is not worth the wait."""

MAX_OPEN = 64


class Lookups:
    def __init__(self, patience_s: float = PATIENCE_SECONDS) -> None:
        self._patience_s = patience_s
        self._open: dict[int, asyncio.Future[int | None]] = {}
        self._last_id = 0

    async def put(self, ask: Callable[[int], None]) -> int | None:
        """The answer to what `ask` sends under the number it is given; None: not known now."""
        if len(self._open) >= MAX_OPEN:
            return None
        self._last_id += 1
        number = self._last_id
        answer: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._open[number] = answer
        try:
            ask(number)
            async with asyncio.timeout(self._patience_s):
                return await answer
        except TimeoutError:
            return None
        finally:
            del self._open[number]

    def answered(self, found: Found) -> None:
        """No effect when nobody waits for it any more."""
        answer = self._open.get(found.id)
        if answer is not None and not answer.done():
            answer.set_result(found.resident)

    def died(self) -> None:
        """The process that was asked is gone."""
        for answer in self._open.values():
            if not answer.done():
                answer.set_result(None)
