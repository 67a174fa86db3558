"""When a screen is drawn, by a clock that goes on only as frames and pauses take it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_client import FakeClient
from support_app import running, until
from textual._context import active_app
from virtual_loop import VirtualLoop

from hobnob.tui.frames import BREATH_SECONDS, FrameTimer
from hobnob.tui.playground import Playground

PERIOD = 1 / 60


class Drawn:
    """A screen as far as its timer knows it: a frame takes some time, then nothing is wanted."""

    def __init__(self, loop: VirtualLoop, cost_s: float) -> None:
        self.began: list[float] = []
        self._loop = loop
        self._cost_s = cost_s
        self.timer = FrameTimer(self, PERIOD, callback=self._draw, pause=True)  # type: ignore[arg-type]

    def _draw(self) -> None:
        self.timer.pause()
        self.began.append(self._loop.now)
        self._loop.now += self._cost_s

    async def wanted(self, *pauses_s: float) -> list[float]:
        """Wants a frame after each of the pauses; when they began."""
        self.timer._start()
        for pause in pauses_s:
            await asyncio.sleep(pause)
            self.timer.resume()
            await asyncio.sleep(0)
        await asyncio.sleep(1)
        self.timer.stop()
        return self.began


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop()
    token = active_app.set(SimpleNamespace(_exit=False, features=frozenset()))  # type: ignore[arg-type]
    yield made
    active_app.reset(token)
    made.close()


def test_what_changes_while_a_slow_frame_is_drawn_is_seen_soon_after_it(loop: VirtualLoop) -> None:
    began = loop.run_until_complete(Drawn(loop, 0.03).wanted(1, 0))
    assert began == pytest.approx([1, 1.03 + BREATH_SECONDS])


def test_frames_are_not_drawn_more_often_than_meant(loop: VirtualLoop) -> None:
    began = loop.run_until_complete(Drawn(loop, 0.002).wanted(1, 0))
    assert began == pytest.approx([1, 1 + PERIOD])


def test_what_changes_on_a_quiet_screen_is_drawn_at_once(loop: VirtualLoop) -> None:
    began = loop.run_until_complete(Drawn(loop, 0.002).wanted(1, 0.1, 0.1))
    assert began == pytest.approx([1, 1.102, 1.204], abs=0.001)


def test_nothing_is_drawn_that_nobody_wants(loop: VirtualLoop) -> None:
    assert loop.run_until_complete(Drawn(loop, 0.002).wanted()) == []


async def test_the_chat_and_the_playground_are_drawn_so(tmp_path: Path) -> None:
    async with running(FakeClient(), tmp_path) as pilot:
        assert isinstance(pilot.app.screen._update_timer, FrameTimer)
        await pilot.press("ctrl+l")
        await until(pilot, lambda: isinstance(pilot.app.screen, Playground))
        assert isinstance(pilot.app.screen._update_timer, FrameTimer)
