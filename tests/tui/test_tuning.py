"""System prompt and sampling options of a conversation, typed in the app."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_client import FakeClient
from support_app import running, screen_text, send, until
from textual.pilot import Pilot
from textual.widgets import Input, TextArea

from hobnob.tui.settings_form import ConversationForm
from hobnob.tui.tuning import Tuning


@pytest.fixture
def client() -> FakeClient:
    return FakeClient()


async def asks(pilot: Pilot[Any], command: str) -> ConversationForm:
    pilot.app.chat.composer.put(command)
    await pilot.press("enter")
    await until(pilot, lambda: isinstance(pilot.app.screen, ConversationForm))
    form = pilot.app.screen
    assert isinstance(form, ConversationForm)
    return form


async def takes(pilot: Pilot[Any]) -> None:
    await pilot.press("ctrl+j")
    await until(pilot, lambda: not isinstance(pilot.app.screen, ConversationForm))


def header(pilot: Pilot[Any]) -> str:
    return screen_text(pilot).split("\n")[0]


def test_what_differs_from_the_default_is_one_line() -> None:
    assert Tuning().words == ""
    assert Tuning("", {}).words == ""
    tuning = Tuning("Be\nbrief.", {"temperature": 0.2, "stop": ["a", "b"]})
    assert tuning.words == 'system prompt · temperature 0.2 · stop ["a", "b"]'
    assert tuning.line == "temperature=0.2 stop=a stop=b"


async def test_the_open_conversation_is_given_both_and_the_header_says_so(
    client: FakeClient, tmp_path: Path
) -> None:
    talk = client.talk("a talk", "Why?", "So.")
    async with running(client, tmp_path, conversation=talk.id) as pilot:
        await until(pilot, lambda: bool(pilot.app.talk.entries))
        form = await asks(pilot, "/system")
        assert isinstance(form.focused, TextArea)
        form.query_one(TextArea).load_text("Be brief.\nRhyme.")
        form.query_one(Input).value = "temperature=0.2"
        await takes(pilot)
        stored = client.talks[talk.id]
        assert (stored.system, stored.settings) == ("Be brief.\nRhyme.", {"temperature": 0.2})
        assert "system prompt · temperature 0.2" in header(pilot)
        form = await asks(pilot, "/settings")
        assert isinstance(form.focused, Input)
        assert form.query_one(Input).value == "temperature=0.2"
        form.query_one(Input).value = ""
        form.query_one(TextArea).load_text("")
        await takes(pilot)
        stored = client.talks[talk.id]
        assert (stored.system, stored.settings) == (None, {})
        assert "temperature" not in header(pilot) and "system" not in header(pilot)


async def test_a_new_conversation_begins_with_them_and_the_next_one_does_not(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path) as pilot:
        form = await asks(pilot, "/system")
        form.query_one(TextArea).load_text("Be brief.")
        form.query_one(Input).value = "seed=7"
        await takes(pilot)
        assert "system prompt · seed 7" in header(pilot)
        assert client.talks == {}
        await send(pilot, "Hello")
        stored = client.talks[pilot.app.talk.id]
        assert (stored.system, stored.settings) == ("Be brief.", {"seed": 7})
        assert "system prompt · seed 7" in header(pilot)
        await pilot.press("ctrl+n")
        await until(pilot, lambda: "New conversation" in header(pilot))
        assert "seed" not in header(pilot)
        assert pilot.app.talk.tuning == Tuning()


@pytest.mark.parametrize("stored", [True, False])
async def test_what_the_server_refuses_is_said_in_the_form_and_changes_nothing(
    client: FakeClient, tmp_path: Path, stored: bool
) -> None:
    place = client.talk("a talk", "Why?", "So.").id if stored else None
    async with running(client, tmp_path, conversation=place) as pilot:
        await until(pilot, lambda: bool(pilot.app.talk.entries) == stored)
        form = await asks(pilot, "/settings")
        form.query_one(Input).value = "nonsense=1"
        await pilot.press("enter")
        await until(pilot, lambda: "There is no option 'nonsense'." in screen_text(pilot))
        assert pilot.app.screen is form and form.query_one(Input).value == "nonsense=1"
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.screen is not form)
        assert pilot.app.talk.tuning == Tuning()


async def test_options_of_the_command_line_are_shown_and_can_be_taken_away(
    client: FakeClient, tmp_path: Path
) -> None:
    options = {"temperature": 0.9, "seed": 7}
    async with running(client, tmp_path, system="Rhyme.", options=options) as pilot:
        assert "system prompt · temperature 0.9 · seed 7" in header(pilot)
        form = await asks(pilot, "/settings")
        assert form.query_one(TextArea).text == "Rhyme."
        form.query_one(Input).value = "seed=8"
        await takes(pilot)
        await send(pilot, "Hello")
        assert client.talks[pilot.app.talk.id].settings == {"seed": 8}
        assert client.asked[-1].options is None
