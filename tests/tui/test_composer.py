"""The input: what keys do to text, and what pastes become."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual import events
from textual.app import App, ComposeResult
from textual.pilot import Pilot

from hobnob.tui.completions import Completions
from hobnob.tui.composer import Composer
from hobnob.tui.prompts import Prompts


class Host(App[None]):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.prompts = Prompts(folder / "prompts")
        self.sent: list[str] = []
        self.left = 0

    def compose(self) -> ComposeResult:
        completions = Completions()
        yield completions
        yield Composer(self.prompts, completions)

    def on_composer_submitted(self, event: Composer.Submitted) -> None:
        self.sent.append(event.text)

    def on_composer_leave(self) -> None:
        self.left += 1


@asynccontextmanager
async def host(folder: Path) -> AsyncIterator[tuple[Pilot[None], Host, Composer]]:
    app = Host(folder)
    async with app.run_test(size=(60, 20)) as pilot:
        composer = app.query_one(Composer)
        composer.focus()
        await pilot.pause()
        yield pilot, app, composer


async def paste(pilot: Pilot[None], composer: Composer, text: str) -> None:
    composer.post_message(events.Paste(text))
    await pilot.pause()


async def test_enter_sends_and_ctrl_j_makes_a_line(tmp_path: Path) -> None:
    async with host(tmp_path) as (pilot, app, composer):
        await pilot.press(*"ab", "ctrl+j", *"cd", "enter")
        assert app.sent == ["ab\ncd"]


async def test_keys_that_come_at_once_act_in_their_order(tmp_path: Path) -> None:
    """As over a slow line, or while the app is busy."""
    async with host(tmp_path) as (pilot, app, composer):
        keys = ["t", "e", "h", "backspace", "backspace", "h", "e", "left", "x", "ctrl+j", "y"]
        for key in keys:
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await pilot.pause()
        assert composer.text == "thx\nye"


@pytest.mark.parametrize("key", ["shift+enter", "alt+enter", "ctrl+j"])
async def test_every_key_for_a_new_line_makes_one(tmp_path: Path, key: str) -> None:
    async with host(tmp_path) as (pilot, app, composer):
        await pilot.press("a", key, "b")
        assert composer.text == "a\nb"


async def test_a_backslash_before_enter_makes_a_line(tmp_path: Path) -> None:
    async with host(tmp_path) as (pilot, app, composer):
        await pilot.press("a", "backslash", "enter", "b")
        assert composer.text == "a\nb"
        assert app.sent == []


async def test_up_on_the_first_line_recalls_and_down_comes_back(tmp_path: Path) -> None:
    async with host(tmp_path) as (pilot, app, composer):
        app.prompts.add("first")
        app.prompts.add("second\nof two lines")
        await pilot.press(*"now", "up")
        assert composer.text == "second\nof two lines"
        await pilot.press("up", "up")  # to the first line, then on
        assert composer.text == "first"
        await pilot.press("down", "down", "down")
        assert composer.text == "now"


async def test_ctrl_d_leaves_only_an_empty_input(tmp_path: Path) -> None:
    async with host(tmp_path) as (pilot, app, composer):
        await pilot.press("a", "ctrl+d")
        assert app.left == 0
        await pilot.press("backspace", "ctrl+d")
        assert app.left == 1


async def test_a_paste_is_one_edit_and_sends_nothing(tmp_path: Path) -> None:
    async with host(tmp_path) as (pilot, app, composer):
        await paste(pilot, composer, "one\r\ntwo\rthree\n")
        assert composer.text == "one\ntwo\nthree\n"
        assert app.sent == []
        await pilot.press("ctrl+underscore")
        assert composer.text == ""


async def test_a_big_paste_is_folded_and_sent_in_full(tmp_path: Path) -> None:
    async with host(tmp_path) as (pilot, app, composer):
        text = "\n".join(f"line {n}" for n in range(212))
        await pilot.press(*"look ")
        await paste(pilot, composer, text)
        assert composer.text == "look [pasted 212 lines #1]"
        await paste(pilot, composer, "x" * 200_000)
        assert composer.text.endswith("[pasted 200000 characters #2]")
        await pilot.press("enter")
        assert app.sent == [f"look {text}{'x' * 200_000}"]


async def test_a_megabyte_over_a_selection_is_one_step_back_and_whole_when_sent(
    tmp_path: Path,
) -> None:
    async with host(tmp_path) as (pilot, app, composer):
        composer.put("old text")
        composer.select_all()
        await paste(pilot, composer, "one\tline\r\n" * 100_000)
        assert composer.text == "[pasted 100001 lines #1]"
        await pilot.press("ctrl+underscore")
        assert composer.text == "old text"
        composer.select_all()
        await paste(pilot, composer, "one\tline\r\n" * 100_000)
        await pilot.press("enter")
        assert app.sent == ["one\tline\n" * 100_000]


async def test_words_that_look_like_a_fold_stay_words(tmp_path: Path) -> None:
    async with host(tmp_path) as (pilot, app, composer):
        composer.put("[pasted 3 lines #9] and [x #1]")
        await pilot.press("enter")
        assert app.sent == ["[pasted 3 lines #9] and [x #1]"]


async def test_control_characters_in_a_paste_do_nothing(tmp_path: Path) -> None:
    async with host(tmp_path) as (pilot, app, composer):
        await paste(pilot, composer, "a\x1b[201~\x1b]0;t\x07b\tc\x9d")
        assert not any(ord(c) < 32 and c != "\t" or 0x7F <= ord(c) < 0xA0 for c in composer.text)
        assert [c for c in composer.text if c in "abc"] == ["a", "b", "c"]


async def test_a_paste_replaces_the_selection(tmp_path: Path) -> None:
    async with host(tmp_path) as (pilot, app, composer):
        composer.put("old text")
        composer.select_all()
        await paste(pilot, composer, "new")
        assert composer.text == "new"


async def test_joined_characters_are_typed_and_taken_away(tmp_path: Path) -> None:
    async with host(tmp_path) as (pilot, app, composer):
        composer.put("👩‍👩‍👧‍👦 ✔️ 🇩🇪 e᷄ ﷽ עברית")
        for _ in range(40):
            await pilot.press("backspace")
        assert composer.text == ""


async def test_a_fold_is_taken_away_as_a_whole(tmp_path: Path) -> None:
    async with host(tmp_path) as (pilot, app, composer):
        await pilot.press(*"look ")
        await paste(pilot, composer, "x\n" * 60)
        assert composer.text == "look [pasted 61 lines #1]"
        await pilot.press("backspace")
        assert composer.text == "look "
        await pilot.press("ctrl+underscore", "enter")
        assert app.sent == ["look " + "x\n" * 60]
        await pilot.press("left", "backspace", "enter")
        assert app.sent[1] == "look [pasted 61 lines #]", "inside it is text"


@pytest.mark.parametrize(
    ("text", "cells"),
    [("abc", 3), ("你好", 4), ("ＡＢＣ", 6), ("e\u0301", 1), ("👩\u200d🚀", 2), ("🇩🇪", 2)],
)
async def test_the_cursor_of_the_terminal_is_where_the_next_character_will_be(
    tmp_path: Path, text: str, cells: int
) -> None:
    """Where an input method opens its window."""
    async with host(tmp_path) as (pilot, app, composer):
        start = app.cursor_position
        composer.insert(text)
        await pilot.pause()
        assert (app.cursor_position.x - start.x, app.cursor_position.y) == (cells, start.y)
