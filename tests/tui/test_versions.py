"""Going over to another version of a message: what is shown is what the server holds for open."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_client import FakeClient
from support_app import running, screen_text, send, until

from hobnob.tui.line import Line
from hobnob.tui.notice import ClientError
from hobnob.tui.records import Conversation
from hobnob.tui.talk import FIRST_MESSAGES, LARGEST_PAGE, Talk


@pytest.fixture
def client() -> FakeClient:
    """A conversation whose reply has two versions, the first of which is open."""
    client = FakeClient()
    client.talk("t", "question", "first answer")
    stored = client.stored["c0001"]
    other = replace(stored[1], id="other", text="other answer")
    client.siblings["c0001-m1"] = client.siblings["other"] = ["c0001-m1", "other"]
    client.branches["other"] = [stored[0], other]
    client.branches["c0001-m1"] = stored
    return client


def keeps_its_head(client: FakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(id: str, **changes: Any) -> Conversation:
        raise ClientError("unavailable", "The server is busy.")

    monkeypatch.setattr(client, "update_conversation", refuse)


async def opened(client: FakeClient) -> Talk:
    line = Line()
    line.open(client)  # type: ignore[arg-type]
    talk = Talk(line)
    await talk.open("c0001")
    return talk


async def test_a_version_is_shown_and_open_on_the_server(client: FakeClient) -> None:
    talk = await opened(client)
    shown = await talk.switch(talk.entries[-1], 1)
    assert shown is talk.entries[-1]
    assert [one.text for one in talk.entries] == ["question", "other answer"]
    assert client.heads == ["other"]
    assert talk.conversation == client.talks["c0001"]
    assert not talk.behind
    assert await talk.switch(shown, 1) is None


async def test_a_version_that_the_server_does_not_open_is_not_shown(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = await opened(client)
    entries = list(talk.entries)
    keeps_its_head(client, monkeypatch)
    with pytest.raises(ClientError):
        await talk.switch(talk.entries[-1], 1)
    assert talk.entries == entries
    assert talk.conversation == client.talks["c0001"]
    assert not talk.behind


async def test_a_version_far_above_its_end_is_reached_before_it_is_shown(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = FakeClient()
    long.talk("t", *(f"message {n}" for n in range(700)))
    stored = long.stored["c0001"]
    long.siblings["c0001-m3"] = ["c0001-m3", "fork"]
    long.branches["fork"] = [
        replace(one, id=f"fork-{n}" if n > 3 else "fork") if n >= 3 else one
        for n, one in enumerate(stored)
    ]
    talk = await opened(long)
    await talk.reach("c0001-m3")
    at = next(one for one in talk.entries if one.id == "c0001-m3")
    entries = list(talk.entries)
    before = len(long.pages)
    real = long.branch

    async def no_pages(*given: Any, **options: Any) -> Any:
        if options.get("before"):
            raise ClientError("unavailable", "The server is busy.")
        return await real(*given, **options)

    monkeypatch.setattr(long, "branch", no_pages)
    with pytest.raises(ClientError):
        await talk.switch(at, 1)
    assert talk.entries == entries
    assert long.heads == []
    monkeypatch.setattr(long, "branch", real)
    shown = await talk.switch(at, 1)
    assert shown is not None and shown.id == "fork"
    assert long.heads == ["fork-699"]
    assert [limit for _, limit in long.pages[before:]] == [
        FIRST_MESSAGES,
        FIRST_MESSAGES,
        LARGEST_PAGE,
        LARGEST_PAGE,
    ]
    assert [one.text for one in talk.entries] == [f"message {n}" for n in range(700)]


async def test_after_a_version_that_could_not_be_opened_the_next_message_follows_what_is_seen(
    client: FakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: "first answer" in screen_text(pilot))
        with monkeypatch.context() as patch:
            keeps_its_head(client, patch)
            await pilot.press("alt+up", "right")
            await until(pilot, lambda: "The server is busy." in screen_text(pilot))
        assert "first answer" in screen_text(pilot)
        assert "other answer" not in screen_text(pilot)
        await pilot.press("i")
        await send(pilot, "and then?")
        assert client.sent[-1]["parent"] == "c0001-m1"
