"""What is typed while the conversation that the app was started for is still on its way."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

from fake_client import FakeClient
from support_app import make_app, running, screen_text, until

from hobnob.tui.app import HobnobApp
from hobnob.tui.notice import ClientError


def slow_app(client: FakeClient, folder: Path, gate: asyncio.Event) -> HobnobApp:
    """It connects when the gate opens, and opens a stored conversation then."""

    @asynccontextmanager
    async def connect(hear):
        await gate.wait()
        yield client

    app = make_app(client, folder, conversation="c0001")
    app._connect_with = connect
    return app


async def test_a_message_that_is_entered_before_the_conversation_is_there_is_sent_to_it(
    tmp_path: Path,
) -> None:
    client, gate = FakeClient(), asyncio.Event()
    client.talk("Tides", "a", "b")
    client.opening.clear()
    async with slow_app(client, tmp_path, gate).run_test(size=(120, 30)) as pilot:
        await pilot.press(*"hello", "enter", *"more")
        await until(pilot, lambda: "1 waiting to be sent" in screen_text(pilot))
        assert "Opening the conversation…" in screen_text(pilot)
        assert "New conversation" not in screen_text(pilot).splitlines()[0]
        gate.set()
        await until(pilot, lambda: pilot.app.line.client is not None)
        assert "Opening the conversation…" in screen_text(pilot)
        client.opening.set()
        await until(pilot, lambda: bool(client.sent))
        sent = [(one["conversation"], one["text"]) for one in client.sent]
        assert sent == [("c0001", "hello")]
        assert pilot.app.chat.composer.text == "more"
        await until(pilot, lambda: "Tides" in screen_text(pilot).splitlines()[0])
        pilot.app.workers.cancel_all()


async def test_what_was_entered_for_a_conversation_that_does_not_open_is_in_the_input(
    tmp_path: Path,
) -> None:
    client, gate = FakeClient(), asyncio.Event()
    async with slow_app(client, tmp_path, gate).run_test(size=(120, 30)) as pilot:
        await pilot.press(*"hello", "enter")
        gate.set()
        await until(pilot, lambda: "No such conversation." in screen_text(pilot))
        assert pilot.app.chat.composer.text == "hello"
        assert "New conversation" in screen_text(pilot)
        assert not client.sent


async def test_what_was_typed_for_a_conversation_that_was_not_waited_for_is_its_draft(
    tmp_path: Path,
) -> None:
    client, gate = FakeClient(), asyncio.Event()
    client.talk("Tides", "a", "b")
    async with slow_app(client, tmp_path, gate).run_test(size=(120, 30)) as pilot:
        await pilot.press(*"hello", "enter", *"more")
        await pilot.press("ctrl+n")
        await until(pilot, lambda: "New conversation" in screen_text(pilot))
        gate.set()
        await until(pilot, lambda: pilot.app.line.client is not None)
        assert pilot.app.talk.id is None and pilot.app.chat.composer.text == ""
        await pilot.press("ctrl+q")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: pilot.app.talk.id == "c0001")
        await until(pilot, lambda: pilot.app.chat.composer.text.split() == ["hello", "more"])
    assert not client.sent


async def test_a_second_try_to_connect_opens_the_conversation_and_sends_what_waits(
    tmp_path: Path,
) -> None:
    client, tries = FakeClient(), 0
    client.talk("Tides", "a", "b")

    @asynccontextmanager
    async def connect(hear):
        nonlocal tries
        tries += 1
        if tries == 1:
            raise ClientError("unreachable", "Nobody answered.")
        yield client

    app = make_app(client, tmp_path, conversation="c0001")
    app._connect_with = connect
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: "Nobody answered." in screen_text(pilot))
        await pilot.press(*"hello", "enter", "ctrl+r")
        await until(pilot, lambda: bool(client.sent))
        assert client.sent[0]["conversation"] == "c0001"
        app.workers.cancel_all()
