"""A command of the shell in the input: what runs, what is kept of it, and what becomes of it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from fake_client import FakeClient
from fake_server import FakeServer
from support_app import running, until
from support_cli import Cli
from support_session import Session
from textual.widgets import Static

from hobnob.tui.folds import Fold, Typed
from hobnob.tui.shell import Job, Kept, as_text, as_typed, command_in

SH = {"PATH": "/usr/bin:/bin", "SHELL": "/bin/sh"}


@pytest.fixture
def client() -> FakeClient:
    return FakeClient()


def test_one_line_that_begins_with_a_mark_is_a_command() -> None:
    assert command_in("!ls -l") == command_in("! ls -l ") == "ls -l"


@pytest.mark.parametrize("text", ["", "!", "! ", "!!ls", " !ls", "ls", "!ls\n", "!ls\nrm x"])
def test_any_other_text_is_none(text: str) -> None:
    assert command_in(text) == ""


@pytest.mark.parametrize("text", ["!", "!x", "!!x", "!!!x", " !x", "!a\nb", "!!a\nb", "plain", ""])
def test_every_text_can_be_typed_and_is_no_command_then(text: str) -> None:
    assert as_text(as_typed(text)) == text or "\n" in text
    assert not command_in(as_typed(text))


def test_of_a_long_output_the_beginning_and_the_end_are_kept() -> None:
    kept = Kept(8)
    for piece in (b"ab", b"cdef", b"ghij", b"klmn"):
        kept.add(piece)
    assert kept.text == "abcd\n[… 6 bytes of the output are left out here …]\nklmn"


def test_output_cannot_act_on_the_terminal() -> None:
    kept = Kept()
    kept.add(b"\x1b[31mred\x00\xff\x9b\r\n")
    assert kept.text == "␛[31mred␀\ufffd\ufffd\n"


def test_it_is_sent_with_the_command_and_how_it_ended_in_a_fence_that_holds() -> None:
    fold = Fold("```\nx\n", "$ cat a.py", "exit code 2")
    label = fold.label(1)
    assert label == "[output of cat a.py, 2 lines #1]"
    assert Typed(f"{label} why?", {label: fold}).full == (
        "$ cat a.py why?\n\n$ cat a.py (exit code 2):\n````\n```\nx\n````"
    )


async def test_both_outputs_and_the_exit_code_come_back_and_stdin_is_closed() -> None:
    fold = await Job("cat; echo out; echo err >&2; echo $TERM $NO_COLOR; exit 3", SH).run()
    assert (fold.text, fold.ended) == ("out\nerr\ndumb 1\n", "exit code 3")


async def test_what_has_no_output_says_so() -> None:
    assert (await Job("true", SH).run()).text == "(no output)\n"


async def test_stopping_ends_all_that_it_started_and_keeps_what_it_wrote() -> None:
    job = Job("echo begun; trap '' TERM; sleep 600 & sleep 600", SH)
    running = asyncio.ensure_future(job.run())
    await asyncio.sleep(0.3)
    began = time.monotonic()
    job.stop()
    fold = await running
    assert (fold.text, fold.ended) == ("begun\n", "stopped")
    assert time.monotonic() - began < 300


async def test_a_thing_left_running_does_not_hold_the_output_back() -> None:
    began = time.monotonic()
    fold = await Job("sleep 600 & echo done", SH).run()
    assert fold.text == "done\n" and time.monotonic() - began < 300


async def test_a_shell_that_is_not_there_is_an_error() -> None:
    with pytest.raises(OSError):
        await Job("true", {**SH, "SHELL": "/no/such/shell"}).run()


# ---- the app


async def test_the_output_comes_into_the_input_and_is_sent_by_enter(
    client: FakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", "/bin/sh")
    async with running(client, tmp_path) as pilot:
        composer = pilot.app.chat.composer
        await pilot.press(*"!sleep 0.4; echo hi")
        await pilot.press("enter", *"why?")
        await until(pilot, lambda: "[output" in composer.text)
        label = "[output of sleep 0.4; echo hi, 3 characters #1]"
        assert composer.text == f"{label}\nwhy?" and client.sent == []
        await pilot.press("enter")
        await until(pilot, lambda: len(client.sent) == 1)
        text = "$ sleep 0.4; echo hi\nwhy?\n\n$ sleep 0.4; echo hi (exit code 0):\n```\nhi\n```"
        assert client.sent[0]["text"] == text
        assert "!sleep 0.4; echo hi" in pilot.app.chat._prompts.all()


async def test_escape_stops_the_command(
    client: FakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", "/bin/sh")
    async with running(client, tmp_path) as pilot:
        composer = pilot.app.chat.composer
        await pilot.press(*"!sleep 60", "enter")
        hint = pilot.app.query_one("#hint", Static)
        await until(pilot, lambda: "sleep 60 is running: Esc stops it" in str(hint.content))
        await pilot.press("escape")
        await until(pilot, lambda: "[output of sleep 60" in composer.text)
        assert "(stopped)" in composer.full_text
        await until(pilot, lambda: not str(hint.content))


async def test_a_doubled_mark_sends_text(client: FakeClient, tmp_path: Path) -> None:
    async with running(client, tmp_path) as pilot:
        await pilot.press(*"!!important", "enter")
        await until(pilot, lambda: len(client.sent) == 1)
        assert client.sent[0]["text"] == "!important"


async def test_a_paste_that_is_not_seen_whole_is_never_run(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path) as pilot:
        composer = pilot.app.chat.composer
        composer.put("!" + "x" * 5_000)
        assert composer.text.startswith("[pasted")
        await pilot.press("enter")
        await until(pilot, lambda: len(client.sent) == 1)
        assert pilot.app.chat._job is None


# ---- the plain chat


async def test_the_plain_chat_tells_the_output_and_sends_it_with_the_message(
    server: FakeServer, hobnob: Cli
) -> None:
    env = {"SHELL": "/bin/sh"}
    async with Session(hobnob, "--plain", env=env) as session:
        await session.plays(
            ("You: ", "!echo se''en\r"),
            ("seen", "exit code 0", "You: ", "[output of", "#1] ", "why?\r"),
            ("world.", "You: ", ""),
        )
    (posted,) = (one for one in server.requests if one.path.endswith("/messages"))
    assert posted.json["text"] == (
        "$ echo se''en why?\n\n$ echo se''en (exit code 0):\n```\nseen\n```"
    )
