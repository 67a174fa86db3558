"""What others wrote is only text, in every place where text is shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_client import FakeClient
from support_app import running, screen_text, send, until
from support_documents import HOSTILE_TEXTS
from textual.pilot import Pilot

from hobnob.server import wire
from hobnob.tui.app import HobnobApp
from hobnob.tui.notice import ClientError, Notice, NoticeKind
from hobnob.tui.records import Hit

LETTERS = "ABCDEFG"


def harmless(pilot: Pilot[int]) -> str:
    """The screen, which holds nothing that a terminal would act on or could not be sent."""
    shown = screen_text(pilot)
    acting = [c for c in shown if c != "\n" and (ord(c) < 32 or 0x7F <= ord(c) < 0xA0)]
    acting += [c for c in shown if "\u2028" <= c <= "\u202e" or "\u2066" <= c <= "\u2069"]
    assert acting == []
    shown.encode()  # no lone surrogates: they would end the app
    assert pilot.app.is_running
    return shown


def whole(shown: str) -> bool:
    """Whether all the letters are there, in their order."""
    left = iter(shown)
    return all(letter in left for letter in LETTERS)


async def seen(pilot: Pilot[int]) -> None:
    await until(pilot, lambda: whole(harmless(pilot)))


def rows(pilot: Pilot[int]) -> str:
    """All rows of the newest message, in sight or not."""
    return "\n".join(row.text for row in pilot.app.chat.view.views[-1].rows)


@pytest.fixture
def client() -> FakeClient:
    return FakeClient()


texts = pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)


@texts
async def test_in_titles_messages_code_and_names(
    client: FakeClient, tmp_path: Path, text: str
) -> None:
    client.talk(text, text, f"```{text}\n{text}\n```\n\n|a|b|\n|-|-|\n|{text}|c|\n\n> {text}\n")
    client.state["model"]["id"] = text
    async with running(client, tmp_path, size=(140, 40)) as pilot:
        await seen(pilot)
        pilot.app.chat.open("c0001")
        await until(pilot, lambda: len(pilot.app.chat.view.views) == 2)
        await seen(pilot)
        assert whole(rows(pilot))
        pilot.app.chat.view.scroll_home(animate=False)
        await pilot.pause()
        await pilot.click(pilot.app.chat.view.views[0], offset=(5, 1))
        await pilot.press("y")
        words = ("Copied", "Too long for the terminal")
        await until(pilot, lambda: any(one in screen_text(pilot) for one in words))
        harmless(pilot)


@texts
async def test_in_a_reply_that_streams_with_its_thoughts_and_its_troubles(
    client: FakeClient, tmp_path: Path, text: str
) -> None:
    async with running(client, tmp_path, size=(100, 40)) as pilot:
        await send(pilot, "go")
        script = client.script
        script.put(wire.MessageStart("run1", "c", "r1", text, 7))
        script.put(wire.BlockStart(0, "reasoning"))
        script.put(wire.BlockDelta(0, text))
        await until(pilot, lambda: whole(rows(pilot)))
        harmless(pilot)
        script.put(wire.BlockStop(0))
        script.put(wire.BlockStart(1, "tool"))
        size = max(1, len(text) // 40)
        for at in range(0, len(text), size):
            script.put(wire.BlockDelta(1, text[at : at + size]))
        script.put(wire.NotSaved(text))
        script.put(wire.Restarted(text))
        script.put(Notice(NoticeKind.RECONNECTING, text, 1.0))
        await until(pilot, lambda: "reconnecting" in rows(pilot))
        harmless(pilot)
        script.put(ClientError("failed", text))
        await until(pilot, lambda: pilot.app.talk.live is None)
        harmless(pilot)
        assert rows(pilot).count("G") >= 4


@texts
async def test_in_search_and_its_failures(client: FakeClient, tmp_path: Path, text: str) -> None:
    client.talk("found", "a", "b")
    client.hits = [Hit("c0001", text, "c0001-m0", "user", f"{text[:400]} \x02{text[:400]}\x03", 0)]
    async with running(client, tmp_path, size=(120, 40)) as pilot:
        await pilot.press("f3", "x")
        await seen(pilot)

        async def fail(query: str, *, limit: int = 20) -> list[Hit]:
            raise ClientError("internal", text)

        client.search = fail  # type: ignore[method-assign]
        client.hits = []
        await pilot.press("y")
        await until(pilot, lambda: pilot.app.screen.query_one("#hits").option_count == 0)
        await seen(pilot)


@texts
async def test_in_what_the_server_refuses_with(
    client: FakeClient, tmp_path: Path, text: str
) -> None:
    client.talk("known", "a", "b")
    async with running(client, tmp_path, size=(120, 40)) as pilot:
        client.refuse = ClientError("server_overloaded", text)
        pilot.app.chat.composer.put("hello")
        await pilot.press("enter")
        await until(pilot, lambda: "Not sent" in screen_text(pilot))
        await seen(pilot)
        pilot.app.chat.say_trouble("")

        async def refuse(*_: object, **__: object) -> None:
            raise ClientError("internal", text)

        client.branch = refuse  # type: ignore[assignment, method-assign]
        pilot.app.chat.open("c0001")
        await seen(pilot)
        client.delete_conversation = refuse  # type: ignore[assignment, method-assign]
        pilot.app.chat.say_trouble("")
        pilot.app.library.UNDO_SECONDS = 0  # type: ignore[misc]
        pilot.app.library.delete_later("c0001")
        pilot.app._delete_due()
        await until(pilot, lambda: "Not deleted" in screen_text(pilot))
        await seen(pilot)


@texts
async def test_in_a_name_that_is_to_be_changed(
    client: FakeClient, tmp_path: Path, text: str
) -> None:
    client.talk(text, "a", "b")
    async with running(client, tmp_path, size=(120, 40)) as pilot:
        await until(pilot, lambda: bool(pilot.app.sidebar.shown))
        await pilot.press("ctrl+s", "down", "r")
        await until(pilot, lambda: "New name" in screen_text(pilot))
        await seen(pilot)


@texts
async def test_in_what_the_status_says(client: FakeClient, tmp_path: Path, text: str) -> None:
    client.state["engine"] = {"state": "failed", "failure": {"message": text}}
    async with running(client, tmp_path, size=(140, 40)) as pilot:
        await seen(pilot)
        assert isinstance(pilot.app, HobnobApp)
        pilot.app._hear(Notice(NoticeKind.BUSY, text))
        await pilot.pause()
        harmless(pilot)
