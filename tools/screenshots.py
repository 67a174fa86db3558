"""Pictures for the README, made from the running app with the real server and the starter model.

    .venv/bin/python tools/screenshots.py

Writes docs/images/*.svg. Uses a folder of its own, so nobody's conversations are touched.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
import time
from pathlib import Path

from textual.app import App
from textual.pilot import Pilot

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
SIZE = (104, 32)
QUESTIONS = (
    "Write a haiku about the sea.",
    "What is SIGHUP?",
    "Show a Python function that reverses a list, and explain it in two sentences.",
)
PATIENCE_SECONDS = 120


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
            await pilot.press("ctrl+n")
            app.chat.composer.put(question)
            await pilot.press("enter")
            await until(pilot, lambda: app.talk.live is not None)
            await until(pilot, lambda: app.talk.live is None)
        await pilot.pause(1.0)
        save(app, "chat.svg")


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
