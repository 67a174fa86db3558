"""The chat without a terminal, in a process of its own: called by bench.tui.

python -m bench.tui_inside first-paint|memory     prints figures as JSON
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))

from fake_client import FakeClient  # noqa: E402

import hobnob.tui.app  # noqa: E402
from hobnob.tui.app import HobnobApp  # noqa: E402

CONVERSATIONS = 2000
SWITCHES = 200
TALKS = 100

Figures = list[tuple[str, float, str, float]]


class FirstPaint(HobnobApp):
    """Notes when something is displayed for the first time."""

    CSS_PATH = Path(hobnob.tui.app.__file__).with_name("app.tcss")
    painted = 0.0

    def post_display_hook(self) -> None:
        self.painted = self.painted or time.monotonic()


async def first_paint() -> Figures:
    client = FakeClient()
    for number in range(CONVERSATIONS):
        client.talk(f"About thing number {number}", "a question", "an answer")
    times, listed = [], []
    for _ in range(5):
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            app = FirstPaint(lambda hear: client, Path(folder))
            async with app.run_test(size=(120, 40)) as pilot:
                while not app.sidebar.shown:
                    await pilot.pause(0.001)
                listed.append(time.monotonic() - began)
                times.append(app.painted - began)
    return [
        ("first paint, in process", statistics.median(times) * 1000, "ms", 400),
        ("the list is there, 2,000 conversations", statistics.median(listed) * 1000, "ms", 1000),
    ]


async def memory() -> Figures:
    """Resident memory after twice the switches, beside what it was after the first half."""
    client = FakeClient()
    text = "Some words with **emphasis** and `code`.\n\n- one\n- two\n\n```py\nx = 1\n```\n" * 4
    for number in range(TALKS):
        client.talk(f"Talk {number}", *([text] * 20), id=f"c{number:04d}")
    sizes: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        app = HobnobApp(lambda hear: client, Path(folder))
        async with app.run_test(size=(120, 40)) as pilot:
            await pilot.pause(0.5)
            for number in range(2 * SWITCHES):
                id = f"c{number * 37 % TALKS:04d}"
                app.chat.open(id)
                while app.talk.id != id or len(app.chat.view.views) != 20:
                    await pilot.pause(0.001)
                await pilot.pause()
                if number % TALKS == TALKS - 1:
                    gc.collect()
                    sizes.append(_resident())
    growth = 100 * (sizes[-1] / sizes[-3] - 1)
    return [
        ("memory after 200 more switches among 100", growth, "%", 10),
        ("memory then", sizes[-1] / 2**20, "MiB", 400),
    ]


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def main() -> int:
    measured: dict[str, Any] = {"first-paint": first_paint, "memory": memory}
    print(json.dumps(asyncio.run(measured[sys.argv[1]]())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
