"""Roles: system prompts in files of the user."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from fake_client import FakeClient
from support_app import running, screen_text, until
from textual.pilot import Pilot
from textual.widgets import Static

from hobnob.exits import Exit
from hobnob.tui import roles
from hobnob.tui.commands import command_of
from hobnob.tui.completions import Completions
from hobnob.tui.role_picker import RolePicker
from hobnob.tui.roles import BadRole, NoRole, Role, Roles, begun, is_name, pairs, parse, tuned
from hobnob.tui.tuning import Tuning

TERSE = """---
about: short answers
model: "tiny"
temperature: 0.2
# not said to anybody
stop: END
max-tokens: 50
---

Be terse.

Always.
"""


@pytest.fixture
def found(hobnob_home: Path) -> Roles:
    folder = hobnob_home / "config" / "roles"
    folder.mkdir(parents=True)
    (folder / "terse.md").write_text(TERSE)
    (folder / "pirate.md").write_text("Speak as a pirate.\n")
    return Roles(folder)


# ---- reading ----------------------------------------------------------------------------------


def test_a_file_is_its_text_and_what_its_front_matter_says() -> None:
    assert parse("terse", TERSE) == Role(
        "terse",
        "Be terse.\n\nAlways.",
        "short answers",
        "tiny",
        {"temperature": 0.2, "stop": ["END"], "max_tokens": 50},
    )
    assert parse("terse", "\ufeff" + TERSE.replace("\n", "\r\n")) == parse("terse", TERSE)


def test_without_a_front_matter_all_of_it_is_the_text() -> None:
    role = parse("a", "\nSay {input} and {{x}} $HOME.\n---\nmore\n")
    assert role == Role("a", "Say {input} and {{x}} $HOME.\n---\nmore")
    assert role.line == "Say {input} and {{x}} $HOME."


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("---\nabout: x\nBe terse.", "has no end"),
        ("---\nabout\n---\nx", "line 2 is not of the form"),
        ("---\n  nested: x\n---\nx", "line 2 is not of the form"),
        ("---\n- a\n---\nx", "line 2 is not of the form"),
        ("---\nseed: 1\nseed: 2\n---\nx", "line 3 says seed a second time"),
        ("---\nseed:\n---\nx", "line 2 gives seed no value"),
        ("", "no text"),
        ("---\n---\n \n", "no text"),
        ("---", "has no end"),
    ],
)
def test_a_broken_file_says_which_line(source: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse("a", source)


def test_names_are_what_can_be_typed_after_a_command() -> None:
    for good in ("a", "code-review", "Übersetzer", "v1.2", "a" * 60):
        assert is_name(good), good
    for bad in ("", ".", "..", ".a", "-a", "a/b", "../a", "a b", "a\0", "a\nb", "a\\b", "a" * 61):
        assert not is_name(bad), bad


def test_only_files_of_that_form_are_roles(found: Roles) -> None:
    for name in (".hidden.md", "a b.md", "notes.txt", "-x.md", "bad\nname.md"):
        (found.folder / name).write_text("x")
    assert found.names() == ["pirate", "terse"]
    assert Roles(found.folder / "none").names() == []


@pytest.mark.parametrize("name", ["nobody", "../config", "/etc/passwd", "", "terse.md", "a\0b"])
def test_a_role_that_there_is_not_is_a_sentence_with_those_that_are(
    found: Roles, name: str
) -> None:
    (found.folder.parent / "config.md").write_text("secret")
    with pytest.raises(NoRole, match="There are pirate, terse") as caught:
        found.read(name)
    assert caught.value.exit_code is Exit.USAGE and caught.value.message.isprintable()


def test_where_there_are_none_it_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(NoRole, match="none yet: a file NAME.md in"):
        Roles(tmp_path).read("x")


def test_files_that_are_no_text_are_refused(found: Roles) -> None:
    os.mkfifo(found.folder / "pipe.md")
    (found.folder / "folder.md").mkdir()
    (found.folder / "huge.md").write_bytes(b"x" * (roles.MAX_BYTES + 1))
    (found.folder / "nul.md").write_bytes(b"a\0b")
    (found.folder / "latin.md").write_bytes(b"caf\xe9")
    (found.folder / "gone.md").symlink_to("nowhere")
    (found.folder / "odd.md").write_text("---\nfoo bar\n---\nx")
    for name in ("pipe", "folder", "huge", "nul", "latin", "gone", "odd"):
        with pytest.raises(BadRole, match=rf"{name}\.md") as caught:
            found.read(name)
        assert caught.value.exit_code is Exit.CONFIG
    (found.folder / "link.md").symlink_to("terse.md")  # where settings are kept elsewhere
    assert found.read("link").text == found.read("terse").text


def test_options_that_are_given_win() -> None:
    role = parse("a", TERSE)
    assert pairs(role) == ["temperature=0.2", "stop=END", "max_tokens=50"]
    assert pairs(role, ["stop=.", "seed=1"]) == [
        "temperature=0.2",
        "max_tokens=50",
        "stop=.",
        "seed=1",
    ]
    before = Tuning("old", {"seed": 1, "temperature": 1})
    assert tuned(before, role) == Tuning(
        role.text, {"seed": 1, "temperature": 0.2, "stop": ["END"], "max_tokens": 50}
    )


def test_a_command_takes_one_word_where_it_takes_any() -> None:
    assert command_of("/role") == ("/role", "")
    assert command_of(" /role terse ") == ("/role", "terse")
    for text in ("/role a b", "/role a\nb", "/new x", "role x", "", "/role\na", "/rolex"):
        assert command_of(text) is None, text
    assert begun("/role ") == "" and begun("/role te") == "te"
    for text in ("/role", "/role a b", "/role a ", "/roles x", "x /role a"):
        assert begun(text) is None, text


# ---- in the app -------------------------------------------------------------------------------


@pytest.fixture
def client() -> FakeClient:
    return FakeClient()


async def enters(pilot: Pilot[Any], text: str) -> None:
    pilot.app.chat.composer.put(text)
    await pilot.press("enter")


def told(pilot: Pilot[Any]) -> str:
    return " ".join(one.message for one in pilot.app._notifications)


async def test_a_role_is_taken_by_its_name(
    client: FakeClient, tmp_path: Path, found: Roles
) -> None:
    talk = client.talk("a talk", "Why?", "So.")
    async with running(client, tmp_path, conversation=talk.id) as pilot:
        await until(pilot, lambda: bool(pilot.app.talk.entries))
        await enters(pilot, "/role terse")
        await until(pilot, lambda: "terse" in told(pilot))
        stored = client.talks[talk.id]
        assert stored.system == "Be terse.\n\nAlways."
        assert stored.settings == {"temperature": 0.2, "stop": ["END"], "max_tokens": 50}
        assert pilot.app.chat.composer.text == ""
        assert "meant for tiny" in told(pilot)


async def test_a_role_is_chosen_from_the_list(
    client: FakeClient, tmp_path: Path, found: Roles
) -> None:
    talk = client.talk("a talk", "Why?", "So.")
    async with running(client, tmp_path, conversation=talk.id) as pilot:
        await until(pilot, lambda: bool(pilot.app.talk.entries))
        await enters(pilot, "/role")
        await until(pilot, lambda: isinstance(pilot.app.screen, RolePicker))
        await until(pilot, lambda: "short answers" in screen_text(pilot))
        await pilot.press(*"pir", "enter")
        await until(pilot, lambda: "pirate" in told(pilot))
        assert client.talks[talk.id].system == "Speak as a pirate."


async def test_a_role_that_there_is_not_changes_nothing(
    client: FakeClient, tmp_path: Path, found: Roles
) -> None:
    talk = client.talk("a talk", "Why?", "So.")
    async with running(client, tmp_path, conversation=talk.id) as pilot:
        await until(pilot, lambda: bool(pilot.app.talk.entries))
        await enters(pilot, "/role nobody")
        await until(pilot, lambda: "There is no role" in told(pilot))
        assert client.talks[talk.id].system is None
        assert len(pilot.app.talk.entries) == 2


async def test_names_are_offered_behind_the_command(
    client: FakeClient, tmp_path: Path, found: Roles
) -> None:
    async with running(client, tmp_path) as pilot:
        await until(pilot, lambda: pilot.app.line.client is not None)
        await pilot.press("slash", *"role", "space")
        offered = pilot.app.query_one(Completions)
        await until(pilot, lambda: offered.shown == ["/role pirate", "/role terse"])
        await pilot.press("t", "tab")
        assert pilot.app.chat.composer.text == "/role terse"
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.talk.system == "Be terse.\n\nAlways.")
        assert pilot.app.query_one("#banner", Static).display is False
