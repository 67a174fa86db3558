"""The full screen as its user meets it: the real command on a terminal, a scripted server."""

from __future__ import annotations

import asyncio
import re
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest
from fake_server import (
    RUN,
    STREAM_HEAD,
    FakeServer,
    Request,
    body_of,
    chunk,
    hangs,
    hangs_up,
    reply_events,
    streams,
)
from support_cli import COMMAND, Cli
from support_session import Session

from hobnob.server import wire
from hobnob.server.wire import Event

EVENTS = f"/runs/{RUN}/events"
NEW = "/conversations/new/messages"
READY = "Enter send"
LEAVE_SECONDS = 2.0


async def begins(request: Request, writer: Any) -> None:
    """Streams the beginning of a reply and then nothing more."""
    writer.write(STREAM_HEAD + chunk(body_of(reply_events("It begins.")[:4])))
    await asyncio.Event().wait()


async def prefills(request: Request, writer: Any) -> None:
    """Reads the prompt for ever."""
    news = Event(None, wire.Prefill(1, 9000, 0))
    writer.write(STREAM_HEAD + chunk(body_of([*reply_events("")[:1], news])))
    await asyncio.Event().wait()


CUT = streams(body_of(reply_events("It begins.")[:4]), complete=False)


@pytest.mark.parametrize(
    ("path", "acts", "shown"),
    [
        (EVENTS, [begins], "It begins."),
        (EVENTS, [prefills], "reading the prompt"),
        (EVENTS, [CUT, *[hangs_up] * 40], "reconnecting"),
        (EVENTS, [hangs], "waiting for the model"),
        (NEW, [hangs], "You"),
        (NEW, [hangs_up] * 40, "reconnecting"),
    ],
    ids=["stream", "prefill", "reconnecting", "no event", "not accepted", "not sent"],
)
async def test_leaving_is_quick_whatever_is_waited_for(
    server: FakeServer, hobnob: Cli, path: str, acts: list[Any], shown: str
) -> None:
    server.scripts[path] = list(acts)
    async with Session(hobnob, "chat") as session:
        await session.until(READY)
        session.type("hi\r")
        await session.sees(shown)
        started = asyncio.get_running_loop().time()
        session.type("\x11")
        assert await session.ends() == 0
        assert session.restored
        assert "Traceback" not in session.text
        # Generous: what hangs here hangs for as long as the server does.
        assert asyncio.get_running_loop().time() - started < LEAVE_SECONDS * 5
    assert not server.cancelled


def styles(session: Session) -> set[int]:
    """The numbers of all styles that were written."""
    found = re.findall(rb"\x1b\[([\d;]*)m", session.output)
    return {int(n) for style in found for n in style.split(b";") if n}


def colours(session: Session) -> set[int]:
    return styles(session) & {*range(30, 39), *range(40, 49), *range(90, 98), *range(100, 108)}


@pytest.mark.parametrize(
    ("answer", "background"),
    [
        ("rgb:ffff/ffff/ffff", b"48;2;251;250;248"),
        ("rgb:1111/1111/1111", b"48;2;21;23;28"),
        (None, b"48;2;21;23;28"),
    ],
)
async def test_the_screen_is_light_where_the_terminal_is(
    hobnob: Cli, answer: str | None, background: bytes
) -> None:
    async with Session(hobnob, "chat", env={"COLORTERM": "truecolor"}) as session:
        await session.until("\x1b]11;?")
        if answer is not None:
            session.type(f"typed \x1b]11;{answer}\x1b\\early\x1b[?62;22c")
        await session.until(READY)
        assert background in session.output
        if answer is not None:
            await session.sees("typed early")


NO_KEYS = [
    b"\xff",
    b"caf\xe9 x",
    b"\xed\xa0\x80",
    b"\x1b[M\xff\xff\xff",
    b"\x1b[200~caf\xe9\x1b[201~",
    b"\x1b[1114112;5u",
    b"\x1b[97;1;55296u",
    b"\x1b[48;9999;9999;1;1t",
    b"\x1b[48;30;100;0;0t\x1b[<35;7;3M",
]


@pytest.mark.parametrize("arguments", ["chat", "--inline"])
async def test_no_byte_of_the_terminal_ends_the_app(hobnob: Cli, arguments: str) -> None:
    async with Session(hobnob, arguments) as session:
        await session.until(READY)
        for sent in NO_KEYS:
            session.type(sent)
        session.type("alive")
        await session.sees("alive")
        session.type("\x11")
        assert await session.ends() == 0
        assert "Traceback" not in session.text
        assert session.restored


