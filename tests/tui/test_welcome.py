"""What stands where there are no messages yet, and above them: all of it is so."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_client import FakeClient
from support_app import running, screen_text, until

from hobnob.launch import needs_key
from hobnob.tui.notice import ClientError

HERE = "Everything stays on this machine"
KEPT = "is on disk"


async def test_the_start_page_says_where_everything_is(tmp_path: Path) -> None:
    async with running(FakeClient(), tmp_path) as pilot:
        assert HERE in screen_text(pilot) and KEPT in screen_text(pilot)
    url = "http://203.0.113.9:7113"
    async with running(FakeClient(), tmp_path, url=url) as pilot:
        shown = screen_text(pilot)
        assert f"What you write goes to the server at {url}." in shown
        assert HERE not in shown


async def test_the_page_of_a_temporary_conversation_promises_nothing_that_is_kept(
    tmp_path: Path,
) -> None:
    async with running(FakeClient(), tmp_path, temporary=True) as pilot:
        assert "it is deleted when you leave it" in screen_text(pilot)
        assert KEPT not in screen_text(pilot) and HERE in screen_text(pilot)
        await pilot.press("ctrl+n")
        await until(pilot, lambda: KEPT in screen_text(pilot))
        assert "temporary:" not in screen_text(pilot)


@pytest.mark.parametrize("columns", [40, 60, 83, 84, 100, 140])
async def test_that_a_conversation_is_temporary_has_room_before_all_else(
    tmp_path: Path, columns: int
) -> None:
    client = FakeClient()
    client.state["model"]["id"] = "A-Model-Of-A-Rather-Long-Name-8B-Instruct-Q4_K_M"
    async with running(client, tmp_path, size=(columns, 30), temporary=True) as pilot:
        await until(pilot, lambda: "A-Mo" in screen_text(pilot) or columns == 40)
        await until(pilot, lambda: "Temporary, gone when you leave it" in screen_text(pilot))


async def test_that_a_server_needs_another_key_is_said_in_full(tmp_path: Path) -> None:
    client, words = FakeClient(), needs_key("http://203.0.113.9:7113", "another key")

    async def refuse(**options):
        raise ClientError("unauthorized", words)

    client.conversations = refuse
    async with running(client, tmp_path, size=(84, 30), url="http://203.0.113.9:7113") as pilot:
        await until(pilot, lambda: "the key is not accepted" in screen_text(pilot))
        shown = " ".join(row[33:].strip() for row in screen_text(pilot).split("\n"))
        assert words in " ".join(shown.split())
