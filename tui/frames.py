"""When a screen is drawn: as soon as something on it has changed, but not all the time.

Textual draws at the ticks of a clock, and after a frame that took longer than from one tick to the
next it leaves the one that follows out: a key pressed while a reply was drawn was seen up to two
ticks, 33 ms, after it could be (measured with Textual 8.2.8). Here a frame begins when it is wanted
and a tick has passed since the last one began.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from textual.timer import EventTargetGone, Timer, TimerCallback

if TYPE_CHECKING:
    from textual.screen import Screen

    _Screen = Screen[Any]
else:
    _Screen = object

BREATH_SECONDS = 0.004
"""At least so long after a frame: what was pressed while it was drawn reaches its widget."""
UPDATES = "screen_update"
"""What Textual calls the timer of a screen's frames."""


class FrameTimer(Timer):
    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._active.wait()
            began = loop.time()
            try:
                await self._tick(next_timer=began, count=0)
            except EventTargetGone:
                return
            await asyncio.sleep(max(began + self._interval - loop.time(), BREATH_SECONDS))


class Framed(_Screen):
    """Mix it in before a class of screens. No widget itself: Textual takes styles, component
    classes and keys from the first base that is one, and a screen must have those of a screen."""

    def set_interval(
        self,
        interval: float,
        callback: TimerCallback | None = None,
        *,
        name: str | None = None,
        repeat: int = 0,
        pause: bool = False,
    ) -> Timer:
        if name != UPDATES:
            return super().set_interval(interval, callback, name=name, repeat=repeat, pause=pause)
        timer = FrameTimer(self, interval, name=name, callback=callback, pause=pause)
        timer._start()
        self._timers.add(timer)
        return timer
