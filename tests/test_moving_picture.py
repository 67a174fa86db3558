"""tools/moving_picture.py: screenshots as one animated picture."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
from textual.app import App, ComposeResult
from textual.widgets import Static

PATH = Path(__file__).parent.parent / "tools" / "moving_picture.py"
SVG = "{http://www.w3.org/2000/svg}"


def _module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("moving_picture", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["moving_picture"] = module
    spec.loader.exec_module(module)
    return module


moving_picture = _module()


class Screen(App[None]):
    def compose(self) -> ComposeResult:
        yield Static("stays")
        yield Static("first", id="changes")


async def _two_frames() -> list[str]:
    app = Screen()
    async with app.run_test(size=(20, 4)) as pilot:
        before = app.export_screenshot()
        app.query_one("#changes", Static).update("then")
        await pilot.pause()
        return [before, app.export_screenshot()]


def _times(picture: str, text: str) -> list[tuple[str, str] | None]:
    """For each group that draws the text: its values and times, None where it always shows."""
    found: list[tuple[str, str] | None] = []
    for group in ElementTree.fromstring(picture).iter(f"{SVG}g"):
        own = [one.text for one in group.findall(f"{SVG}text")]
        if text in own:
            motion = group.find(f"{SVG}animate")
            found.append(
                None if motion is None else (motion.get("values", ""), motion.get("keyTimes", ""))
            )
    return found


async def test_a_row_that_stays_is_drawn_once_and_one_that_changes_has_its_times() -> None:
    before, after = await _two_frames()
    frames = [moving_picture.Frame(0.0, before), moving_picture.Frame(2.0, after)]
    picture = moving_picture.animated(frames, end_s=4.0)
    assert _times(picture, "stays") == [None]
    assert _times(picture, "first") == [("inline;none", "0;0.5")]
    assert _times(picture, "then") == [("none;inline", "0;0.5")]


async def test_a_row_that_comes_back_is_drawn_once_with_two_spans() -> None:
    before, after = await _two_frames()
    frames = [
        moving_picture.Frame(at, svg) for at, svg in ((0.0, before), (1.0, after), (2.0, before))
    ]
    picture = moving_picture.animated(frames, end_s=4.0)
    assert _times(picture, "first") == [("inline;none;inline", "0;0.25;0.5")]


async def test_every_style_that_is_named_is_declared_and_nothing_is_fetched() -> None:
    before, _ = await _two_frames()
    picture = moving_picture.animated([moving_picture.Frame(0.0, before)], end_s=1.0)
    named = set(re.findall(r'class="(s\d+)"', picture))
    assert named and named <= set(re.findall(r"\.(s\d+) \{", picture))
    assert "url(" not in picture


def test_what_is_no_screenshot_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to show"):
        moving_picture.animated([], end_s=1.0)
    with pytest.raises(ValueError, match="not a screenshot"):
        moving_picture.animated([moving_picture.Frame(0.0, "<svg/>")], end_s=1.0)
