"""Editing a message: the draft stays, and what was rewritten is never lost."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from fake_client import FakeClient
from support_app import running, screen_text, until
from textual.pilot import Pilot

from hobnob.tui import chat
from hobnob.tui.drafts import Draft, Drafts
from hobnob.tui.notice import ClientError

EDITING = "editing an earlier message"


@pytest.fixture
def client() -> FakeClient:
    client = FakeClient()
    client.talk("t", "question", "answer", "second question", "second answer")
    client.talk("other", "a", "b")
    return client


@pytest.fixture(autouse=True)
def drafts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "DRAFT_PAUSE_SECONDS", 0.02)


async def shows(pilot: Pilot[Any], count: int = 4, text: str = "") -> None:
    app = pilot.app
    await until(pilot, lambda: len(app.talk.entries) == count and not app.chat.busy)
    await until(pilot, lambda: app.chat.composer.text == text)


async def begins_edit(pilot: Pilot[Any], draft: str = "abc") -> None:
    """The last message of the user, with a draft in the input."""
    await shows(pilot)
    await pilot.press(*draft, "alt+up", "alt+up", "e")
    await until(pilot, lambda: pilot.app.chat.composer.text == "second question")


async def rewrites(pilot: Pilot[Any], text: str = "better question") -> None:
    pilot.app.chat.composer.put(text)
    await pilot.pause(0.1)


async def test_the_draft_is_back_when_the_edit_is_left(client: FakeClient, tmp_path: Path) -> None:
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await begins_edit(pilot)
        await rewrites(pilot)
        assert Drafts(tmp_path / "drafts").load("c0001").text == "abc", "and kept meanwhile"
        await pilot.press("escape")
        assert pilot.app.chat.composer.text == "abc"
        assert EDITING not in screen_text(pilot)
        await pilot.press("ctrl+q")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await shows(pilot, text="abc")
        assert EDITING not in screen_text(pilot)


async def test_the_draft_is_back_when_the_edited_message_was_sent(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await begins_edit(pilot)
        await rewrites(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.talk.live is not None)
        assert [one["text"] for one in client.sent] == ["better question"]
        assert client.sent[0]["parent"] == "c0001-m1"
        assert pilot.app.chat.composer.text == "abc"
        await pilot.press("ctrl+q")
    drafts = Drafts(tmp_path / "drafts")
    assert (drafts.load("c0001").text, drafts.load_edit("c0001").text) == ("abc", "")


@pytest.mark.parametrize("way", ["another conversation", "ctrl+q", "kill"])
async def test_an_edit_goes_on_after_the_conversation_was_left(
    client: FakeClient, tmp_path: Path, way: str
) -> None:
    async def goes_on(pilot: Pilot[Any]) -> None:
        await shows(pilot, text="better question")
        await until(pilot, lambda: EDITING in screen_text(pilot))
        await pilot.press("enter")
        await until(pilot, lambda: bool(client.sent))
        assert client.sent[0]["parent"] == "c0001-m1"
        assert pilot.app.chat.composer.text == "abc"

    async with running(client, tmp_path, conversation="c0001") as pilot:
        await begins_edit(pilot)
        await rewrites(pilot)
        if way == "another conversation":
            pilot.app.chat.open("c0002")
            await shows(pilot, 2)
            assert EDITING not in screen_text(pilot)
            pilot.app.chat.open("c0001")
            await goes_on(pilot)
            return
        if way == "kill":
            pilot.app.chat.save_draft = lambda: None  # nothing is done at the end
        await pilot.press("ctrl+q")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await goes_on(pilot)


async def test_an_edit_of_a_message_far_above_goes_on_too(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("long", *(f"text {n}" for n in range(200)))
    Drafts(tmp_path / "drafts").save_edit("c0003", Draft("better", instead_of="c0003-m4"))
    async with running(client, tmp_path, conversation="c0003") as pilot:
        await until(pilot, lambda: EDITING in screen_text(pilot))
        await pilot.press("enter")
        await until(pilot, lambda: bool(client.sent))
        assert client.sent[0]["parent"] == "c0003-m3"


async def test_an_edit_whose_message_is_not_there_any_more_is_a_draft(
    client: FakeClient, tmp_path: Path
) -> None:
    drafts = Drafts(tmp_path / "drafts")
    drafts.save_edit("c0001", Draft("rewritten", instead_of="gone"))
    drafts.save("c0001", Draft("abc"))
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await shows(pilot, text="rewritten\nabc")
        assert "What you wrote is in the input" in screen_text(pilot)
        assert EDITING not in screen_text(pilot)
        await until(pilot, lambda: drafts.load("c0001").text == "rewritten\nabc")
        assert drafts.load_edit("c0001") == Draft("")


async def test_an_edit_that_was_on_its_way_at_the_end_is_sent_again_as_one_turn(
    client: FakeClient, tmp_path: Path
) -> None:
    keys: list[str] = []
    real = client.send

    async def lost(*given: Any, **options: Any) -> Any:
        keys.append(options["key"])
        if len(keys) == 1:
            await asyncio.Event().wait()
        return await real(*given, **options)

    client.send = lost  # type: ignore[method-assign]
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await begins_edit(pilot)
        await rewrites(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: len(keys) == 1)
        assert pilot.app.chat.composer.text == "abc"
        await pilot.press("ctrl+q")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await shows(pilot, text="better question")
        await pilot.press("enter")
        await until(pilot, lambda: len(keys) == 2)
        assert keys[0] == keys[1]
        assert pilot.app.chat.composer.text == "abc"


async def test_an_edit_that_was_not_accepted_mixes_with_nothing_that_was_typed(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await begins_edit(pilot)
        await rewrites(pilot)
        client.refuse = ClientError("server_overloaded", "No room.")
        await pilot.press("enter")
        await until(pilot, lambda: "Not sent: No room." in screen_text(pilot))
        assert pilot.app.chat.composer.text == "better question"
        assert EDITING in screen_text(pilot)
        await pilot.press("escape")
        assert pilot.app.chat.composer.text == "abc"


async def test_a_command_leaves_the_edit_as_it_is_said_to_be(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await begins_edit(pilot)
        await rewrites(pilot, "/status")
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.chat.composer.text == "second question")
        assert EDITING in screen_text(pilot)
        await pilot.press("escape")  # closes what the command has opened
        assert pilot.app.chat.composer.text == "second question"
        await pilot.press("escape")
        assert pilot.app.chat.composer.text == "abc"
        pilot.app.chat.composer.put("new message")
        await pilot.press("enter")
        await until(pilot, lambda: bool(client.sent))
        assert client.sent[0]["parent"] == "c0001-m3"


async def test_another_message_is_edited_only_when_nothing_rewritten_would_be_lost(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await begins_edit(pilot)
        composer = pilot.app.chat.composer
        await pilot.press("alt+up", "g", "e")
        await until(pilot, lambda: composer.text == "question")
        await rewrites(pilot)
        await pilot.press("alt+up", "alt+up", "e")
        await until(pilot, lambda: "You are editing another message" in screen_text(pilot))
        assert composer.text == "better question"
        await pilot.press("escape", "escape")
        await until(pilot, lambda: composer.text == "abc")


async def test_an_edit_is_not_sent_where_its_message_is_not_shown(
    client: FakeClient, tmp_path: Path
) -> None:
    client.siblings["c0001-m1"] = ["c0001-m9", "c0001-m1"]
    client.branches["c0001-m9"] = client.stored["c0001"][:2]
    client.branches["c0001-m3"] = client.stored["c0001"]
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await begins_edit(pilot)
        await rewrites(pilot)
        pilot.app.chat.view.views[1].focus()
        await pilot.press("left")
        await until(pilot, lambda: len(pilot.app.talk.entries) == 2)
        await pilot.press("i", "enter")
        await until(pilot, lambda: "is in another version" in screen_text(pilot))
        assert pilot.app.chat.composer.text == "better question"
        assert client.sent == []


async def test_what_is_entered_while_a_conversation_opens_is_sent_there(
    client: FakeClient, tmp_path: Path
) -> None:
    gate, real = asyncio.Event(), client.branch

    async def slow(*given: Any, **options: Any) -> Any:
        await gate.wait()
        return await real(*given, **options)

    async with running(client, tmp_path, conversation="c0001") as pilot:
        await shows(pilot)
        client.branch = slow  # type: ignore[method-assign]
        pilot.app.chat.open("c0002")
        await pilot.press(*"hello", "enter")
        await until(pilot, lambda: "1 waiting to be sent" in screen_text(pilot))
        assert client.sent == []
        gate.set()
        await until(pilot, lambda: bool(client.sent))
        assert (client.sent[0]["conversation"], client.sent[0]["text"]) == ("c0002", "hello")


async def test_what_was_entered_is_back_when_the_conversation_does_not_open(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await shows(pilot)
        gate = asyncio.Event()

        async def fails(*given: Any, **options: Any) -> Any:
            await gate.wait()
            raise ClientError("unreachable", "Nobody is there.")

        client.branch = fails  # type: ignore[method-assign]
        pilot.app.chat.open("c0002")
        await pilot.press(*"hello", "enter")
        gate.set()
        await until(pilot, lambda: "Nobody is there." in screen_text(pilot))
        assert pilot.app.chat.composer.text == "hello"
        assert client.sent == []


def test_drafts_from_before_are_read_and_an_edit_is_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "c1.json").write_text(json.dumps({"text": "old", "key": "k"}))
    drafts = Drafts(tmp_path)
    assert drafts.load("c1") == Draft("old", "k")
    edit = Draft("new version", "key", instead_of="m1")
    drafts.save_edit("c1", edit)
    assert Drafts(tmp_path).load_edit("c1") == edit
    assert drafts.load("c1") == Draft("old", "k")
    drafts.save_edit("c1", Draft(""))
    assert [path.name for path in tmp_path.iterdir()] == ["c1.json"]


async def test_a_folder_that_takes_no_drafts_is_said_once_and_the_app_goes_on(
    client: FakeClient, tmp_path: Path
) -> None:
    (tmp_path / "drafts").write_text("in the way")
    async with running(client, tmp_path) as pilot:
        await pilot.press(*"hello")
        await until(pilot, lambda: "Drafts are not kept" in screen_text(pilot))
        pilot.app.clear_notifications()
        await until(pilot, lambda: "Drafts are not kept" not in screen_text(pilot))
        await pilot.press(*" again")
        await pilot.pause(0.1)
        assert "Drafts are not kept" not in screen_text(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: [one["text"] for one in client.sent] == ["hello again"])
