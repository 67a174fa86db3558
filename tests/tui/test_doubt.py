"""What is nearly a command is asked about before it is sent, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_client import FakeClient
from support_app import running, screen_text, until

from hobnob.tui.doubt import Doubt, distance, nearest
from hobnob.tui.linear_commands import COMMANDS as OF_THE_PLAIN_CHAT

ASKED = "There is no /comapre; /compare? Enter again sends it as a message."


@pytest.fixture
def client() -> FakeClient:
    return FakeClient()


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("/comapre", "/compare"),
        ("/hlep", "/help"),
        ("/Help", "/help"),
        (" /qiut\n", "/quit"),
        ("/regenrate", "/regenerate"),
        ("/models", "/model"),
        ("/rle", "/role"),
        ("/rle terse", "/role"),
        ("/cdoe 2", "/code"),
        ("/exit", "/quit"),
        ("/clear", "/new"),
    ],
)
def test_a_slip_of_the_hand_is_known(text: str, meant: str) -> None:
    assert nearest(text) == meant


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "help",
        "/help",
        "/etc/hosts says nothing",
        "/usr/bin",
        "/tmp",
        "/r/python is a forum",
        "/hlep me with this",
        "/model me a house",
        "/comapre\nthese two",
        "/s/a/b/",
        "/2024",
        "/poem",
        "/translate",
        "// comment",
        "/rle one two",
        "/cdoe review",
    ],
)
def test_what_is_no_slip_is_sent_as_it_is(text: str) -> None:
    assert nearest(text) == ""


def test_the_plain_chat_has_commands_of_its_own() -> None:
    assert nearest("/fcats") == ""
    assert nearest("/fcats", OF_THE_PLAIN_CHAT) == "/facts"


def test_two_letters_in_each_others_place_are_one_slip() -> None:
    assert distance("/hlep", "/help") == 1
    assert distance("/help", "/help") == 0
    assert distance("/hel", "/help") == distance("/helpp", "/help") == 1
    assert distance("", "/new") == 4


def test_the_same_text_entered_again_is_meant_as_it_is() -> None:
    doubt = Doubt()
    assert doubt.about("/comapre") == ASKED
    assert doubt.about("/comapre") == ""
    assert doubt.about("/compare") == ""
    assert doubt.about("/comapre") == ASKED


async def test_it_stays_in_the_input_and_a_second_enter_sends_it(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path) as pilot:
        composer = pilot.app.chat.composer
        await pilot.press("slash", *"comapre", "enter")
        await until(pilot, lambda: ASKED[:28] in screen_text(pilot))
        assert composer.text == "/comapre" and client.sent == []
        await pilot.press("enter")
        await until(pilot, lambda: len(client.sent) == 1)
        assert client.sent[0]["text"] == "/comapre" and composer.text == ""


async def test_it_waits_for_no_reply_unasked(client: FakeClient, tmp_path: Path) -> None:
    async with running(client, tmp_path) as pilot:
        await pilot.press(*"one", "enter")
        await until(pilot, lambda: pilot.app.talk.live is not None)
        await pilot.press("slash", *"qiut", "enter")
        await until(pilot, lambda: "There is no /qiut" in screen_text(pilot))
        assert pilot.app.chat._waiting.messages == []


async def test_a_path_is_sent_at_once(client: FakeClient, tmp_path: Path) -> None:
    async with running(client, tmp_path) as pilot:
        await pilot.press("slash", *"usr", "slash", *"bin", "enter")
        await until(pilot, lambda: len(client.sent) == 1)
        assert client.sent[0]["text"] == "/usr/bin"
