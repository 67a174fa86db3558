"""The inline chat as its user meets it: the real command on a terminal, a scripted server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from shlex import quote
from typing import Any

import pyte
import pytest
from fake_server import (
    CONVERSATION,
    RUN,
    STREAM_HEAD,
    FakeServer,
    Request,
    body_of,
    chunk,
    refusal,
    reply_events,
    says,
)
from support_cli import COMMAND, Cli
from support_documents import HOSTILE
from support_session import SHELL, Session

from hobnob.tui.app import LOW_ROWS

EVENTS = f"/runs/{RUN}/events"
NEW = "/conversations/new/messages"
READY = "Enter send"


def scrolled(session: Session, size: tuple[int, int] = (100, 30)) -> list[str]:
    """The terminal's rows, those that have scrolled away first."""
    screen = pyte.HistoryScreen(*size, history=10_000, ratio=0.5)
    # What pyte does not know and would show: the keyboard protocol, the shape of the pointer.
    known = re.sub(rb"\x1b\[[<>]\d*u|\x1b\]22;[^\x07]*\x07", b"", session.output)
    pyte.ByteStream(screen).feed(known)
    above = ["".join(row[n].data for n in range(size[0])) for row in screen.history.top]
    return [row.rstrip() for row in (*above, *screen.display)]


async def begins(request: Request, writer: Any) -> None:
    """Streams the beginning of a reply and then nothing more."""
    writer.write(STREAM_HEAD + chunk(body_of(reply_events("It begins.\n\nAnd ")[:4])))
    await asyncio.Event().wait()


async def test_a_reply_stays_in_the_scrollback_after_the_end(
    server: FakeServer, hobnob: Cli
) -> None:
    server.events = reply_events("# Title\n\nSome **bold** te", "xt.\n\n```py\nx = 1\n```\n- a\n")
    async with Session(hobnob, "--inline") as session:
        await session.until(READY)
        session.type("hi there\r")
        await session.until("tokens")
        session.type("\x11")
        assert await session.ends() == 0
        assert session.restored
        rows = scrolled(session)
    start = rows.index("You")
    assert [row for row in rows[start:] if row] == [
        "You",
        "hi there",
        "fake-model",
        "Title",
        "Some bold text.",
        "  py",
        "  x = 1",
        "• a",
        "10 prompt tokens · 2 tokens",
        f"To go on with this: hobnob --inline --conversation {CONVERSATION[:8]}",
    ]
    assert b"\x1b[?1049h" not in session.output
    assert b"\x1b[?1000h" not in session.output  # the mouse is the terminal's


async def test_a_long_reply_is_in_the_scrollback_once_and_in_order(
    server: FakeServer, hobnob: Cli
) -> None:
    lines = [f"line number {n}" for n in range(200)]
    server.events = reply_events(*(f"{line}\n\n" for line in lines))
    async with Session(hobnob, "--inline") as session:
        await session.until(READY)
        session.type("go\r")
        await session.until("200 tokens")
        session.type("\x11")
        assert await session.ends() == 0
        shown = [row for row in scrolled(session) if row.startswith("line number")]
    assert shown == lines


async def test_what_is_open_is_shown_below_and_kept_when_one_leaves(
    server: FakeServer, hobnob: Cli
) -> None:
    server.scripts[EVENTS].append(begins)
    async with Session(hobnob, "--inline") as session:
        await session.until(READY)
        session.type("go\r")
        await session.until("And")
        session.type("typed meanwhile")
        await session.until("meanwhile")
        session.type("\x11")
        assert await session.ends() == 0
        rows = [row for row in scrolled(session) if row]
        assert session.restored
    at = rows.index("It begins.")
    assert rows[at + 1] == "And"
    assert "typed meanwhile" not in "".join(rows)
    assert not server.cancelled


