"""Pictures for the README, made from the running app with the real server and the starter model.

    .venv/bin/python tools/screenshots.py

Writes docs/images/*.svg, among them one that moves: a reply that goes on through `kill -9`.
Uses a folder of its own, so nobody's conversations are touched.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from moving_picture import Frame, animated
from textual.app import App
from textual.pilot import Pilot

if TYPE_CHECKING:
    from hobnob.tui.app import HobnobApp

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
SIZE = (104, 32)
QUESTIONS = (
    "Write a haiku about the sea.",
    "What is SIGHUP?",
    "Show a Python function that reverses a list, and explain it in two sentences.",
)
SEARCHED = "python"
COMPARED = "What is a mutex? Answer in three sentences."
SETTINGS = "temperature=0.7"
SYSTEM = "Explain it to a child."
SURVIVING = "Tell me a long story about a lighthouse keeper."
PATIENCE_SECONDS = 120
LOOK_SECONDS = 0.1
REST_SECONDS = 3.0
"""How long the moving picture stands still at its end."""


async def main() -> None:
    from hobnob.launch import Target
    from hobnob.paths import Paths
    from hobnob.tui.app import HobnobApp
    from hobnob.tui.client import Client

    paths = Paths.home()
    paths.make()
    IMAGES.mkdir(parents=True, exist_ok=True)
    target = Target.choose()
    options = {"temperature": 0, "seed": 1, "max_tokens": 220}
    app = HobnobApp(lambda hear: Client(target, on_notice=hear), paths.state_dir, options=options)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.line.client is not None)
        for question in QUESTIONS:
            await ask(app, pilot, question)
            await until(pilot, lambda: app.talk.live is None)
        await pilot.pause(1.0)
        save(app, "chat.svg")
        await search(app, pilot)
        await compare(app, pilot)
        await survive(app, pilot, paths.state_file)


async def ask(app: HobnobApp, pilot: Pilot[int], question: str) -> None:
    await pilot.press("ctrl+n")
    app.chat.composer.put(question)
    await pilot.press("enter")
    await until(pilot, lambda: app.talk.live is not None)


async def search(app: HobnobApp, pilot: Pilot[int]) -> None:
    await pilot.press("f3")
    await pilot.pause(0.5)
    await pilot.press(*SEARCHED)
    await pilot.pause(1.5)
    save(app, "search.svg")
    await pilot.press("escape")


async def compare(app: HobnobApp, pilot: Pilot[int]) -> None:
    """One question to two columns, with other settings in the second."""
    from hobnob.tui.message import MessageView

    await pilot.press("ctrl+n")
    app.chat.composer.put(COMPARED)
    await pilot.press("ctrl+l")
    await pilot.pause(0.5)
    screen = app.screen
    await pilot.press("alt+up", "right", "e")
    await until(pilot, lambda: app.screen is not screen)
    await pilot.press(*SETTINGS, "tab", *SYSTEM, "ctrl+j")
    await until(pilot, lambda: app.screen is screen)
    await pilot.press("alt+down", "enter")

    def answered() -> bool:
        replies = [view.entry for view in screen.query(MessageView)]
        return len(replies) == 2 and not any(reply.live for reply in replies)

    await until(pilot, answered)
    await pilot.press("alt+up")
    await pilot.pause(1.0)
    save(app, "playground.svg")
    await pilot.press("ctrl+l")
    await pilot.pause(0.5)


async def survive(app: HobnobApp, pilot: Pilot[int], state_file: Path) -> None:
    """A reply that goes on through the death of its server, as it happens, in real time."""
    began = time.monotonic()
    frames: list[Frame] = []

    def look() -> None:
        frames.append(Frame(time.monotonic() - began, app.export_screenshot()))

    async def watch(seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            look()
            await pilot.pause(LOOK_SECONDS)

    await pilot.press("ctrl+n")
    for letter in SURVIVING:
        app.chat.composer.insert(letter)
        look()
        await pilot.pause(0.02)
    await pilot.press("enter")
    await until(pilot, lambda: app.talk.live is not None)
    await watch(3.0)
    os.kill(json.loads(state_file.read_text())["pid"], signal.SIGKILL)
    while app.talk.live is not None:
        await watch(LOOK_SECONDS)
    await watch(0.5)
    began_s = frames[0].at_s
    frames = [Frame(frame.at_s - began_s, frame.svg) for frame in frames]
    picture = animated(frames, end_s=frames[-1].at_s + REST_SECONDS)
    (IMAGES / "survives.svg").write_text(picture)


def save(app: App[int], name: str) -> None:
    """Without the addresses of web fonts: a picture fetches nothing."""
    svg = re.sub(r"@font-face \{.*?\}\s*", "", app.export_screenshot(), flags=re.DOTALL)
    (IMAGES / name).write_text(svg)


async def until(pilot: Pilot[int], true: object) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not true():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise SystemExit("the app did not get that far")
        await pilot.pause(0.1)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="hobnob-pictures-") as folder:
        os.environ["HOBNOB_HOME"] = folder
        try:
            asyncio.run(main())
        finally:
            os.system(f"'{sys.executable}' -m hobnob.cli stop 2>/dev/null")
