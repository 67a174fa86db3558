"""Notices: told in rows of their own, whole, for a while, and never over what is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_client import FakeClient
from fake_server import FakeServer
from support_app import running, screen_text, until
from support_cli import Cli
from support_session import Session
from textual.pilot import Pilot

from hobnob.tui.help import HelpScreen
from hobnob.tui.notices import Notices
from hobnob.tui.playground import Playground

LONG = (
    "The temporary conversation is not deleted yet: the server at http://127.0.0.1:7113 does not "
    "answer. The server does it by itself."
)
LAST = "and this is the end of it."


@pytest.fixture
def client() -> FakeClient:
    client = FakeClient()
    client.talk("t", "question", "words and more words\n\n" * 40 + LAST)
    return client


def shown(pilot: Pilot[Any]) -> str:
    """The rows of the screen that are not empty, as one line."""
    return " ".join(screen_text(pilot).replace("▌", " ").replace("▁", " ").split())


async def opened(pilot: Pilot[Any]) -> None:
    await until(pilot, lambda: LAST in screen_text(pilot))


@pytest.mark.parametrize("size", [(200, 50), (80, 24), (60, 20), (40, 30)])
async def test_a_long_notice_has_all_its_words_and_the_end_of_the_reply_is_seen(
    client: FakeClient, tmp_path: Path, size: tuple[int, int]
) -> None:
    async with running(client, tmp_path, size=size, conversation="c0001") as pilot:
        await opened(pilot)
        pilot.app.notify(LONG)
        notices = pilot.app.screen.query_one(Notices)
        await until(pilot, lambda: notices.display)
        await until(pilot, lambda: LAST in screen_text(pilot))
        rows = screen_text(pilot).split("\n")[notices.region.y : notices.region.bottom]
        told = " ".join(row[notices.region.x : notices.region.right] for row in rows)
        assert LONG in " ".join(told.replace("▌", " ").split())
        assert notices.region.bottom <= pilot.app.chat.composer.region.y


async def test_a_short_notice_moves_nothing(client: FakeClient, tmp_path: Path) -> None:
    async with running(client, tmp_path, size=(80, 24), conversation="c0001") as pilot:
        await opened(pilot)
        chat = pilot.app.chat
        before = chat.view.region, chat.composer.region
        pilot.app.notify("Copied.")
        await until(pilot, lambda: "Copied." in screen_text(pilot))
        assert (chat.view.region, chat.composer.region) == before
        pilot.app.clear_notifications()
        await until(pilot, lambda: "Copied." not in screen_text(pilot))
        assert (chat.view.region, chat.composer.region) == before


async def test_a_hint_stays_beside_a_notice(client: FakeClient, tmp_path: Path) -> None:
    async with running(client, tmp_path, size=(80, 24), conversation="c0001") as pilot:
        await opened(pilot)
        await pilot.press("pageup")
        await until(pilot, lambda: "↓ Ctrl+End" in screen_text(pilot))
        pilot.app.notify("Copied.")
        await until(pilot, lambda: "Copied." in screen_text(pilot))
        assert "↓ Ctrl+End" in screen_text(pilot)


async def test_the_same_notice_twice_is_told_once_and_the_newest_are_kept(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path) as pilot:
        for words in ("First.", "Busy.", "Busy.", "Third.", "Fourth."):
            pilot.app.notify(words)
        await until(pilot, lambda: "Fourth." in screen_text(pilot))
        assert "Busy. ▌ Third. ▌ Fourth." in " ".join(screen_text(pilot).split())
        assert screen_text(pilot).count("Busy.") == 1 and "First." not in screen_text(pilot)


async def test_a_notice_goes_when_its_time_is_over_or_by_a_click(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path) as pilot:
        pilot.app.notify("Short.", timeout=0.3)
        pilot.app.notify("Longer.", timeout=60)
        await until(pilot, lambda: "Short." in screen_text(pilot))
        await until(pilot, lambda: "Short." not in screen_text(pilot))
        assert "Longer." in screen_text(pilot)
        await pilot.click(Notices)
        await until(pilot, lambda: "Longer." not in screen_text(pilot))


async def test_the_playground_has_such_rows_and_over_a_dialog_they_are_laid(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path, size=(80, 24)) as pilot:
        await pilot.press("ctrl+l")
        await until(pilot, lambda: isinstance(pilot.app.screen, Playground))
        pilot.app.notify(LONG, timeout=60)
        await until(pilot, lambda: pilot.app.screen.query_one(Notices).display)
        assert not pilot.app.screen.query("Toast")
        await pilot.press("f1")
        await until(pilot, lambda: isinstance(pilot.app.screen, HelpScreen))
        await until(pilot, lambda: bool(pilot.app.screen.query("Toast")))


async def test_the_inline_chat_tells_all_its_words(server: FakeServer, hobnob: Cli) -> None:
    async with Session(hobnob, "--inline", size=(50, 20)) as session:
        await session.until("F1 keys")
        session.type("/hlep\r")
        await session.sees("There is no /hlep; /help? Enter again sends it")
        await session.sees("as a message.")
        session.type("\x11")
        assert await session.ends() == 0