async def test_a_message_that_was_not_accepted_is_in_the_input_and_not_in_the_scrollback(
    server: FakeServer, hobnob: Cli
) -> None:
    server.scripts[NEW].append(says(refusal(400, "context_length_exceeded", "Too long.")))
    async with Session(hobnob, "--inline") as session:
        await session.until(READY)
        session.type("my story\r")
        await session.until("Not sent: Too long.")
        session.type("\r")
        await session.until("tokens")
        session.type("\x11")
        await session.ends()
        assert [row for row in scrolled(session) if row].count("my story") == 1
    keys = {one.headers["idempotency-key"] for one in server.asked("POST", NEW)}
    assert len(keys) == 1


async def test_an_edited_message_and_its_reply_stand_below_what_they_replace(
    server: FakeServer, hobnob: Cli
) -> None:
    async with Session(hobnob, "--inline") as session:
        await session.until(READY)
        session.type("first try\r")
        await session.until("tokens")
        await session.until(READY)
        session.type("/edit\r")
        await session.until("editing an earlier message")
        await session.until("first try")
        session.type(" again\r")
        await session.until("tokens")
        session.type("\x11")
        assert await session.ends() == 0
        rows = [row for row in scrolled(session) if row]
    said = [row for row in rows if "try" in row or row == "Hello world."]
    assert said == ["first try", "Hello world.", "first try again", "Hello world."]


async def test_an_opened_conversation_is_printed_with_its_end(
    server: FakeServer, hobnob: Cli
) -> None:
    server.messages = [
        {
            "id": f"m{n}",
            "role": "assistant" if n % 2 else "user",
            "text": f"message {n}",
            "status": "completed",
        }
        for n in range(50)
    ]
    async with Session(hobnob, "--inline", "--conversation", CONVERSATION) as session:
        await session.until("message 49")
        session.type("\x11")
        await session.ends()
        rows = scrolled(session)
    shown = [row for row in rows if row.startswith("message")]
    assert shown == [f"message {n}" for n in range(30, 50)]
    assert "30 earlier messages" in rows


