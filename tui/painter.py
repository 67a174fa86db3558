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
BYTES_PER_SECOND = 12_000
"""No more is written while a reply streams, as far as that leaves enough repaints: what a thin
line to a far machine takes. Most repaints are a few hundred bytes, and are not held up."""
MAX_SENDING_SECONDS = 0.2
MAX_SENDING_SECONDS_FAR = 0.5
"""Over SSH, where the line may really be thin: beside a list every row that moves up has its
neighbour in the list drawn again, and a repaint is some thousand bytes."""


class Painter:
    def __init__(
        self,
        view: TranscriptView,
        written: Callable[[], int] = lambda: 0,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        """`written`: bytes to the terminal so far."""
        far = "SSH_CONNECTION" in environ or "SSH_TTY" in environ
        self._max_sending = MAX_SENDING_SECONDS_FAR if far else MAX_SENDING_SECONDS
        self._view = view
        self._written = written
        self._dirty: Entry | None = None
        self._timer: Timer | None = None
        self._painted = 0.0
        self._cost = 0.0
        self._sending = 0.0  # what a thin line needs for the last one

    def touch(self, entry: Entry) -> None:
        """An entry has changed."""
        self._dirty = entry
        if self._timer is None:
            pause = max(REPAINT_SECONDS, self._cost * PAUSE_PER_COST, self._sending)
            wait = pause - (time.monotonic() - self._painted)
            self._timer = self._view.set_timer(max(wait, 0.001), self.flush)

    def flush(self) -> None:
        """Draw now what has changed."""
        self._stop()
        if self._dirty is not None:
            entry, self._dirty = self._dirty, None
            self._painted = time.monotonic()
            self._view.sync(entry)
            self._view.call_after_refresh(self._measure, self._painted, self._written())

    def forget(self) -> None:
        """Another conversation is shown."""
        self._stop()
        self._dirty = None

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def _measure(self, started: float, written: int) -> None:
        self._cost = min(time.monotonic() - started, MAX_COST_SECONDS)
        size = self._written() - written
        self._sending = min(size / BYTES_PER_SECOND, self._max_sending)
