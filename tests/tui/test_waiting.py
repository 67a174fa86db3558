"""Messages that wait for the reply before them: seen, edited and taken away."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_client import FakeClient
from support_app import running, screen_text, send, until

from hobnob.tui.waiting import Waiting


@pytest.fixture
def client() -> FakeClient:
    return FakeClient()


async def three_waiting(pilot) -> Waiting:
    await send(pilot, "first")
    for text in ("second", "third [/]\nwith a line", "fourth"):
        pilot.app.chat.composer.put(text)
        await pilot.press("enter")
    return pilot.app.query_one(Waiting)


async def test_what_waits_is_seen_in_order_and_sent_in_order(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path) as pilot:
        await three_waiting(pilot)
        shown = screen_text(pilot)
        assert "3 waiting to be sent" in shown
        places = [shown.index(words) for words in ("second", "third [/] with a line", "fourth")]
        assert places == sorted(places)
        for number in range(1, 5):
            await until(pilot, lambda: len(client.sent) == number)  # noqa: B023
            client.script.start(f"r{number}")
            client.script.finish(facts=False)
        await until(pilot, lambda: pilot.app.talk.live is None)
        texts = [one["text"] for one in client.sent]
        assert texts == ["first", "second", "third [/]\nwith a line", "fourth"]
        assert not pilot.app.query_one(Waiting).display


async def test_one_that_waits_is_edited_in_the_input(client: FakeClient, tmp_path: Path) -> None:
    async with running(client, tmp_path) as pilot:
        waiting = await three_waiting(pilot)
        await pilot.press(*"new", "alt+w", "down", "enter")
        composer = pilot.app.chat.composer
        await until(pilot, lambda: composer.has_focus)
        assert composer.text == "third [/]\nwith a line\nnew", "and what was typed is kept"
        assert [one.text for one in waiting.messages] == ["second", "fourth"]


async def test_one_that_waits_is_taken_away(client: FakeClient, tmp_path: Path) -> None:
    async with running(client, tmp_path) as pilot:
        waiting = await three_waiting(pilot)
        await pilot.press("alt+w", "down", "delete")
        assert [one.text for one in waiting.messages] == ["second", "fourth"]
        await pilot.press("x", "x")
        await until(pilot, lambda: pilot.app.chat.composer.has_focus)
        assert waiting.messages == [] and "to be sent" not in screen_text(pilot)
        assert client.cancelled == [], "the reply goes on"


async def test_escape_leaves_the_list_and_stops_nothing(client: FakeClient, tmp_path: Path) -> None:
    async with running(client, tmp_path) as pilot:
        waiting = await three_waiting(pilot)
        await pilot.press("alt+w", "escape")
        await until(pilot, lambda: pilot.app.chat.composer.has_focus)
        assert len(waiting.messages) == 3 and client.cancelled == []


async def test_what_waits_survives_leaving_as_a_draft(client: FakeClient, tmp_path: Path) -> None:
    async with running(client, tmp_path) as pilot:
        await three_waiting(pilot)
        id = pilot.app.talk.id
        pilot.app.chat.new()
        await until(pilot, lambda: pilot.app.talk.id is None)
        pilot.app.chat.open(id)
        await until(pilot, lambda: pilot.app.talk.id == id)
        words = "second\nthird [/]\nwith a line\nfourth"
        await until(pilot, lambda: pilot.app.chat.composer.text == words)
