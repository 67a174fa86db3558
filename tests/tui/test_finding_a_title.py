"""`/title`: the model finds a name for the open conversation, in the app and in the plain chat."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_client import FakeClient
from support_app import running, screen_text, until
from support_cli import Cli
from support_edge import KEY, edge_at
from support_session import Session
from textual.pilot import Pilot

from hobnob.tui.notice import ClientError


async def enter(pilot: Pilot[Any]) -> None:
    pilot.app.chat.composer.put("/title")
    await pilot.press("enter")


@pytest.fixture
def client() -> FakeClient:
    made = FakeClient()
    made.talk("my name", "question", "answer")
    return made


async def test_the_name_that_the_model_finds_is_shown(client: FakeClient, tmp_path: Path) -> None:
    client.title_found = "Knots [/] ropes"
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: len(pilot.app.talk.entries) == 2)
        await enter(pilot)
        await until(pilot, lambda: "It is called Knots [/] ropes" in screen_text(pilot))
        assert pilot.app.talk.conversation.title == "Knots [/] ropes"
        await until(pilot, lambda: screen_text(pilot).count("Knots [/] ropes") >= 3)
        assert "Renamed elsewhere" not in screen_text(pilot)
        assert client.sent == []


async def test_where_none_is_found_the_name_stays(client: FakeClient, tmp_path: Path) -> None:
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: len(pilot.app.talk.entries) == 2)
        await enter(pilot)
        await until(pilot, lambda: "No name was found; it stays my name" in screen_text(pilot))


async def test_why_there_is_none_is_said(client: FakeClient, tmp_path: Path) -> None:
    async with running(client, tmp_path) as pilot:
        await enter(pilot)
        await until(pilot, lambda: "Nothing was sent here yet." in screen_text(pilot))
        client.refuse = ClientError("server_overloaded", "Too many wait.")
        pilot.app.find_title("c0001")
        await until(pilot, lambda: "Not renamed: Too many wait." in screen_text(pilot))


async def test_the_plain_chat_asks_a_real_edge(tmp_path: Path) -> None:
    async with edge_at(tmp_path / "server") as edge:
        hobnob = Cli(tmp_path / "home", edge.url, KEY)
        async with Session(hobnob, "--plain", env={"TERM": "dumb"}) as session:
            await session.plays(
                ("You: ", "/title\r"),
                ("nothing was sent here yet", "You: ", "one\r"),
                ("Hello, world!", "You: ", "/title\r"),
                ("it is called Hello, world!", "You: ", "/quit\r"),
            )
            assert await session.ends() == 0
        (made,) = (await edge.call("GET", "/conversations")).json()["conversations"]
        assert made["title"] == "Hello, world!"
