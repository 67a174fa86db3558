"""When a reply that streams is drawn: soon, not more often than the eye can use, and less often
on a screen that is slow to draw, so that keys are always answered first."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

from textual.timer import Timer

from hobnob.tui.transcript import Entry
from hobnob.tui.view import TranscriptView

REPAINT_SECONDS = 1 / 15
PAUSE_PER_COST = 4
"""A repaint is followed by a pause of so many times what it took."""
MAX_COST_SECONDS = 0.1
BYTES_PER_SECOND = 10_000
"""Over SSH no more is written while a reply streams, as far as that leaves enough repaints. Beside
a list every row that moves up has its neighbour in the list drawn again, and a repaint is some
thousand bytes."""
MAX_SENDING_SECONDS = 0.5


class Painter:
    def __init__(
        self,
        view: TranscriptView,
        written: Callable[[], int] = lambda: 0,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        """`written`: bytes to the terminal so far."""
        self._far = "SSH_CONNECTION" in environ or "SSH_TTY" in environ
        self._view = view
        self._written = written
        self._dirty: Entry | None = None
        self._timer: Timer | None = None
        self._painted = 0.0
        self._cost = 0.0
        self._before = 0  # bytes written before it

    def touch(self, entry: Entry) -> None:
        """An entry has changed."""
        self._dirty = entry
        if self._timer is None:
            self._timer = self._view.set_timer(max(self._wait(), 0.001), self._due)

    def _wait(self) -> float:
        """Seconds until the next repaint may be."""
        pause = max(REPAINT_SECONDS, self._cost * PAUSE_PER_COST)
        if self._far:
            sent = self._written() - self._before
            pause = max(pause, min(sent / BYTES_PER_SECOND, MAX_SENDING_SECONDS))
        return pause - (time.monotonic() - self._painted)

    def _due(self) -> None:
        """The last repaint may have been written only after this one was planned."""
        wait = self._wait()
        if wait > 0.001:
            self._timer = self._view.set_timer(wait, self._due)
        else:
            self.flush()

    def flush(self) -> None:
        """Draw now what has changed."""
        self._stop()
        if self._dirty is not None:
            entry, self._dirty = self._dirty, None
            self._painted = time.monotonic()
            self._before = self._written()
            self._view.sync(entry)
            self._view.call_after_refresh(self._measure, self._painted)

    def forget(self) -> None:
        """Another conversation is shown."""
        self._stop()
        self._dirty = None

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def _measure(self, started: float) -> None:
        self._cost = min(time.monotonic() - started, MAX_COST_SECONDS)