async def test_screens_open_below_the_text_and_leave_it_as_it_was(
    server: FakeServer, hobnob: Cli
) -> None:
    server.conversations = [{"id": CONVERSATION, "title": "Knots", "updated_at": 1}]
    async with Session(hobnob, "--inline") as session:
        await session.until(READY)
        session.type("hi\r")
        await session.until("tokens")
        for key, shown in (("\x1bOP", "The input"), ("\x1bOR", "Search all"), ("\x10", "Search")):
            session.type(key)
            await session.until(shown)
            session.type("\x1b")
            await session.until(READY)
        session.type("\x13")
        await session.until("Knots")
        session.type("\x13")
        await session.until("Ctrl+J new line")  # of its row only what is new is drawn
        session.type("\x11")
        assert await session.ends() == 0
        rows = [row for row in scrolled(session) if row]
    assert rows[-5:-1] == ["hi", "fake-model", "Hello world.", "10 prompt tokens · 2 tokens"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_ends_it_with_its_code_and_keeps_the_draft(
    hobnob: Cli, number: signal.Signals
) -> None:
    async with Session(hobnob, "--inline") as session:
        await session.until(READY)
        session.type("unsent")
        await session.until("unsent")
        session.process.send_signal(number)
        assert await session.ends() == 128 + number
        assert session.restored
    folder = Path(hobnob.env["HOBNOB_HOME"]) / "state" / "drafts"
    assert json.loads((folder / "new.json").read_text())["text"] == "unsent"


async def test_an_exception_leaves_the_terminal_usable(hobnob: Cli) -> None:
    program = (
        "from hobnob.tui import app\n"
        "def fail(self): raise RuntimeError('a handler broke')\n"
        "app.HobnobApp.action_new = fail\n"
        "from hobnob.cli import main; main()"
    )
    async with Session(hobnob, "--inline", command=(sys.executable, "-c", program)) as session:
        await session.until(READY)
        session.type("\x0e")
        assert await session.ends() == 1
        assert "a handler broke" in session.text
        assert session.restored


@pytest.mark.parametrize("arguments", ["", "--inline"])
async def test_ctrl_z_gives_the_shell_its_terminal_and_fg_comes_back(
    server: FakeServer, hobnob: Cli, arguments: str
) -> None:
    env = {"PS1": "shell> ", "HISTFILE": ""}
    command = " ".join([*map(quote, COMMAND), arguments])
    async with Session(hobnob, env=env, command=SHELL) as session:
        await session.until("shell> ")
        session.type(f"stty -a | md5sum; {command}\r")
        await session.until(READY)
        session.type("half a")
        await session.until("half a")
        session.type("\x1a")
        await session.until("Stopped")
        session.type("stty -a | md5sum; fg\r")
        await session.until(READY)
        session.type(" line\r")
        await session.until("world.")
        session.type("\x11")
        await session.until("To go on")
        sums = re.findall(r"[0-9a-f]{32}", session.text)
        assert len(sums) == 2 and sums[0] == sums[1]
    asked = [one for one in server.requests if one.path.endswith("/messages")]
    assert asked[-1].json["text"] == "half a line"


async def test_hostile_content_is_only_text(server: FakeServer, hobnob: Cli) -> None:
    hostile = HOSTILE.replace("\ud800", "")
    server.events = reply_events(f"reply {hostile}\n\n", "end")
    server.messages = [
        {"id": "m", "role": "user", "text": f"asked {hostile}", "status": "completed"},
        {"id": "r", "role": "assistant", "text": hostile, "status": "completed", "model": hostile},
    ]
    async with Session(hobnob, "--inline", "--conversation", CONVERSATION) as session:
        await session.until("asked A")
        session.type("hi\r")
        await session.until("reply A")
        await session.until("end")
        session.type("\x11")
        assert await session.ends() == 0
        for acting in (b"\x1b]52", b"\x1b]0;", b"\x1b[2J", b"\x1b[31m", b"\x9d0;", b"\x08"):
            assert acting not in session.output.replace(b"\xc2", b"")
        rows = "\n".join(scrolled(session))
    assert "[@click=app.quit]here[/]" in rows
    said = rows.partition("reply ")[2]
    assert re.sub(r"[^A-G]", "", said).startswith("ABCDEFG")


class Pane:
    """A terminal of tmux, 80 by 20, with the inline chat in it: `async with Pane(...) as pane`."""

    def __init__(self, hobnob: Cli, socket: Path) -> None:
        self._socket = str(socket)
        # What a runner of tests says of its own terminal (COLUMNS) is not true of this one.
        foreign = {"TMUX", "COLUMNS", "LINES"}
        inherited = {**os.environ, **hobnob.env}
        self._env = {k: v for k, v in inherited.items() if k not in foreign}

    async def __aenter__(self) -> Pane:
        command = " ".join([*map(quote, COMMAND), "--inline", "; sleep 60"])
        await self._tmux("new-session", "-d", "-x", "80", "-y", "20", command)
        await self.until(READY)
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self._tmux("kill-server")

    async def _tmux(self, *words: str) -> str:
        def run() -> str:
            command = ["tmux", "-S", self._socket, "-f", os.devnull, *words]
            return subprocess.run(
                command, env=self._env, capture_output=True, text=True, check=False
            ).stdout

        return await asyncio.to_thread(run)

    async def type(self, *keys: str) -> None:
        await self._tmux("send-keys", *keys)

    async def resize(self, width: int, height: int) -> None:
        await self._tmux("resize-window", "-x", str(width), "-y", str(height))

    async def all(self) -> str:
        """What is on the screen and in the history, rows that were wrapped joined."""
        return await self._tmux("capture-pane", "-pJ", "-S", "-200")

    async def last_row(self) -> str:
        """The lowest one on the screen that is not empty."""
        return (await self._tmux("capture-pane", "-p")).rstrip().rpartition("\n")[2]

    async def until(self, words: str) -> str:
        async with asyncio.timeout(30):
            while words not in (shown := await self.all()):
                await asyncio.sleep(0.05)
        return shown

    async def asked(self, tokens: int) -> str:
        """One message was answered in so many tokens and a draft begun; the lowest row."""
        await self.type("go", "Enter")
        await self.until(f"{tokens} tokens")
        await self.type("unsent words")
        await self.until("unsent words")
        return await self.last_row()

    async def until_last(self, row: str) -> str:
        """Wait for the lowest row of the screen; gives all that is shown then."""
        deadline = time.monotonic() + 30
        while (last := await self.last_row()) != row:
            assert time.monotonic() < deadline, last
            await asyncio.sleep(0.05)
        return await self.all()


needs_tmux = pytest.mark.skipif(
    shutil.which("tmux") is None, reason="needs tmux, which wraps rows anew"
)


@needs_tmux
async def test_a_storm_of_resizes_loses_nothing_and_leaves_nothing_behind(
    server: FakeServer, hobnob: Cli, tmp_path: Path
) -> None:
    server.events = reply_events("A paragraph of some length. " * 6, "\n\n- a\n- b\n")
    async with Pane(hobnob, tmp_path / "tmux") as pane:
        await pane.type("go", "Enter")
        await pane.until("tokens")
        await pane.type("some long unsent words that have to be wrapped soon")
        await pane.until("wrapped soon")
        for width in (60, 40, 30, 33, 50, 80, 100, 30, 90):
            await pane.resize(width, 20)
            await asyncio.sleep(0.05)
        deadline = time.monotonic() + 30
        while True:
            shown = await pane.all()
            # On a busy machine a resize may come after a drawing: it is drawn once more.
            if "Ctrl+P commands" in shown and shown.count(READY) == 1:
                break
            assert time.monotonic() < deadline, shown
            await asyncio.sleep(0.05)
        assert shown.count("some long unsent words") == 1
        assert shown.count("A paragraph") == 6
        await pane.type("C-q")
        shown = await pane.until("To go on")
        assert "unsent words" not in shown
        assert shown.count("A paragraph") == 6


@needs_tmux
@pytest.mark.parametrize("height", [16, 12, 9, 7, 5])
async def test_a_terminal_that_becomes_lower_shows_all_rows_of_the_input_again(
    server: FakeServer, hobnob: Cli, tmp_path: Path, height: int
) -> None:
    lines = [f"line number {n}" for n in range(40)]
    server.events = reply_events(*(f"{line}\n\n" for line in lines))
    async with Pane(hobnob, tmp_path / "tmux") as pane:
        before = await pane.asked(40)
        assert before.startswith(READY)
        # The cursor is in the input: tmux cuts off the rows below it. Where there are few rows
        # the input is the last one.
        lowest = before if height >= LOW_ROWS else "▌ unsent words"
        for rows, row in ((height, lowest), (20, before)):
            await pane.resize(80, rows)
            shown = await pane.until_last(row)
            assert shown.count("unsent words") == 1
            assert shown.count(READY) == (row == before)
        await pane.type("C-q")
        shown = await pane.until("To go on")
    assert "unsent words" not in shown
    assert re.findall(r"line number \d+", shown) == lines


@needs_tmux
@pytest.mark.parametrize("height", [16, 9, 5])
@pytest.mark.parametrize("apart_s", [0.0, 0.15, 0.4])
async def test_a_terminal_that_is_lower_for_a_moment_shows_all_rows_of_the_input_again(
    hobnob: Cli, tmp_path: Path, height: int, apart_s: float
) -> None:
    async with Pane(hobnob, tmp_path / "tmux") as pane:
        before = await pane.asked(2)
        await pane.resize(80, height)
        await asyncio.sleep(apart_s)
        await pane.resize(80, 20)
        shown = await pane.until_last(before)
        assert shown.count("unsent words") == shown.count(READY) == 1


async def test_a_resize_to_the_same_size_is_drawn_once_more(hobnob: Cli) -> None:
    async with Session(hobnob, "--inline") as session:
        await session.until(READY)
        session.type("unsent")
        await session.until("unsent")
        session.resize(100, 9)
        session.resize(100, 30)
        await session.until("unsent")
        await session.until(READY)
