"""One thing at a time: what keys and commands do while something is on its way to the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_client import FakeClient
from support_app import running, screen_text, until
from textual.pilot import Pilot

from hobnob.tui import chat
from hobnob.tui.notice import ClientError


@pytest.fixture
def client() -> FakeClient:
    client = FakeClient()
    client.talk("t", "question", "answer")
    return client


def held(client: FakeClient, call: str) -> asyncio.Event:
    """One of its calls waits until the event is set."""
    gate, real = asyncio.Event(), getattr(client, call)

    async def waits(*given: Any, **options: Any) -> Any:
        await gate.wait()
        return await real(*given, **options)

    setattr(client, call, waits)
    return gate


async def opened(pilot: Pilot[Any]) -> None:
    await until(pilot, lambda: len(pilot.app.talk.entries) == 2)


async def enters(pilot: Pilot[Any], text: str) -> None:
    pilot.app.chat.composer.put(text)
    await pilot.press("enter")


def counted(calls: list[Any], number: int) -> Callable[[], bool]:
    return lambda: len(calls) == number


@pytest.mark.parametrize("command", ["/regenerate", "/continue", "/edit", "/compare"])
async def test_a_message_on_its_way_arrives_whatever_command_is_entered(
    client: FakeClient, tmp_path: Path, command: str
) -> None:
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await opened(pilot)
        gate = held(client, "send")
        await enters(pilot, "first")
        await enters(pilot, command)
        await until(pilot, lambda: "Ctrl+C stops it" in screen_text(pilot))
        gate.set()
        await until(pilot, lambda: pilot.app.talk.live is not None)
        client.script.finish()
        await until(pilot, lambda: pilot.app.talk.live is None)
        await enters(pilot, "second")
        await until(pilot, counted(client.sent, 2))
        assert [one["text"] for one in client.sent] == ["first", "second"]


async def test_a_message_typed_while_a_new_reply_is_asked_for_waits_for_it(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await opened(pilot)
        gate = held(client, "regenerate")
        await pilot.press("alt+up", "r")
        await pilot.press("i")
        await enters(pilot, "next")
        await until(pilot, lambda: "1 waiting to be sent" in screen_text(pilot))
        gate.set()
        await until(pilot, lambda: pilot.app.talk.live is not None)
        client.script.finish()
        await until(pilot, counted(client.sent, 2))
        assert client.sent[1]["parent"] == "r1"


async def test_what_waits_is_sent_when_there_is_no_new_reply_after_all(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await opened(pilot)
        client.refuse = ClientError("server_overloaded", "No room.")
        gate = held(client, "regenerate")
        await pilot.press("alt+up", "r")
        await pilot.press("i")
        await enters(pilot, "next")
        await until(pilot, lambda: "1 waiting to be sent" in screen_text(pilot))
        gate.set()
        await until(pilot, counted(client.sent, 1))
        assert client.sent[0]["text"] == "next"


@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
async def test_a_message_on_its_way_is_stopped_as_soon_as_it_is_a_run(
    client: FakeClient, tmp_path: Path, key: str
) -> None:
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await opened(pilot)
        gate = held(client, "send")
        await enters(pilot, "first")
        await enters(pilot, "second")
        await until(pilot, lambda: "1 waiting to be sent" in screen_text(pilot))
        await pilot.press(key)
        await until(pilot, lambda: "stopped as soon as it begins" in screen_text(pilot))
        assert "quits" not in screen_text(pilot)
        assert pilot.app.chat.composer.text == "second"
        gate.set()
        await until(pilot, lambda: client.cancelled == ["run1"])
        client.script.finish("cancelled", "cancelled")
        await until(pilot, lambda: pilot.app.talk.live is None)
        assert "as soon as" not in screen_text(pilot)
        assert len(client.sent) == 1


@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
async def test_a_new_reply_that_is_asked_for_is_stopped_as_soon_as_it_is_a_run(
    client: FakeClient, tmp_path: Path, key: str
) -> None:
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await opened(pilot)
        gate = held(client, "regenerate")
        await enters(pilot, "/regenerate")
        await pilot.press(key)
        await until(pilot, lambda: "stopped as soon as it begins" in screen_text(pilot))
        gate.set()
        await until(pilot, lambda: client.cancelled == ["run1"])


async def test_ctrl_c_leaves_when_the_server_does_not_take_what_is_to_be_stopped(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await opened(pilot)
        held(client, "send")
        await enters(pilot, "first")
        await pilot.press("ctrl+c")
        await pilot.press("ctrl+c")
        await until(pilot, lambda: "Ctrl+C again quits" in screen_text(pilot))
        await pilot.press("ctrl+c")
    assert pilot.app.return_value == 0
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: pilot.app.chat.composer.text == "first")


async def test_a_version_that_is_fetched_keeps_messages_waiting_and_is_fetched_once(
    client: FakeClient, tmp_path: Path
) -> None:
    client.siblings["c0001-m1"] = ["c0001-m9", "c0001-m1"]
    client.branches["c0001-m9"] = client.stored["c0001"]
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await opened(pilot)
        gate = held(client, "branch")
        await pilot.press("alt+up", "left", "left", "i")
        await enters(pilot, "next")
        await until(pilot, lambda: "1 waiting to be sent" in screen_text(pilot))
        assert "Ctrl+C stops it" not in screen_text(pilot)
        gate.set()
        await until(pilot, counted(client.sent, 1))
        assert len(client.heads) == 1


@pytest.mark.parametrize(("seconds", "rung"), [(0.0, [1]), (60.0, [])])
async def test_a_bell_rings_after_a_long_reply_that_nobody_watched(
    client: FakeClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    rung: list[int],
) -> None:
    """What is long is set here: nothing is waited for."""
    bells: list[int] = []
    monkeypatch.setattr(chat, "LONG_SECONDS", seconds)
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await opened(pilot)
        monkeypatch.setattr(pilot.app, "bell", lambda: bells.append(1))
        for looks in (True, False):
            await enters(pilot, "go")
            await until(pilot, lambda: pilot.app.talk.live is not None)
            pilot.app.app_focus = looks  # a key says that one looks
            client.script.finish()
            await until(pilot, lambda: pilot.app.talk.live is None)
            if not looks and rung:
                await until(pilot, lambda: bells == rung)
            assert bells == ([] if looks else rung)
