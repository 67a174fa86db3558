"""The plain chat as its user meets it: the real command on a terminal, before a scripted server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from fake_server import (
    CONVERSATION,
    RUN,
    STREAM_HEAD,
    Act,
    FakeServer,
    Request,
    asked,
    body_of,
    chunk,
    hangs,
    refusal,
    reply_events,
    says,
    streams,
)
from support_cli import COMMAND, Cli
from support_documents import HOSTILE
from support_session import SHELL, Session

from hobnob.server import wire
from hobnob.server.wire import Event
from hobnob.tui.linear_commands import COMMANDS, SCREEN_ONLY, LinearCommands

EVENTS = f"/runs/{RUN}/events"
NEW = "/conversations/new/messages"
DUMB = {"TERM": "dumb"}


def drafts(hobnob: Cli) -> dict[str, Any]:
    folder = Path(hobnob.env["HOBNOB_HOME"]) / "state" / "drafts"
    return {path.stem: json.loads(path.read_text())["text"] for path in folder.glob("*.json")}


def sent(server: FakeServer) -> list[str]:
    asked = [one for one in server.requests if one.method == "POST"]
    return [one.json["text"] for one in asked if one.path.endswith("/messages")]


def in_two(server: FakeServer, between: Callable[[], Awaitable[None]]) -> Act:
    """Streams the reply to its first words, and the rest when `between` is over."""

    async def act(request: Request, writer: Any) -> None:
        writer.write(STREAM_HEAD + chunk(body_of(server.events[:4])))
        await writer.drain()
        await between()
        writer.write(chunk(body_of(server.events[4:])) + b"0\r\n\r\n")

    return act


async def begins(request: Request, writer: Any) -> None:
    """Streams the beginning of a reply and then nothing more."""
    writer.write(STREAM_HEAD + chunk(body_of(reply_events("It begins. ")[:4])))
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("arguments", "env"),
    [(["--plain"], {}), (["chat", "--plain"], {}), ([], {"ACCESSIBLE": "1"}), ([], DUMB)],
)
async def test_it_opens_where_it_is_asked_for_and_where_there_is_no_cursor_to_move(
    hobnob: Cli, arguments: list[str], env: dict[str, str]
) -> None:
    async with Session(hobnob, *arguments, env=env) as session:
        await session.until("You: ")
        await session.leaves()
        assert "\x1b[?1049h" not in session.text
        assert session.restored


async def test_without_a_terminal_it_names_the_command_that_reads_a_pipe(hobnob: Cli) -> None:
    result = await hobnob.run("--plain", stdin=b"a question")
    assert (result.code, result.out) == (2, b"")
    assert "hobnob ask" in result.err


async def test_a_prompt_given_with_it_is_not_lost_in_silence(hobnob: Cli) -> None:
    result = await hobnob.run("--plain", "a question")
    assert (result.code, result.out) == (2, b"")
    assert "takes no prompt" in result.err


async def test_a_reply_is_lines_of_text_and_nothing_else(server: FakeServer, hobnob: Cli) -> None:
    server.events = reply_events("One. T", "wo is **bold**.\n", "\n```\nx = 1\n```\n")
    async with Session(hobnob, "--plain", env=DUMB) as session:
        await session.plays(("You: ", "hi there\r"), ("```\r\nYou: ", ""))
        await session.leaves()
        assert "fake-model: One. Two is **bold**.\n\n```\nx = 1\n```\nYou: " in session.text
        assert f"To go on with this: hobnob --plain --conversation {CONVERSATION[:8]}" in (
            session.text
        )
        assert "\x1b" not in session.text
        assert session.restored
    assert sent(server) == ["hi there"]


async def test_ctrl_c_stops_the_reply_and_the_input_comes_back(
    server: FakeServer, hobnob: Cli
) -> None:
    async def cancelled() -> None:
        while not server.cancelled:
            await asyncio.sleep(0.01)

    server.scripts[EVENTS].append(in_two(server, cancelled))
    server.events = reply_events("It begins. ", "It goes on.", status=wire.Status.CANCELLED)
    async with Session(hobnob, "--plain") as session:
        await session.plays(
            ("You: ", "hi\r"),
            ("It begins.", "\x03"),
            ("It goes on.", "stopped", "You: ", ""),
        )
        assert server.cancelled
        await session.leaves()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGABRT])
async def test_a_signal_at_the_input_keeps_what_was_typed(
    hobnob: Cli, number: signal.Signals
) -> None:
    async with Session(hobnob, "--plain") as session:
        await session.plays(("You: ", "unsent words"), ("unsent words", ""))
        session.process.send_signal(number)
        assert await session.ends() == 128 + number
        assert session.restored
    assert drafts(hobnob) == {"new": "unsent words"}
    async with Session(hobnob, "--plain") as session:
        await session.plays(("You: ", "unsent words", ""))


async def test_a_signal_during_a_reply_leaves_and_stops_nothing(
    server: FakeServer, hobnob: Cli
) -> None:
    server.scripts[EVENTS].append(begins)
    async with Session(hobnob, "--plain") as session:
        await session.plays(("You: ", "hi\r"), ("It begins.", ""))
        session.process.send_signal(signal.SIGTERM)
        assert await session.ends() == 143
        assert session.restored
        assert "Traceback" not in session.text
    assert not server.cancelled


async def test_an_exception_leaves_the_terminal_as_it_was(hobnob: Cli) -> None:
    program = (
        "from hobnob.tui import linear\n"
        "def fail(chat, text): raise RuntimeError('a part broke')\n"
        "linear.LinearChat._deliver = fail\n"
        "from hobnob.cli import main; main()"
    )
    async with Session(hobnob, "--plain", command=(sys.executable, "-c", program)) as session:
        await session.plays(("You: ", "hi\r"))
        assert await session.ends() == 1
        assert "a part broke" in session.text
        assert session.restored


async def test_ctrl_z_gives_the_shell_its_terminal_and_fg_the_line_back(
    server: FakeServer, hobnob: Cli
) -> None:
    env = {"PS1": "shell> ", "HISTFILE": "", "INPUTRC": os.devnull}
    async with Session(hobnob, env=env, command=SHELL) as session:
        await session.plays(
            ("shell> ", "stty -a | md5sum; " + shlex.join(COMMAND) + " --plain\r"),
            ("You: ", "half a"),
            ("half a", "\x1a"),
            ("Stopped", "shell> ", "stty -a | md5sum; fg\r"),
            ("You: half a", " line\r"),
            ("world.", "You: ", ""),
        )
        sums = re.findall(r"[0-9a-f]{32}", session.text)
        assert len(sums) == 2 and sums[0] == sums[1]
        session.type("\x04")
        await session.until("shell> ")
    assert sent(server) == ["half a line"]


async def test_a_reply_goes_on_over_a_lost_connection_and_that_is_said(
    server: FakeServer, hobnob: Cli
) -> None:
    server.events = reply_events("First part. ", "Second part.")
    cut = body_of(server.events[:4])
    server.scripts[EVENTS].append(streams(cut, complete=False))
    async with Session(hobnob, "--plain", env=DUMB) as session:
        await session.plays(
            ("You: ", "hi\r"),
            ("reconnecting", "connected again", "Second part.", "You: ", ""),
        )
        assert session.text.count("First part.") == 1
        assert session.text.count("Second part.") == 1


async def test_what_is_waited_for_is_said_in_words(server: FakeServer, hobnob: Cli) -> None:
    async def slowly(request: Request, writer: Any) -> None:
        for payload in (wire.Queued(3, 14.0), wire.Prefill(120, 3000, 0)):
            writer.write(STREAM_HEAD if isinstance(payload, wire.Queued) else b"")
            writer.write(chunk(body_of([Event(None, payload)])))
            await writer.drain()
            await asyncio.sleep(2.2)
        writer.write(chunk(body_of(server.events)) + b"0\r\n\r\n")

    server.scripts[EVENTS].append(slowly)
    async with Session(hobnob, "--plain", env=DUMB) as session:
        await session.plays(
            ("You: ", "hi\r"),
            (
                "hobnob: number 3 in the queue · about 14 s\r\n",
                "hobnob: reading the prompt… 120 of 3000 tokens\r\n",
                "fake-model: Hello world.",
                "",
            ),
        )


async def test_a_message_that_was_not_accepted_is_in_the_input_again_and_is_one_turn(
    server: FakeServer, hobnob: Cli
) -> None:
    server.scripts[NEW].append(says(refusal(400, "context_length_exceeded", "Too long.")))
    async with Session(hobnob, "--plain") as session:
        await session.plays(
            ("You: ", "a long story\r"),
            ("Not sent: Too long.", "You: ", "a long story", "\r"),
            ("world.", ""),
        )
    keys = {one.headers["idempotency-key"] for one in server.asked("POST", NEW)}
    assert (sent(server), len(keys)) == (["a long story"] * 2, 1)


async def test_what_is_typed_during_a_reply_is_in_the_input_after_it(
    server: FakeServer, hobnob: Cli
) -> None:
    server.events = reply_events("One. ", "Two.")
    server.scripts[EVENTS].append(in_two(server, lambda: asyncio.sleep(1.0)))
    async with Session(hobnob, "--plain", env=DUMB) as session:
        await session.plays(
            ("You: ", "hi\r"),
            ("One.", "typed ahead"),
            ("Two.\r\nYou: typed ahead", ""),
        )


@pytest.mark.parametrize(
    ("command", "answer"), [("/help", "/search: search all"), ("/quit", "To go on with this")]
)
async def test_a_command_typed_during_a_reply_is_seen_and_done_after_it(
    server: FakeServer, hobnob: Cli, command: str, answer: str
) -> None:
    async def typing() -> None:
        await session.plays(("One.", f"{command}\r"))
        await asyncio.sleep(0.5)

    server.events = reply_events("One. ", "Two.")
    server.scripts[EVENTS].append(in_two(server, typing))
    async with Session(hobnob, "--plain", env=DUMB) as session:
        await session.plays(("You: ", "hi\r"), (f" Two.\r\nYou: {command}\r\n", answer, ""))
    assert sent(server) == ["hi"]


async def test_what_is_typed_before_it_has_begun_is_sent_at_each_enter(
    server: FakeServer, hobnob: Cli
) -> None:
    async with Session(hobnob, "--plain", env=DUMB) as session:
        await session.plays(
            ("first\rsecond\rand the",),
            ("You: first", "You: second", "You: and the", " rest\r"),
            ("You: ", ""),
        )
        await session.leaves()
    assert sent(server) == ["first", "second", "and the rest"]


async def test_a_message_can_have_several_lines(server: FakeServer, hobnob: Cli) -> None:
    async with Session(hobnob, "--plain") as session:
        await session.plays(("You: ", "one\\\r"), ("... ", "two\nthree\r"), ("world.", ""))
    assert sent(server) == ["one\ntwo\nthree"]


async def test_lines_above_the_one_that_ctrl_d_leaves_are_kept(hobnob: Cli) -> None:
    async with Session(hobnob, "--plain") as session:
        await session.plays(("You: ", "kept\\\r"), ("... ", ""))
        await session.leaves()
    assert drafts(hobnob) == {"new": "kept\n"}


async def test_a_paste_of_lines_sends_nothing_by_itself(server: FakeServer, hobnob: Cli) -> None:
    async with Session(hobnob, "--plain") as session:
        await session.plays(("\x1b[?2004h", "\x1b[200~pasted\rlines\x1b[201~"), ("lines", ""))
        assert sent(server) == []
        session.type("\r")
        await session.until("world.")
    assert sent(server) == ["pasted\nlines"]


async def test_earlier_prompts_come_back_in_the_next_session(
    server: FakeServer, hobnob: Cli
) -> None:
    async with Session(hobnob, "--plain") as session:
        await session.plays(("You: ", "remember me\r"), ("world.", "You: ", "\x04"))
        await session.ends()
    async with Session(hobnob, "--plain") as session:
        await session.plays(("You: ", "\x1b[A"), ("remember me", ""))


async def test_ctrl_c_drops_a_line_and_twice_on_an_empty_one_leaves(hobnob: Cli) -> None:
    async with Session(hobnob, "--plain") as session:
        await session.plays(
            ("You: ", "never mind"),
            ("never mind", "\x03"),
            ("dropped", "You: ", "\x03"),
            ("again", "You: ", "\x03"),
        )
        assert await session.ends() == 0
        assert session.restored


@pytest.mark.parametrize("env", [{}, DUMB])
async def test_ctrl_d_leaves_an_empty_line_and_takes_nothing_from_another(
    server: FakeServer, hobnob: Cli, env: dict[str, str]
) -> None:
    async with Session(hobnob, "--plain", env=env) as session:
        await session.plays(("You: ", "words"), ("words", "\x04\x04 and more\r"))
        await session.plays(("world.", "You: ", ""))
        await session.leaves()
    assert sent(server) == ["words and more"]


async def test_ctrl_c_twice_during_a_reply_does_not_wait_for_its_end(
    server: FakeServer, hobnob: Cli
) -> None:
    server.scripts[EVENTS].append(begins)
    async with Session(hobnob, "--plain") as session:
        await session.plays(("You: ", "hi\r"), ("It begins.", "\x03"))
        await asked(server, "POST", f"/runs/{RUN}/cancel")
        await session.plays(("\x03",), ("it is being stopped", "You: ", ""))
        await session.leaves()


async def test_hostile_content_is_only_text(server: FakeServer, hobnob: Cli) -> None:
    server.events = reply_events(HOSTILE[:20], HOSTILE[20:].replace("\ud800", ""))
    server.conversations = [{"id": CONVERSATION, "title": f"title {HOSTILE[:-1]}"}]
    server.messages = [
        {"id": "m", "role": "user", "text": f"asked {HOSTILE[:-1]}", "status": "completed"},
        {"id": "r", "role": "assistant", "text": HOSTILE[:-1], "model": "M\x1b]0;x\x07"},
    ]
    async with Session(hobnob, "--plain", env=DUMB) as session:
        await session.plays(("You: ", "hi\r"), ("app.quit]here[/]", "You: ", ""))
        server.scripts[f"/conversations/{CONVERSATION}/messages"].append(
            says(refusal(400, "invalid_request", f"error {HOSTILE[:-1]}"))
        )
        await session.plays(
            ("again\r",),
            ("Not sent: error", "\x15/list\r"),
            ("Number to open", "1\r"),
            ("M␛]0;x␇: ", "You: ", "\x15\x04"),
        )
        assert await session.ends() == 0
        controls = set(re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", session.text))
        assert controls <= {"\x08", "\r", "\x07"}, session.text  # the line editor's own
        assert "\x1b" not in session.text
        shown = re.sub(r"[^A-G]", "", session.text.partition("fake-model: ")[2])
        assert shown.startswith("ABCDEFG")


async def test_commands_ask_for_what_they_need(server: FakeServer, hobnob: Cli) -> None:
    server.conversations = [{"id": CONVERSATION, "title": "Knots"}]
    server.messages = [
        {"id": "m", "role": "user", "text": "Which knot?\nA good one.", "status": "completed"},
        {"id": "r", "role": "assistant", "parent": "m", "text": "A bowline.", "model": "M"},
    ]
    async with Session(hobnob, "--plain", env=DUMB) as session:
        await session.plays(
            ("You: ", "/he\t\r"),
            ("/quit: leave", "You: ", "/list\r"),
            ("1. Knots", "7\r"),
            ("there is no number 7", "/list\r"),
            ("Enter: ", "1\r"),
            (
                "Knots, 2 messages",
                "You: Which knot?\r\nA good one.\r\nM: A bowline.\r\nYou: ",
                "/find\r",
            ),
            ("Find: ", "GOOD\r"),
            ("You: A good one.\r\nhobnob: 1 lines found", "/search\r"),
            ("Search for: ", "hit\r"),
            ("1. Untitled: a hit", "\r"),
            ("You: ", "/pin\r"),
            ("it is pinned", "/list\r"),
            ("1. Knots (pinned)", "\r"),
            ("You: ", "/pin\r"),
            ("it is no longer pinned", "/thoughts\r"),
            ("there are none", "/theme\r"),
            ("/theme is for the full screen only", "/etc/passwd\r"),
        )
        await session.until("fake-model: Hello world.")  # no command: only text
        await session.plays(("/edit\r",), ("You: /etc/passwd", "\x15/quit\r"))
        assert await session.ends() == 0
    assert sent(server) == ["/etc/passwd"]


async def test_a_mistyped_command_is_asked_about_and_stays_in_the_input(
    server: FakeServer, hobnob: Cli
) -> None:
    async with Session(hobnob, "--plain", env=DUMB) as session:
        await session.plays(
            ("You: ", "/fcats\r"),
            ("There is no /fcats; /facts? Enter again sends it as a message.", "You: /fcats", ""),
        )
        assert sent(server) == []
        await session.plays(("\r",), ("fake-model: Hello world.", "You: ", "/quit\r"))
        assert await session.ends() == 0
    assert sent(server) == ["/fcats"]


async def test_any_code_block_of_the_last_message_that_has_some_is_copied(
    server: FakeServer, hobnob: Cli
) -> None:
    code = "```\na\n```\nor\n```\nbb\n```\n"
    server.conversations = [{"id": CONVERSATION, "title": "Knots"}]
    server.messages = [
        {"id": "m", "role": "user", "text": "Which?", "status": "completed"},
        {"id": "r", "role": "assistant", "parent": "m", "text": code, "model": "M"},
    ]
    async with Session(hobnob, "--plain", "-c", env=DUMB) as session:
        await session.plays(
            ("You: ", "Which?", "You: ", "/code\r"),
            ("Code 2 of 2. Copied 2 characters", "You: ", "/code 1\r"),
            ("Code 1 of 2. Copied 1 characters", "You: ", "/code 3\r"),
            ("There is no code 3: the message has 2.", "You: ", "/quit\r"),
        )
        assert await session.ends() == 0
    assert sent(server) == []


async def test_a_reply_that_was_cut_is_gone_on_with_by_a_command(
    server: FakeServer, hobnob: Cli
) -> None:
    cut = {"id": "r", "role": "assistant", "parent": "m", "text": "A bow", "model": "M"}
    server.conversations = [{"id": CONVERSATION, "title": "Knots"}]
    server.messages = [
        {"id": "m", "role": "user", "text": "Which knot?", "status": "completed"},
        {**cut, "status": "length", "stop_reason": "max_tokens"},
    ]
    server.events = reply_events("A bow", "line.")
    async with Session(hobnob, "--plain", "-c", env=DUMB) as session:
        await session.plays(("M: A bow\r\nYou: ", "/continue\r"), ("line.\r\nYou: ", "/quit\r"))
        assert await session.ends() == 0
    asked = server.asked("POST", f"/conversations/{CONVERSATION}/replies")
    assert [one.json for one in asked] == [{"continue": "r"}]


async def test_system_prompt_and_parameters_are_typed_as_lines(
    server: FakeServer, hobnob: Cli
) -> None:
    server.conversations = [{"id": CONVERSATION, "title": "Knots", "system": "Rhyme."}]
    async with Session(hobnob, "--plain", "-c", env=DUMB) as session:
        await session.plays(
            ("Knots, 1 messages, system prompt; /show", "You: ", "/settings\r"),
            ("Parameters: ", "temperature\r"),
            ("Write name=value", "/settings\r"),
            ("Parameters: ", "temperature=0.2 seed=7\r"),
            ("from the next message on: system prompt · temperature 0.2 · seed 7", "/system\r"),
            ("System prompt: Rhyme.", " Be brief.\r"),
            ("from the next message on: system prompt", "/system\r"),
            ("System prompt: Rhyme. Be brief.", "\x15\r"),
            ("from the next message on: temperature 0.2 · seed 7", "/quit\r"),
        )
        assert await session.ends() == 0
    asked = server.asked("PATCH", f"/conversations/{CONVERSATION}")
    assert [one.json for one in asked] == [
        {"settings": {"temperature": 0.2, "seed": 7}},
        {"system": "Rhyme. Be brief."},
        {"system": None},
    ]


def test_every_command_runs_or_is_known_not_to() -> None:
    chat = LinearCommands(MagicMock())
    runs = set(chat._does) | {"/quit"}
    assert runs | SCREEN_ONLY == set(COMMANDS)
    assert runs & SCREEN_ONLY == set()


async def test_an_unreachable_server_is_said_and_a_message_is_kept(tmp_path: Path) -> None:
    hobnob = Cli(tmp_path / "home", "http://127.0.0.1:9")
    async with Session(hobnob, "--plain") as session:
        await session.plays(
            ("cannot be reached", "You: ", "keep this\r"),
            (
                "Not sent: The server at http://127.0.0.1:9 cannot be reached",
                "You: ",
                "keep this",
                "",
            ),
        )
        session.process.send_signal(signal.SIGTERM)
        assert await session.ends() == 143
    assert drafts(hobnob) == {"new": "keep this"}


async def test_ctrl_c_twice_does_not_wait_for_a_server_that_says_nothing(
    server: FakeServer, hobnob: Cli
) -> None:
    server.scripts[NEW].append(hangs)
    async with Session(hobnob, "--plain") as session:
        await session.plays(("You: ", "hi\r"))
        while not sent(server):
            await asyncio.sleep(0.01)
        await session.plays(("\x03\x03",), ("Not sent.", "You: ", "hi", ""))