@pytest.mark.parametrize("arguments", ["chat", "--inline"])
async def test_a_late_answer_of_the_terminal_is_not_typed(hobnob: Cli, arguments: str) -> None:
    async with Session(hobnob, arguments, env={"EDITOR": "false"}) as session:
        await session.until(READY)
        session.type("typed \x1b]11;rgb:ffff/ffff/ffff\x07\x1b[?62;22c")
        session.type("\x1b]52;c;aGVsbG8=\x1b\\\x1bP>|xterm(370)\x1b\\")
        session.type("\x1b]11;rgb:ff")
        await asyncio.sleep(0.3)
        session.type("ff/ffff/ffff\x07late")
        await session.sees("typed late")
        assert session.output.count(b"\x1b[?2004h") == 1  # the editor would have had the terminal
        session.type("\x11")
        assert await session.ends() == 0


@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGABRT])
@pytest.mark.parametrize("arguments", ["chat", "--inline"])
async def test_a_death_on_a_signal_gives_the_terminal_back(
    hobnob: Cli, arguments: str, number: signal.Signals
) -> None:
    async with Session(hobnob, arguments) as session:
        await session.until(READY)
        session.process.send_signal(number)
        assert await session.ends() == -number
        assert session.restored
        assert session.output.count(b"\x1b[<u") == 1
        assert (b"\x1b[?1049l" in session.output) == (arguments == "chat")


async def test_the_rest_of_an_answer_that_has_begun_is_waited_for(hobnob: Cli) -> None:
    async with Session(hobnob, "chat", env={"COLORTERM": "truecolor"}) as session:
        await session.until("\x1b]11;?")
        session.type("\x1b]11;rgb:ff")
        await asyncio.sleep(0.4)
        session.type("ff/ffff/ffff\x1b\\\x1b[?62;22c")
        await session.until(READY)
        assert b"48;2;251;250;248" in session.output
        session.type("typed")
        await session.sees("typed")
        assert b"ffff" not in session.output


async def test_the_terminals_own_colours_are_used_where_that_is_asked_for(hobnob: Cli) -> None:
    env = {"HOBNOB_THEME": "ansi-dark", "COLORTERM": "truecolor"}
    async with Session(hobnob, "chat", env=env) as session:
        await session.until(READY)
        session.type("\x11")
        assert await session.ends() == 0
    assert b"8;2;" not in session.output
    assert b"8;5;" not in session.output


@pytest.mark.parametrize("arguments", ["chat", "--inline"])
async def test_leaving_while_it_still_starts_is_no_error(hobnob: Cli, arguments: str) -> None:
    async with Session(hobnob, arguments) as session:
        await session.until("\x1b[?2004h")
        session.type("\x11")
        assert await session.ends() == 0
        assert "Traceback" not in session.text and "NoMatches" not in session.text
        assert session.restored


@pytest.mark.parametrize("editor", ["false", "no-such-editor", "true"])
async def test_an_editor_that_fails_leaves_the_screen_and_the_text(
    hobnob: Cli, editor: str
) -> None:
    async with Session(hobnob, "chat", env={"EDITOR": editor}) as session:
        await session.until(READY)
        session.type("keep this")
        await session.sees("keep this")
        session.type("\x07")
        await session.until("\x1b[?1049l")
        await session.until("\x1b[?2004h")
        await session.until(READY)
        session.type(" and more")
        await session.sees("keep this and more")
        session.type("\x11")
        assert await session.ends() == 0
        assert session.restored


@pytest.mark.parametrize("arguments", ["chat", "--inline"])
async def test_without_colour_there_is_none_and_the_cursor_is_seen(
    server: FakeServer, hobnob: Cli, arguments: str
) -> None:
    async with Session(hobnob, arguments, env={"NO_COLOR": "1"}) as session:
        await session.until(READY)
        session.type("hi\r")
        await session.sees("world.")
        session.type("abc")
        await session.sees("abc")
        session.type("\x11")
        assert await session.ends() == 0
    assert not colours(session)
    assert 7 in styles(session)  # reversed: the cursor


async def test_without_colour_no_dialog_or_screen_has_any(hobnob: Cli) -> None:
    async with Session(hobnob, "chat", env={"NO_COLOR": "1"}) as session:
        await session.until(READY)
        for keys, shown, closing in [
            ("\x1bOP", "Ctrl+End", "\x1b"),  # F1
            ("\x10", "Search for commands", "\x1b"),
            ("Why?\x0c", "Playground", "\x1b[1;3A"),  # and up to its columns
            ("e", "Column A", "\x1b"),
        ]:
            session.type(keys)
            await session.sees(shown)
            session.type(closing)
            await asyncio.sleep(0.3)
        session.type("\x11")
        assert await session.ends() == 0
    assert not colours(session)


