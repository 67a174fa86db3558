from __future__ import annotations

import re
from pathlib import Path

import pytest
from fake_client import FakeClient
from support_app import running, screen_text, send, until
from textual.pilot import Pilot

from hobnob.tui.chat import Chat
from hobnob.tui.column_view import ColumnView
from hobnob.tui.find import FindBar
from hobnob.tui.help import HelpScreen
from hobnob.tui.key_bar import KeyBar, fitting, named
from hobnob.tui.message import MINE, REPLY
from hobnob.tui.model_picker import ModelPicker
from hobnob.tui.playground import Playground
from hobnob.tui.screens import AskScreen, SearchScreen
from hobnob.tui.sidebar import ConversationList
from hobnob.tui.waiting import Waiting

SOURCES = sorted((Path(__file__).parents[2] / "tui").glob("*.py"))
CHAT = (
    "Enter send",
    "Ctrl+J new line",
    "Esc stop",
    "Ctrl+S list",
    "Ctrl+P commands",
    "F1 keys",
)
ALL_HINTS = [
    node.key_hints
    for node in (
        *(Chat, ColumnView, FindBar, Playground, ConversationList, Waiting),
        *(HelpScreen, SearchScreen, AskScreen, ModelPicker),
    )
] + [MINE, REPLY]


def foot(pilot: Pilot[int]) -> str:
    """The last row of the screen."""
    return screen_text(pilot).splitlines()[-1].strip()


def test_every_width_names_only_whole_keys_and_the_one_that_leads_to_all() -> None:
    for width in range(100):
        shown = fitting(CHAT, width)
        assert len(shown) <= width
        found = shown.split("   ") if shown else []
        assert [one for one in CHAT if one in found] == found
        assert (CHAT[-1] in found) == (width >= len(CHAT[-1]))
    assert fitting((), 10) == ""


def test_a_key_is_named_as_it_is_bound_now_or_not_at_all() -> None:
    hints = ("Enter send", "a.up/a.down move", "a.find find", "a.help keys")
    keys = {"a.up": "up", "a.down": "ctrl+n", "a.help": "f1"}
    assert named(hints, keys) == ["Enter send", "↑ Ctrl+N move", "F1 keys"]


@pytest.mark.parametrize(
    ("width", "row"),
    [(40, "Enter send   Esc stop   F1 keys"), (100, "   ".join(CHAT))],
)
async def test_the_foot_of_the_screen_cuts_no_key_off(tmp_path: Path, width: int, row: str) -> None:
    async with running(FakeClient(), tmp_path, size=(width, 12)) as pilot:
        await until(pilot, lambda: foot(pilot) == row)


async def test_keys_come_and_go_with_the_width(tmp_path: Path) -> None:
    async with running(FakeClient(), tmp_path, size=(40, 12)) as pilot:
        for width, there in ((100, True), (40, False), (120, True)):
            await pilot.resize_terminal(width, 12)
            await until(pilot, lambda there=there: ("Ctrl+P" in screen_text(pilot)) == there)


async def test_the_foot_names_what_works_where_the_focus_is(tmp_path: Path) -> None:
    client = FakeClient()
    client.talk("Old", "Question", "Reply")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: len(pilot.app.chat.view.views) == 2)
        await pilot.press("alt+up")
        await until(pilot, lambda: foot(pilot).startswith("y copy   c copy code   r new reply"))
        await pilot.press("alt+up")
        await until(pilot, lambda: foot(pilot).startswith("y copy   e edit   r new reply"))
        await pilot.press("escape")
        await until(pilot, lambda: foot(pilot).startswith("Enter send"))
        await pilot.press("ctrl+s")
        await until(pilot, lambda: foot(pilot).startswith("Enter open   / filter   Esc back"))
        await pilot.press("slash")
        await until(pilot, lambda: foot(pilot).startswith("Enter to the list"))
        await pilot.press("escape")
        await until(pilot, lambda: foot(pilot).startswith("Enter send"))
        await pilot.press("ctrl+f")
        await until(pilot, lambda: foot(pilot).startswith("↑ match before   ↓ after   Esc close"))
        assert foot(pilot).endswith("F1 keys")


async def test_dialogs_and_the_playground_name_their_own_keys(tmp_path: Path) -> None:
    async with running(FakeClient(), tmp_path) as pilot:
        await pilot.press("f3")
        await until(pilot, lambda: "Enter open   ↓ results   Esc close   F1 keys" in foot(pilot))
        await pilot.press("f1")
        await until(pilot, lambda: foot(pilot) == "↑/↓ scroll   Esc close")
        await pilot.press("escape", "escape")
        await until(pilot, lambda: foot(pilot).startswith("Enter send"))
        await pilot.press("ctrl+l")
        await until(pilot, lambda: foot(pilot).startswith("Enter ask   Tab columns"))
        await pilot.press("alt+up")
        await until(pilot, lambda: foot(pilot).startswith("Enter keep   e settings   a add"))


async def test_a_key_that_was_remapped_is_named_by_its_new_name(tmp_path: Path) -> None:
    keymap = {"app.list": "ctrl+t", "app.help": "f4"}
    async with running(FakeClient(), tmp_path, keymap=keymap) as pilot:
        await until(pilot, lambda: "Ctrl+T list" in foot(pilot) and "F4 keys" in foot(pilot))


def test_every_hint_is_of_a_binding_that_there_is() -> None:
    ids = set(re.findall(r'id="([a-z]+\.[a-z_]+)"', "".join(map(Path.read_text, SOURCES))))
    for hints in ALL_HINTS:
        for hint in hints:
            name = hint.partition(" ")[0]
            assert "." not in name or set(name.split("/")) <= ids, hint


async def test_the_window_without_the_focus_keeps_the_keys_it_names(tmp_path: Path) -> None:
    async with running(FakeClient(), tmp_path) as pilot:
        await send(pilot, "hello")
        before = foot(pilot)
        pilot.app.app_focus = False
        pilot.app.screen.query_one(KeyBar)._bindings_changed(pilot.app.screen)
        await pilot.pause()
        assert foot(pilot) == before
