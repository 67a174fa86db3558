"""The line that says what a message would put into the prompt."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fake_client import FakeClient
from support_app import running, screen_text, send, until

from hobnob.tui import outlook
from hobnob.tui.notice import ClientError
from hobnob.tui.outlook import BAR_CELLS, bar, line
from hobnob.tui.records import Plan


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    monkeypatch.setattr(outlook, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(outlook, "PAUSE_SHARE", 0.0)
    return FakeClient()


# ---- the words


def test_the_line_names_what_is_in_what_is_cached_and_what_is_left_out() -> None:
    plan = Plan(42, 1204, 1100, 4096, 3, ["a", "b"])
    wide = line(plan, 100).plain
    assert wide.startswith("42 tokens · context ━━━")
    assert wide.endswith(" 1204 of 4096 · 1100 cached · 2 messages left out")
    assert line(plan, 40).plain == "42 tokens · 1204 of 4096 · 1100 cached · 2 messages left out"


def test_the_line_does_not_name_what_there_is_not() -> None:
    plan = Plan(1, 12_345, None, 131_072, 1, [])
    assert line(plan, 40).plain == "1 token · 12\u202f345 of 131\u202f072"
    assert line(Plan(2, 5, 0, 9, 2, ["a"]), 40).plain == "2 tokens · 5 of 9 · 1 message left out"


@pytest.mark.parametrize(
    ("plan", "cached", "new"),
    [
        (Plan(prompt_tokens=0, n_ctx=120), 0, 0),
        (Plan(prompt_tokens=1, n_ctx=120), 0, 1),
        (Plan(prompt_tokens=60, cached_tokens=30, n_ctx=120), 3, 3),
        (Plan(prompt_tokens=120, cached_tokens=119, n_ctx=120), 11, 1),
        (Plan(prompt_tokens=999, cached_tokens=500, n_ctx=120), 12, 0),
        (Plan(prompt_tokens=1, n_ctx=0), 0, 12),
    ],
)
def test_the_bar_shows_the_cached_the_new_and_the_free_part(
    plan: Plan, cached: int, new: int
) -> None:
    drawn = bar(plan)
    assert drawn.plain == "━" * (cached + new) + "─" * (BAR_CELLS - cached - new)
    spans = {span.style: span.end - span.start for span in drawn.spans}
    assert (spans.get("$success", 0), spans.get("$primary", 0)) == (cached, new)


# ---- on the screen


async def test_what_is_typed_is_counted_with_the_conversation_it_would_go_to(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("t", "one", "two")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: pilot.app.talk.id == "c0001")
        assert "tokens" not in screen_text(pilot) and client.planned == []
        await pilot.press(*"how are you")
        await until(pilot, lambda: "3 tokens · context" in screen_text(pilot))
        assert "1204 of 4096 · 1100 cached" in screen_text(pilot)
        last = {"conversation": "c0001", "text": "how are you", "parent": "c0001-m1"}
        assert client.planned[-1] == last
        pilot.app.chat.composer.take()
        await until(pilot, lambda: "tokens" not in screen_text(pilot))


async def test_one_question_is_on_its_way_at_a_time_and_the_next_is_about_the_newest_text(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path) as pilot:
        client.counting.clear()
        await pilot.press("a")
        await until(pilot, lambda: len(client.planned) == 1)
        await pilot.press(*" b c d")
        await pilot.pause(0.05)
        assert [one["text"] for one in client.planned] == ["a"]
        client.counting.set()
        await until(pilot, lambda: "4 tokens" in screen_text(pilot))
        assert [one["text"] for one in client.planned] == ["a", "a b c d"]


async def test_an_answer_about_another_conversation_is_not_shown(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("t", "one", "two")
    async with running(client, tmp_path) as pilot:
        client.counting.clear()
        await pilot.press(*"abc")
        await until(pilot, lambda: len(client.planned) == 1)
        pilot.app.chat.open("c0001")
        await until(pilot, lambda: pilot.app.talk.id == "c0001")
        client.counting.set()
        await pilot.pause(0.05)
        assert "tokens" not in screen_text(pilot)
        pilot.app.chat.new()  # the draft is back, and so is its count
        await until(pilot, lambda: "1 token · context" in screen_text(pilot))


async def test_an_edit_is_counted_in_the_place_of_what_it_replaces(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("t", "one", "two", "three", "four")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: pilot.app.talk.id == "c0001")
        await pilot.press("alt+up", "alt+up", "e")
        await until(pilot, lambda: bool(client.planned))
        assert client.planned[-1]["parent"] == "c0001-m1"
        await pilot.press("escape", "alt+up", "alt+up", "alt+up", "alt+up", "e")
        await until(pilot, lambda: client.planned[-1]["text"] == "one")
        assert client.planned[-1]["parent"] == "root"


async def test_behind_a_reply_that_is_being_written_the_text_alone_is_counted(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path) as pilot:
        await send(pilot, "go")
        client.planned.clear()
        await pilot.press(*"and then")
        await until(pilot, lambda: "2 tokens" in screen_text(pilot))
        assert "context" not in screen_text(pilot) and client.planned == []
        client.script.start()
        client.script.finish(facts=False)
        await until(pilot, lambda: "2 tokens · context" in screen_text(pilot))


async def test_why_nothing_can_be_counted_is_said(client: FakeClient, tmp_path: Path) -> None:
    client.uncounted = ClientError("model_unavailable", "The file [/] is cut off.")
    async with running(client, tmp_path) as pilot:
        await pilot.press("a")
        await until(pilot, lambda: "not counted: The file [/] is cut off." in screen_text(pilot))
        client.uncounted = None
        await pilot.press("b")
        await until(pilot, lambda: "1 token · context" in screen_text(pilot))


async def test_a_count_that_takes_long_is_said_to_be_on_its_way(
    client: FakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlook, "SLOW_SECONDS", 0.0)
    async with running(client, tmp_path) as pilot:
        client.counting.clear()
        await pilot.press("a")
        await until(pilot, lambda: "counting…" in screen_text(pilot))
        client.counting.set()
        await until(pilot, lambda: "1 token" in screen_text(pilot))


async def test_a_command_is_not_counted_and_a_text_that_nobody_takes_is_not_sent(
    client: FakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlook, "MAX_CHARS", 10)
    async with running(client, tmp_path) as pilot:
        await pilot.press("slash", *"qu")
        await asyncio.sleep(0.05)
        assert client.planned == []
        pilot.app.chat.composer.put("x" * 11)
        await until(pilot, lambda: "11 characters: too long to be sent" in screen_text(pilot))
        assert client.planned == []