async def test_without_colour_a_question_has_none(server: FakeServer, hobnob: Cli) -> None:
    queued = [Event(None, wire.Queued(3, 14.0)), *server.events]
    server.scripts[EVENTS].append(streams(body_of(queued)))
    async with Session(hobnob, "ask", "hi", env={"NO_COLOR": "1"}) as session:
        await session.until("world.")
        assert await session.ends() == 0
    assert styles(session) == set()


async def test_ask_redraws_no_line_where_that_cannot_be_followed(
    server: FakeServer, hobnob: Cli
) -> None:
    queued = [Event(None, wire.Queued(3, 14.0)), *server.events]
    for env, redrawn in (({}, True), ({"ACCESSIBLE": "1"}, False), ({"TERM": "dumb"}, False)):
        server.scripts[EVENTS].append(streams(body_of(queued)))
        async with Session(hobnob, "ask", "hi", env=env) as session:
            assert await session.ends() == 0
            assert ("\x1b[K" in session.text) is redrawn
            assert "Hello world." in session.text


@pytest.mark.parametrize("arguments", [["chat"], ["--inline"], ["--plain"]])
async def test_a_home_that_cannot_be_written_costs_the_drafts_and_that_is_said(
    server: FakeServer, hobnob: Cli, arguments: list[str]
) -> None:
    Path(hobnob.env["HOBNOB_HOME"]).write_text("in the way")
    async with Session(hobnob, *arguments) as session:
        await session.until("\x1b[?2004h")
        session.type("hi\r")
        await session.sees("Drafts are not kept")
        await session.sees("world.")
        session.type("\x11" if arguments != ["--plain"] else "\x04")
        assert await session.ends() == 0
        assert session.restored
        assert "Traceback" not in session.text


@pytest.mark.parametrize("arguments", ["chat", "--inline"])
async def test_what_is_typed_before_the_first_paint_is_in_the_input(
    server: FakeServer, hobnob: Cli, arguments: str
) -> None:
    async with Session(hobnob, arguments) as session:
        session.type("early words")
        await session.until(READY)
        session.type(" and late ones\r")
        await session.sees("world.")
        session.type("\x11")
        assert await session.ends() == 0
    asked = [one for one in server.requests if one.path == NEW]
    assert [one.json["text"] for one in asked] == ["early words and late ones"]


@pytest.mark.parametrize("arguments", [["chat"], ["--inline"], ["--plain"]])
@pytest.mark.parametrize(
    ("size", "env"),
    [((0, 0), {}), ((80, 24), {"COLUMNS": "abc", "LINES": "-3"})],
)
async def test_an_odd_size_is_no_obstacle(
    server: FakeServer,
    hobnob: Cli,
    arguments: list[str],
    size: tuple[int, int],
    env: dict[str, str],
) -> None:
    async with Session(hobnob, *arguments, size=size, env=env) as session:
        await session.until("\x1b[?2004h")
        session.resize(90, 30)
        session.process.send_signal(28)  # SIGWINCH
        session.type("hi\r")
        await session.until("world.")
        session.type("\x04")
        assert await session.ends() == 0
        assert session.restored
        assert "Traceback" not in session.text


async def test_resizes_during_a_stream_lose_nothing(server: FakeServer, hobnob: Cli) -> None:
    words = [f"word{n}" for n in range(60)]
    server.events = reply_events(*(f"{word} " for word in words))

    async def slowly(request: Request, writer: Any) -> None:
        writer.write(STREAM_HEAD)
        for event in server.events:
            writer.write(chunk(body_of([event])))
            await writer.drain()
            await asyncio.sleep(0.01)
        writer.write(b"0\r\n\r\n")

    server.scripts[EVENTS].append(slowly)
    async with Session(hobnob, "chat") as session:
        await session.until(READY)
        session.type("hi\r")
        await session.until("word3")
        for n in range(50):
            session.resize(20 + 17 * n % 130, 6 + 7 * n % 40)
            session.process.send_signal(28)
            await asyncio.sleep(0.01)
        session.resize(100, 40)
        session.process.send_signal(28)
        mark = len(session.output)
        async with asyncio.timeout(30):
            while not all(
                word in session.output[mark:].decode("utf-8", "ignore") for word in words
            ):
                await asyncio.sleep(0.05)
        session.type("\x11")
        assert await session.ends() == 0
        assert session.restored


async def test_errors_sent_elsewhere_leave_the_screen_on_the_terminal(
    hobnob: Cli, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    line = f"exec {shlex.join(COMMAND)} 2>{shlex.quote(str(log))}"
    async with Session(hobnob, command=("/bin/sh", "-c", line)) as session:
        await session.until(READY)
        session.type("\x11")
        assert await session.ends() == 0
    assert log.read_bytes() == b""
