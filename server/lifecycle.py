"""Whether the server is wanted: requests under way, time of the last one, and the wish to stop.

Owned by the event loop. Knows neither HTTP nor what stopping takes; main.py acts on it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Lifecycle:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stop = asyncio.Event()
        self.failed = False
        """It stops because of a fault of ours, and should be started again."""
        self.restarting = False
        """Another server takes its place at once, as whoever wished for the stop says."""
        self._started = self._last = clock()
        self._busy = 0

    @property
    def uptime_s(self) -> float:
        return self._clock() - self._started

    @property
    def stopping(self) -> bool:
        """True from the first wish to stop on; never False again."""
        return self._stop.is_set()

    def request_stop(self) -> None:
        """Safe to call twice. New work is refused from now on."""
        self._stop.set()

    def request_restart(self) -> None:
        """`request_stop`, by who starts another server. A wish to stop that came before holds."""
        self.restarting = self.restarting or not self.stopping
        self.request_stop()

    def fail(self) -> None:
        """Asks to stop, and says by the exit code that it was not wished for."""
        self.failed = True
        self.request_stop()

    async def stop_requested(self) -> None:
        await self._stop.wait()

    @contextmanager
    def request(self) -> Iterator[None]:
        """Held while a request that counts as use is answered."""
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            self._last = self._clock()

    def touch(self) -> None:
        """Counts as use: something goes on without a request."""
        self._last = self._clock()

    def idle_s(self) -> float:
        """Seconds since the server was last used; 0 while it is."""
        return 0.0 if self._busy else self._clock() - self._last
