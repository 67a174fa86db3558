"""An event loop whose clock moves only when everything waits: hours pass at once, always alike."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any


class _Selector(selectors.SelectSelector):
    """Waits for nothing: the time that would have passed has passed."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "everything waits for something that will never happen"
        self.loop.now += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """For code without threads and sockets."""

    def __init__(self, now: float = 0.0) -> None:
        selector = _Selector()
        selector.loop = self
        self.now = now
        super().__init__(selector)

    def time(self) -> float:
        return self.now
