"""`!` in the plain chat, and once in the app: the real command on a terminal, before a scripted
server."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

from fake_server import FakeServer
from support_cli import Cli
from support_session import Session

DUMB = {"TERM": "dumb"}
READY = "Enter send"
ASKED = "`printf 'a\\033[1mb'`"
SENT = "Shell command, exit code 0:\n```console\n$ printf 'a\\033[1mb'\na␛[1mb\n```"


def sent(server: FakeServer) -> list[str]:
    asked = [one for one in server.requests if one.method == "POST"]
    return [one.json["text"] for one in asked if one.path.endswith("/messages")]


def drafts(hobnob: Cli) -> dict[str, Any]:
    folder = Path(hobnob.env["HOBNOB_HOME"]) / "state" / "drafts"
    return {path.stem: json.loads(path.read_text())["text"] for path in folder.glob("*.json")}


async def test_the_output_is_told_and_goes_with_the_next_message(
    server: FakeServer, hobnob: Cli
) -> None:
    async with Session(hobnob, "--plain", env=DUMB) as session:
        await session.plays(
            ("You: ", "!printf 'a\\033[1mb'\r"),
            ("a␛[1mb\r\nhobnob: exit code 0, 1 line; it goes with your next message", ""),
            ("You: [ran printf 'a\\033(1mb', 1 line #1] ", "!exit 3\r"),
            ("exit code 3, no output; it goes", "exit code 3, no output #2] ", "which is it?\r"),
            ("Hello world.", "You: ", "!!now\r"),
            ("Hello world.", "You: ", ""),
        )
        await session.leaves()
        assert "\x1b[1m" not in session.text
    first, second = sent(server)
    assert first == (
        f"{ASKED} `exit 3` which is it?\n\n{SENT}\n\n"
        "Shell command, exit code 3, no output:\n```console\n$ exit 3\n```"
    )
    assert second == "!now"


async def test_what_it_put_out_is_dropped_with_its_label(server: FakeServer, hobnob: Cli) -> None:
    async with Session(hobnob, "--plain", env=DUMB) as session:
        await session.plays(
            ("You: ", "!echo one\r"),
            ("1 line #1] ", "\x15hi\r"),
            ("Hello world.", "You: ", "\x10\x10\r"),  # up, up
            ("!echo one", "1 line #1] ", "\x15"),
        )
        await session.leaves()
    assert sent(server) == ["hi"]


async def test_ctrl_c_stops_it_and_the_chat_goes_on(
    server: FakeServer, hobnob: Cli, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    async with Session(hobnob, "--plain", env=DUMB) as session:
        await session.plays(("You: ", f"!echo $$ > {begun}; echo on; sleep 1000\r"))
        await _number(begun)
        session.type("\x03")
        await session.plays(
            ("stopped, ", "stopped, ", "] ", "why\r"), ("Hello world.", "You: ", "")
        )
        await session.leaves()
    assert "Shell command, stopped:\n```console\n$ echo $$" in sent(server)[0]


async def test_a_signal_ends_it_with_the_chat_and_keeps_what_was_put_out_before(
    server: FakeServer, hobnob: Cli, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    async with Session(hobnob, "--plain", env=DUMB) as session:
        await session.plays(
            ("You: ", "!echo one\r"), ("1 line #1] ", f"!echo $$ > {begun}; echo on; sleep 1000\r")
        )
        pid = await _number(begun)
        session.process.send_signal(signal.SIGTERM)
        assert await session.ends() == 143
        assert session.restored
    assert not Path(f"/proc/{pid}").exists() or not Path("/proc/self").exists()
    assert drafts(hobnob)["new"].startswith("`echo one` \n\nShell command, exit code 0:")
    async with Session(hobnob, "--plain", env=DUMB) as session:
        await session.plays(("You: [ran echo one, 1 line #1] ", "so?\r"), ("Hello world.", ""))
        session.type("\x04")
        assert await session.ends() == 0
    assert sent(server)[0].startswith("`echo one` so?\n\nShell command, exit code 0:")


async def test_several_lines_are_a_message_also_when_they_were_pasted(
    server: FakeServer, hobnob: Cli
) -> None:
    async with Session(hobnob, "--plain") as session:
        await session.plays(("You: ", "\x1b[200~!a\nb\x1b[201~\r"), ("Hello world.", "You: ", ""))
        await session.leaves()
    assert sent(server) == ["!a\nb"]


async def test_a_shell_that_cannot_be_run_is_said(server: FakeServer, hobnob: Cli) -> None:
    async with Session(hobnob, "--plain", env=DUMB | {"SHELL": "/no/shell"}) as session:
        await session.plays(
            ("You: ", "!ls\r"),
            ("hobnob: /no/shell cannot be run: No such file or directory.", "You: ", ""),
        )
        await session.leaves()


async def test_the_app_runs_it_where_it_was_started(
    server: FakeServer, hobnob: Cli, tmp_path: Path
) -> None:
    """The terminal stays the app's: the command has none."""
    async with Session(hobnob, "chat") as session:
        await session.until(READY)
        session.type("!pwd; stty sane </dev/tty\r")
        await session.sees("[ran pwd; stty sane <")
        session.type("so?\r")
        await session.sees("Hello world.")
        session.type("\x11")
        assert await session.ends() == 0
        assert session.restored
    assert f"\n{Path.cwd()}\n" in sent(server)[0] and "/dev/tty" in sent(server)[0].split("\n")[-2]


async def _number(path: Path) -> int:
    async with asyncio.timeout(20):
        while not (path.exists() and path.read_text().strip()):
            await asyncio.sleep(0.01)
    return int(path.read_text())
