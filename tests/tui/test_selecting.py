"""Text is selected with the mouse in the app itself, also while it is being written."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_client import FakeClient
from support_app import running, until
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import TextArea

from hobnob.tui.app import Desk, HobnobApp
from hobnob.tui.message import MessageView
from hobnob.tui.playground import Playground


@pytest.fixture
def client() -> FakeClient:
    client = FakeClient()
    client.talk("long", *(f"many words of text {n}" for n in range(4)))
    return client


async def drag(pilot: Pilot[int], view: MessageView, row: int) -> None:
    """Over the row's first ten cells."""
    await pilot.mouse_down(view, offset=(0, row))
    await pilot.hover(view, offset=(4, row))
    await pilot.hover(view, offset=(10, row))
    await pilot.mouse_up(view, offset=(10, row))
    await pilot.pause()


@pytest.mark.parametrize("kind", [Desk, Playground])
def test_our_screens_have_what_screens_have(kind: type[Screen[object]]) -> None:
    assert kind._get_component_classes() >= Screen._get_component_classes()
    assert "Screen" in kind._css_type_names
    assert {key for key, _ in Screen._merged_bindings or ()} <= {  # type: ignore[misc]
        key
        for key, _ in kind._merged_bindings or ()  # type: ignore[misc]
    }


async def test_what_is_dragged_over_is_selected_and_copied(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: list(pilot.app.query(MessageView)))
        view = list(pilot.app.query(MessageView))[-1]
        row = next(n for n, one in enumerate(view.rows) if one.text.strip())
        await drag(pilot, view, row)
        chosen = pilot.app.screen.get_selected_text()
        assert chosen and chosen in view.rows[row].text
        await pilot.press("ctrl+c")
        await until(pilot, lambda: pilot.app.clipboard == chosen)
        assert isinstance(pilot.app, HobnobApp) and pilot.app.is_running
        await pilot.press("r", "e", "h")
        assert pilot.app.query_one("#composer", TextArea).text == "reh"
