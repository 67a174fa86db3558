"""When a reply that streams is drawn: by a clock that the test turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hobnob.tui import painter
from hobnob.tui.painter import Painter
from hobnob.tui.transcript import Entry, Part

PIECES_PER_SECOND = 200
SECONDS = 10


class Timer:
    def __init__(self, due: float, act: Callable[[], None]) -> None:
        self.due, self.act, self.stopped = due, act, False

    def stop(self) -> None:
        self.stopped = True


class Screen:
    """The view as far as the painter knows it, on which drawing takes some time."""

    def __init__(self, cost_s: float, size: int = 0, *, late: bool = False) -> None:
        self.now = 0.0
        self.written = 0
        self._size = size
        self._late = late
        self.drawn: list[tuple[float, str]] = []
        self._cost_s = cost_s
        self._timers: list[Timer] = []

    def set_timer(self, delay: float, act: Callable[[], None]) -> Timer:
        self._timers.append(Timer(self.now + delay, act))
        return self._timers[-1]

    def sync(self, entry: Entry) -> None:
        self.drawn.append((self.now, entry.text))

    def call_after_refresh(self, act: Callable[..., None], *given: Any) -> None:
        self.now += self._cost_s
        if self._late:
            self.set_timer(0.02, self._write)
        else:
            self._write()
        act(*given)

    def _write(self) -> None:
        self.written += self._size

    def pass_time(self, seconds: float) -> None:
        until = self.now + seconds
        while due := [t for t in self._timers if not t.stopped and t.due <= until]:
            first = min(due, key=lambda timer: timer.due)
            self._timers.remove(first)
            self.now = max(self.now, first.due)
            first.act()
        self.now = max(self.now, until)


def streamed(
    monkeypatch: pytest.MonkeyPatch,
    cost_s: float,
    size: int = 0,
    *,
    late: bool = False,
    **environ: str,
) -> tuple[Screen, Entry]:
    """`late`: what a repaint writes leaves a moment after it is done."""
    screen = Screen(cost_s, size, late=late)
    monkeypatch.setattr(painter.time, "monotonic", lambda: screen.now)
    made = Painter(screen, lambda: screen.written, environ)  # type: ignore[arg-type]
    entry = Entry("r", "assistant", [Part("text")])
    while screen.now < SECONDS:
        entry.parts[0].add("x")
        made.touch(entry)
        screen.pass_time(1 / PIECES_PER_SECOND)
    made.flush()
    return screen, entry


def test_it_is_drawn_at_most_fifteen_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, _ = streamed(monkeypatch, 0.005)
    assert 10 * SECONDS < len(screen.drawn) <= 15 * SECONDS + 2


def test_where_drawing_is_slow_most_of_the_time_is_left_for_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen, _ = streamed(monkeypatch, 0.05)
    assert len(screen.drawn) * 0.05 <= 0.26 * screen.now
    assert len(screen.drawn) > 2 * SECONDS


SSH = {"SSH_CONNECTION": "10.0.0.1 50000 10.0.0.2 22"}


def test_over_ssh_so_much_is_written_as_a_thin_line_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, _ = streamed(monkeypatch, 0.005, 2000, **SSH)
    assert screen.written <= 1.1 * painter.BYTES_PER_SECOND * SECONDS
    screen, _ = streamed(monkeypatch, 0.005, 100_000, **SSH)
    assert len(screen.drawn) >= 2 * SECONDS - 1  # it is drawn all the same
    screen, _ = streamed(monkeypatch, 0.005, 2000)
    assert len(screen.drawn) > 10 * SECONDS


def test_what_is_written_only_after_the_next_repaint_was_planned_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen, _ = streamed(monkeypatch, 0.005, 2000, late=True, **SSH)
    assert screen.written <= 1.1 * painter.BYTES_PER_SECOND * SECONDS


def test_the_end_is_drawn_however_short_the_time_since_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen, entry = streamed(monkeypatch, 0.005)
    assert screen.drawn[-1][1] == entry.text
