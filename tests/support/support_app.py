"""The real app on a screen in memory, talking to a FakeClient."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fake_client import FakeClient
from textual.pilot import Pilot

from hobnob.tui.app import HobnobApp

WAIT_SECONDS = 30.0
"""For something that takes a moment: only ever a reason to fail."""


def make_app(client: FakeClient, folder: Path, **options: Any) -> HobnobApp:
    return HobnobApp(lambda hear: client, folder, **options)


@asynccontextmanager
async def running(
    client: FakeClient, folder: Path, size: tuple[int, int] = (120, 30), **options: Any
) -> AsyncIterator[Pilot[int]]:
    """The app after it has connected."""
    async with make_app(client, folder, **options).run_test(size=size, notifications=True) as pilot:
        await until(pilot, lambda: pilot.app.line.client is not None)
        await pilot.pause()
        yield pilot
        pilot.app.workers.cancel_all()  # as when one leaves


async def until(pilot: Pilot[Any], true: Callable[[], bool]) -> None:
    """Let the app work until something is so. Fails when it never is."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        if true():
            await pilot.pause()
            return
        await pilot.pause(0.01)
    raise AssertionError(
        f"it did not come about; {pilot.app.focused!r} has the focus of:\n{screen_text(pilot)}"
    )


async def send(pilot: Pilot[Any], text: str) -> None:
    """Type a message and press Enter; returns when the reply is awaited."""
    pilot.app.chat.composer.put(text)
    await pilot.press("enter")
    await until(pilot, lambda: pilot.app.talk.live is not None)


def screen_text(pilot: Pilot[Any]) -> str:
    """What is on the screen, row by row."""
    strips = pilot.app.screen._compositor.render_strips()
    return "\n".join(strip.text for strip in strips)
