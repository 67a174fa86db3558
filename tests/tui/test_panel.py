"""The panel: what the server does at this moment, in words, and only while it is open."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from fake_client import FakeClient
from support_app import running, screen_text, send, until

from hobnob.server import wire
from hobnob.tui import panel
from hobnob.tui.facts import Row, Section, bar, sections, size
from hobnob.tui.notice import ClientError, Notice, NoticeKind
from hobnob.tui.panel import Panel, in_rows
from hobnob.tui.transcript import ASSISTANT, Entry, Phase

STATUS: dict[str, Any] = {
    "server": {"url": "http://127.0.0.1:7113", "uptime_s": 125.0, "stopping": False},
    "engine": {"state": "ready", "restarts": 2, "load_done": 1.0, "failure": None},
    "model": {"id": "Qwen", "n_ctx": 16_384, "device": "cpu", "gpu_layers": 0},
    "sequences": {"running": 3, "waiting": 1, "max": 8},
    "cells": {"used": 6000, "cached": 2000, "total": 24_000},
    "throughput": {"prefill_tps": 181.2, "decode_tps": 42.55},
    "snapshots": {
        "ram_bytes": 2**20 * 512,
        "ram_max": 2**30,
        "disk_bytes": 0,
        "disk_max": 4 * 2**30,
        "restored_tokens": 12_345,
    },
    "memory": {"engine_bytes": 3 * 2**30, "server_bytes": 2**20 * 90, "available_bytes": 2**34},
    "video": None,
    "runs": {"live": 4, "waiting": 1, "saving": True},
}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    monkeypatch.setattr(panel, "POLL_SECONDS", 0.1)
    made = FakeClient()
    made.state = {**STATUS}
    return made


def rows(found: list[Section], title: str) -> list[Row]:
    return next(section.rows for section in found if section.title == title)


def shown(status: dict[str, Any] | None = None, **more: Any) -> list[Section]:
    given = {"reply": None, "connection": "", **more}
    return sections(STATUS if status is None else status, **given)


# ---- the words


def test_every_number_of_the_status_has_its_row() -> None:
    found = shown()
    assert [section.title for section in found] == [
        "Connection",
        "Model",
        "Work",
        "Context cells",
        "Memory",
        "Kept conversations",
    ]
    assert rows(found, "Work") == [
        Row("running", "3 of 8"),
        Row("waiting", "1"),
        Row("reading", "181 tokens/s"),
        Row("writing", "42.5 tokens/s"),
    ]
    assert rows(found, "Context cells") == [
        Row("used", "6000 of 24\u202f000", 0.25),
        Row("cached", "2000 of these"),
    ]
    assert rows(found, "Memory") == [
        Row("engine", "3.0 GB"),
        Row("server", "90 MB"),
        Row("free", "16 GB"),
    ]
    assert rows(found, "Kept conversations") == [
        Row("in RAM", "512 MB of 1.0 GB", 0.5),
        Row("on disk", "0 MB of 4.0 GB", 0.0),
        Row("not read again", "12\u202f345 tokens"),
    ]
    assert Row("restarted", "2 times") in rows(found, "Model")


def test_video_memory_is_shown_where_there_is_some() -> None:
    status = {**STATUS, "video": {"free_bytes": 2**30, "total_bytes": 4 * 2**30}}
    assert rows(shown(status), "Memory")[-1] == Row("video", "3.0 GB of 4.0 GB", 0.75)


def test_a_loading_and_a_failed_model_say_so() -> None:
    loading = {**STATUS, "engine": {"state": "loading", "load_done": 0.4}}
    assert Row("engine", "loading, 40%", 0.4) in rows(shown(loading), "Model")
    failure = {"code": "x", "message": "The file\x1b[2J is cut off."}
    failed = {**STATUS, "engine": {"state": "failed", "failure": failure}}
    assert Row("", "The file␛[2J is cut off.") in rows(shown(failed), "Model")


def test_a_status_that_lacks_everything_or_is_odd_is_no_fault_of_the_panel() -> None:
    for odd in ({}, {name: None for name in STATUS}, {name: "x" for name in STATUS}):
        assert [section.title for section in shown(odd)][:2] == ["Connection", "Model"]
    saving = {**STATUS, "runs": {"saving": False}}
    assert rows(shown(saving), "Work")[-1] == Row("", "replies are not being saved")


def test_the_connection_is_told_in_words() -> None:
    assert rows(shown(), "Connection")[0] == Row("", "connected")
    assert rows(shown(), "Connection")[-1] == Row("up for", "2 min")
    assert (
        rows(shown(connection="cut · reconnecting…"), "Connection")[0].words
        == "cut · reconnecting…"
    )
    old = rows(shown(trouble="No connection.", age_s=12.0), "Connection")
    assert [row.words for row in old[:2]] == ["No connection.", "what follows is 12 s old"]
    assert sections(None, reply=None, connection="") == [
        Section("Connection", [Row("", "asking the server…")])
    ]


def test_a_reply_shows_its_place_its_progress_and_what_was_cached() -> None:
    entry = Entry("r", ASSISTANT, phase=Phase.QUEUED, place=wire.Queued(2, 14.0))
    assert rows(shown(reply=entry), "This reply") == [Row("", "number 2 in the queue · about 14 s")]
    entry.phase, entry.prefill = Phase.READING, wire.Prefill(300, 400, 100)
    entry.context = wire.Context(400, 4096, 3, ["a"])
    assert rows(shown(reply=entry), "This reply") == [
        Row("", "reading the prompt… 300 of 400 tokens (100 cached)", 0.75),
        Row("prompt", "400 of 4096 tokens"),
        Row("left out", "1 message"),
        Row("cached", "100 tokens"),
    ]
    entry.phase = Phase.WRITING
    assert rows(shown(reply=entry), "This reply")[0].words == "writing"


def test_bars_and_sizes_stay_in_bounds() -> None:
    assert bar(-1) == "─" * 20 and bar(2) == "━" * 20 and bar(0.5) == "━" * 10 + "─" * 10
    assert (size(0), size(2**20 * 700), size(2**40)) == ("0 MB", "700 MB", "1024 GB")


# ---- on the screen


async def test_the_server_is_asked_only_while_the_panel_is_open(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path) as pilot:
        await asyncio.sleep(0.1)
        assert client.glances == 0
        await pilot.press("f2")
        await until(pilot, lambda: "3 of 8" in screen_text(pilot) and client.glances > 2)
        await pilot.press(*"typed")
        assert pilot.app.chat.composer.text == "typed", "the input keeps the focus"
        await pilot.press("f2")
        await until(pilot, lambda: "3 of 8" not in screen_text(pilot))
        asked = client.glances
        await asyncio.sleep(0.1)
        assert client.glances <= asked + 1


async def test_the_panel_takes_the_list_s_place_where_both_would_squeeze_the_chat(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path, size=(100, 30)) as pilot:
        app = pilot.app
        chat = app.query_one("#chat")
        await pilot.press("f2")
        await until(pilot, lambda: app.sidebar.region.width == 0)
        assert chat.size.width > 55
        await pilot.press("ctrl+s")
        await until(pilot, lambda: app.sidebar.rows.has_focus)
        await pilot.press("escape", "f2")
        await until(pilot, lambda: chat.size.width > 60 and app.sidebar.region.width > 0)
    async with running(client, tmp_path, size=(160, 30)) as pilot:
        app = pilot.app
        await pilot.press("f2")
        await until(pilot, lambda: app.query_one(Panel).region.width > 0)
        assert app.sidebar.region.width > 0


async def test_numbers_and_the_reply_s_state_stay_current(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path) as pilot:
        await pilot.press("f2")
        await send(pilot, "go")
        client.script.put(wire.Queued(3, 20.0))
        await until(pilot, lambda: screen_text(pilot).count("number 3 in the queue") == 2)
        client.state["sequences"] = {"running": 7, "waiting": 0, "max": 8}
        await until(pilot, lambda: "7 of 8" in screen_text(pilot))


async def test_a_server_out_of_sight_is_said_and_the_panel_recovers(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path) as pilot:
        await pilot.press("f2")
        await until(pilot, lambda: "connected" in screen_text(pilot))
        client.out_of_sight = ClientError("unreachable", "The [/] server is away.")
        pilot.app._hear(Notice(NoticeKind.RECONNECTING, "the connection was lost", 1.0))
        await until(pilot, lambda: "The [/] server is away." in screen_text(pilot))
        assert screen_text(pilot).count("reconnecting…") == 2
        client.out_of_sight = None
        pilot.app._hear(Notice(NoticeKind.CONNECTED))
        await until(pilot, lambda: "connected" in screen_text(pilot))


@pytest.mark.parametrize("size", [(80, 24), (60, 24), (40, 30)])
async def test_where_there_is_no_room_beside_the_chat_it_stands_above_it(
    client: FakeClient, tmp_path: Path, size: tuple[int, int]
) -> None:
    last = "and this is the end"
    client.talk("t", "question", "words and more words\n\n" * 30 + last)
    async with running(client, tmp_path, size=size, conversation="c0001") as pilot:
        await until(pilot, lambda: last in screen_text(pilot))
        panel, chat = pilot.app.query_one(Panel), pilot.app.chat
        await pilot.press("f2")
        await until(pilot, lambda: "running 3 of 8 · waiting 1" in screen_text(pilot))
        await until(pilot, lambda: last in screen_text(pilot))
        assert panel.region.bottom <= chat.region.y and chat.region.width == size[0]
        assert panel.region.height <= size[1] // 2
        await pilot.press("escape")
        await until(pilot, lambda: "running 3 of 8" not in screen_text(pilot))
        assert chat.region.y == 0
        await pilot.press("f2")
        await until(pilot, lambda: "running 3 of 8" in screen_text(pilot))
        await pilot.resize_terminal(140, 24)
        await until(pilot, lambda: "running     3 of 8" in screen_text(pilot))
        assert panel.region.x >= chat.region.right


async def test_escape_closes_it_and_then_stops_the_reply(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path) as pilot:
        await send(pilot, "go")
        await pilot.press("f2")
        await until(pilot, lambda: "3 of 8" in screen_text(pilot))
        await pilot.press("escape")
        await until(pilot, lambda: "3 of 8" not in screen_text(pilot))
        assert client.cancelled == []
        await pilot.press("escape")
        await until(pilot, lambda: len(client.cancelled) == 1)


def test_in_rows_a_section_goes_on_beside_its_title() -> None:
    work = Section("Work", [Row("running", "3 of 8", 0.4), Row("", "replies are not being saved")])
    assert (
        in_rows([work, work]).plain.split("\n")
        == ["Work  running 3 of 8 · replies are not being saved"] * 2
    )


@pytest.mark.parametrize("size", [(40, 12), (20, 5), (84, 30), (200, 60)])
async def test_the_panel_fits_every_screen(
    client: FakeClient, tmp_path: Path, size: tuple[int, int]
) -> None:
    async with running(client, tmp_path, size=size) as pilot:
        await pilot.press("f2")
        await until(pilot, lambda: client.glances > 1)
        assert pilot.app.query_one(Panel).region.right <= size[0]
        await pilot.press("f2", *"ok")
        assert pilot.app.chat.composer.text == "ok"
