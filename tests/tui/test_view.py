"""The transcript's list of messages: each is mounted once, whatever comes in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fake_client import FakeClient
from support_app import running, screen_text, until
from textual.pilot import Pilot
from textual.screen import ModalScreen, Screen

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


def at_the_top(pilot: Pilot[Any]) -> str:
    """The first row of the transcript that belongs to a message."""
    view = pilot.app.chat.view
    rows = [one for one in view.views if one.region.bottom > view.region.y]
    return rows[0].entry.text if rows else ""


async def uncovered(pilot: Pilot[Any]) -> None:
    pilot.app.pop_screen()
    await pilot.pause(0.2)


@asynccontextmanager
async def reading(
    client: FakeClient, tmp_path: Path, count: int, at: int
) -> AsyncIterator[tuple[Pilot[int], TranscriptView]]:
    """The app with so many messages, opened at one of them."""
    async with running(client, tmp_path, conversation="c0001") as pilot:
        view = await opened(pilot)
        await view.show(entries("new", count), at)
        await until(pilot, lambda: f"new {at} " in screen_text(pilot))
        yield pilot, view


COVERS = pytest.mark.parametrize("cover", [ModalScreen, Screen])
"""A dialog, which lets the chat shine through, and a screen of its own."""


@COVERS
async def test_the_last_of_several_messages_gone_to_behind_a_dialog_is_in_view(
    cover: type[Screen[Any]], client: FakeClient, tmp_path: Path
) -> None:
    async with reading(client, tmp_path, 200, 50) as (pilot, view):
        pilot.app.push_screen(cover())
        await pilot.pause()
        await view.go_to(150)
        await view.go_to(44)
        await view.go_to(59)
        await view.go_to(47)
        await uncovered(pilot)
        assert at_the_top(pilot) in ("new 46", "new 47")


@COVERS
async def test_a_message_gone_to_behind_a_dialog_is_in_view_also_where_the_terminal_is_resized(
    cover: type[Screen[Any]], client: FakeClient, tmp_path: Path
) -> None:
    async with reading(client, tmp_path, 200, 50) as (pilot, view):
        pilot.app.push_screen(cover())
        await pilot.pause()
        await pilot.resize_terminal(60, 20)
        await view.go_to(44)
        await pilot.resize_terminal(90, 24)
        await pilot.pause(0.2)
        await uncovered(pilot)
        assert at_the_top(pilot) in ("new 43", "new 44")


@COVERS
async def test_what_is_read_stays_in_view_where_the_terminal_is_resized_behind_a_dialog(
    cover: type[Screen[Any]], client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path, conversation="c0001") as pilot:
        view = await opened(pilot)
        await view.show([draft_entry(f"{n} " + "word " * 200) for n in range(30)], 10)
        await until(pilot, lambda: at_the_top(pilot).startswith(("9 ", "10 ")))
        view.scroll_to(y=view.scroll_y + 30, animate=False)
        await pilot.pause()
        read = at_the_top(pilot)
        pilot.app.push_screen(cover())
        await pilot.pause()
        for size in [(40, 20), (200, 50), (30, 12), (100, 30)]:
            await pilot.resize_terminal(*size)
            await pilot.pause(0.1)
        await uncovered(pilot)
        assert at_the_top(pilot) == read


@COVERS
async def test_who_went_to_the_end_behind_a_dialog_is_there(
    cover: type[Screen[Any]], client: FakeClient, tmp_path: Path
) -> None:
    async with reading(client, tmp_path, 60, 50) as (pilot, view):
        pilot.app.push_screen(cover())
        await pilot.pause()
        await view.go_to(45)
        await view.to_end()
        await pilot.resize_terminal(60, 20)
        await uncovered(pilot)
        assert "new 59 " in screen_text(pilot)
        assert view.following


async def test_a_screen_that_has_room_for_all_for_a_moment_changes_nothing_of_what_is_read(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path, conversation="c0001") as pilot:
        view = await opened(pilot)
        await view.go_to(4)
        await until(pilot, lambda: at_the_top(pilot) in ("text 3", "text 4"))
        assert "↓ Ctrl+End" in screen_text(pilot)
        await pilot.resize_terminal(120, 200)
        await until(pilot, lambda: view.max_scroll_y == 0)
        await until(pilot, lambda: "↓" not in screen_text(pilot))
        await pilot.resize_terminal(120, 30)
        await until(pilot, lambda: at_the_top(pilot) in ("text 3", "text 4"))
        await view.go_to(19)
        await until(pilot, lambda: view.following)


async def test_a_screen_that_became_higher_has_later_messages_to_scroll_to(
    client: FakeClient, tmp_path: Path
) -> None:
    async with reading(client, tmp_path, 200, 100) as (pilot, view):
        await pilot.resize_terminal(120, 150)
        await until(pilot, lambda: at_the_top(pilot) in ("new 99", "new 100"))
        await until(pilot, lambda: view.max_scroll_y > view.scroll_y)
        assert at_the_top(pilot) in ("new 99", "new 100")


async def test_what_grows_keeps_the_rules_of_its_kind(client: FakeClient, tmp_path: Path) -> None:
    async with running(client, tmp_path, conversation="c0001") as pilot:
        view = await opened(pilot)
        assert view in list(pilot.app.query("VerticalScroll"))
        assert view.query_one("Vertical").id == "column"
        assert view.region.width == pilot.app.chat.region.width
