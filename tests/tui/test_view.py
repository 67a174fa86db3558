"""The transcript's list of messages: each is mounted once, whatever comes in between."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from fake_client import FakeClient
from support_app import running, screen_text, until
from textual.pilot import Pilot
from textual.screen import ModalScreen

from hobnob.tui.message import MessageView
from hobnob.tui.transcript import Entry, draft_entry
from hobnob.tui.view import TranscriptView


@pytest.fixture
def client() -> FakeClient:
    client = FakeClient()
    client.talk("long", *(f"text {n}" for n in range(20)))
    return client


def entries(name: str, count: int = 100) -> list[Entry]:
    return [draft_entry(f"{name} {number}") for number in range(count)]


async def opened(pilot: Pilot[Any]) -> TranscriptView:
    await until(pilot, lambda: len(pilot.app.chat.view.views) == 20)
    view = pilot.app.chat.view
    assert isinstance(view, TranscriptView)
    return view


def mounted(view: TranscriptView) -> list[str]:
    return [one.entry.text for one in view.query(MessageView)]


async def test_a_scroll_while_others_are_shown_mounts_no_message_twice(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path, conversation="c0001") as pilot:
        view = await opened(pilot)
        made = entries("new")
        showing = asyncio.create_task(view.show(made, 50))
        await asyncio.sleep(0)
        await view.earlier()
        await view.later()
        await showing
        await pilot.pause()
        assert mounted(view) == [one.entry.text for one in view.views]
        assert mounted(view) == [one.text for one in made[view._window.low : view._window.high]]


async def test_what_a_scroll_is_mounting_goes_when_others_are_shown(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path, conversation="c0001") as pilot:
        view = await opened(pilot)
        await view.show(entries("old"), 50)
        await pilot.pause()
        moving = asyncio.create_task(view.earlier())
        await asyncio.sleep(0)
        await view.show(entries("new", 5))
        await moving
        await pilot.pause()
        assert mounted(view) == [f"new {number}" for number in range(5)]


async def test_of_two_that_are_shown_at_once_the_later_one_is_there(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path, conversation="c0001") as pilot:
        view = await opened(pilot)
        first = asyncio.create_task(view.show(entries("first", 5)))
        await asyncio.sleep(0)
        await view.show(entries("second", 5))
        await first
        await pilot.pause()
        assert mounted(view) == [f"second {number}" for number in range(5)]


async def test_a_message_that_comes_while_others_are_shown_is_there_once(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path, conversation="c0001") as pilot:
        view = await opened(pilot)
        made = entries("new", 5)
        showing = asyncio.create_task(view.show(made))
        await asyncio.sleep(0)
        made.append(draft_entry("late"))
        await view.add(made[-1])
        await showing
        await pilot.pause()
        assert mounted(view) == [*(f"new {number}" for number in range(5)), "late"]
        assert len(view.views) == 6


async def test_a_message_gone_to_behind_a_dialog_is_in_view_when_the_dialog_closes(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path, conversation="c0001") as pilot:
        view = await opened(pilot)
        pilot.app.push_screen(ModalScreen())
        await pilot.pause()
        made = entries("new", 200)
        await view.show(made, 50)
        await pilot.pause(0.2)
        pilot.app.pop_screen()
        await until(pilot, lambda: "new 50 " in screen_text(pilot))
        assert mounted(view) == [one.text for one in made[view._window.low : view._window.high]]


async def test_a_message_gone_to_while_the_app_holds_its_frames_is_in_view_afterwards(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path, conversation="c0001") as pilot:
        view = await opened(pilot)
        with pilot.app.batch_update():
            await view.show(entries("new", 200), 50)
            await asyncio.sleep(0.2)
        await until(pilot, lambda: "new 50 " in screen_text(pilot))
