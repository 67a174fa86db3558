"""The command line as scripts meet it: bytes on stdout, exit codes, signals, odd input."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fake_server import (
    CONVERSATION,
    REPLY,
    RUN,
    STREAM_HEAD,
    Act,
    FakeServer,
    Request,
    body_of,
    chunk,
    hangs,
    hangs_up,
    refusal,
    reply_events,
    says,
    streams,
)
from support_cli import COMMAND, Cli

from hobnob import __version__, cli, cli_arguments
from hobnob.exits import Exit
from hobnob.server import wire
from hobnob.server.wire import Event, Failure
from hobnob.tui import verbs
from hobnob.tui.ask import SAME_SIGNAL_SECONDS

EVENTS = f"/runs/{RUN}/events"
MESSAGES = "/conversations/new/messages"


def sent(server: FakeServer) -> list[str]:
    return [one.json["text"] for one in server.requests if one.path.endswith("/messages")]


def begins(server: FakeServer, events: int = 5) -> Act:
    """Streams the first events and then nothing more."""

    async def act(request: Request, writer: asyncio.StreamWriter) -> None:
        body = "".join(wire.sse(event) for event in server.events[:events])
        writer.write(STREAM_HEAD + chunk(body.encode()))
        await asyncio.Event().wait()

    return act


async def shows(process: asyncio.subprocess.Process, text: bytes) -> None:
    """Wait until the process has printed this."""
    assert process.stdout is not None
    async with asyncio.timeout(30):
        assert await process.stdout.readexactly(len(text)) == text


# ---- asking -----------------------------------------------------------------------------------


async def test_only_the_reply_is_on_stdout_and_it_ends_with_one_line_end(
    server: FakeServer, hobnob: Cli
) -> None:
    result = await hobnob.run("ask", "hi")
    assert (result.code, result.out, result.err) == (0, b"Hello world.\n", "")
    server.events = reply_events("Hello world.\n")
    assert (await hobnob.run("ask", "hi")).out == b"Hello world.\n"
    assert (await hobnob.run("ask", "hi", "--no-stream")).out == b"Hello world.\n"


@pytest.mark.parametrize(
    ("arguments", "stdin", "prompt"),
    [
        (["ask", "hi"], b"", "hi"),
        (["hi"], b"", "hi"),
        (["what", "is", "this"], b"", "what is this"),
        (["ask", "summarise"], b"the data\n", "the data\n\nsummarise"),
        (["summarise"], b"a\r\nb\r\n", "a\r\nb\n\nsummarise"),
        (["ask"], b"from stdin\n", "from stdin"),
        ([], b"from stdin\n", "from stdin"),
        (["-"], b"from stdin\n", "from stdin"),
        (["--", "-5 + 3 = ?"], b"", "-5 + 3 = ?"),
        (["ask", "--", "--json"], b"", "--json"),
        (["ask"], b"-x\n", "-x"),
        (["ask", "history"], b"", "history"),
        (["ask"], b"\xef\xbb\xbfhi", "hi"),
        (["ask"], "hé".encode("utf-16"), "hé"),
        (["ask"], b"a\x00b", "a\x00b"),
        (["-o", "seed", "1", "hi"], b"", "hi"),
    ],
)
async def test_the_prompt_is_the_data_then_the_arguments(
    server: FakeServer, hobnob: Cli, arguments: list[str], stdin: bytes, prompt: str
) -> None:
    result = await hobnob.run(*arguments, stdin=stdin)
    assert (result.code, sent(server)) == (0, [prompt]), result.err


@pytest.mark.parametrize(
    ("arguments", "stdin", "words"),
    [
        (["ask"], b"", "There is no prompt"),
        ([], b" \n\t\n", "There is no prompt"),
        (["ask", ""], b"", "There is no prompt"),
        (["ask", "describe"], b"caf\xe9 \xff\x00", "not UTF-8: byte 0xe9 at position 3"),
        (["ask"], b"\xed\xa0\xbd", "not UTF-8: byte 0xed at position 0"),
        (["ask"], b"\xff\xfea", "not UTF-16-LE: byte 0x61 at position 2"),
        (["ask", b"caf\xe9"], b"", "An argument is not UTF-8: byte 0xe9 at position 3"),
        (["ask", "-5 + 3"], b"", "needs `--` before it"),
        (["ask", "hi", "-o", "seed"], b"", "-o takes a name and a value"),
        (["ask", "--resume", RUN, "words"], b"", "--resume takes no prompt"),
        (["ask", "-c", "--temporary", "hi"], b"", "of its own"),
        (["nonsense", "--nonsense"], b"", "No such option"),
        (["history", "rm", "abcd"], b"", "needs -y"),
        (["chat"], b"", "needs a terminal"),
    ],
)
async def test_wrong_use_is_one_line_and_code_2_and_nothing_is_sent(
    server: FakeServer, hobnob: Cli, arguments: list[str | bytes], stdin: bytes, words: str
) -> None:
    result = await hobnob.run(*arguments, stdin=stdin)
    assert (result.code, result.out) == (Exit.USAGE, b"")
    assert words in result.err and result.err.count("\n") == 1
    assert server.requests == []


async def test_random_bytes_on_stdin_are_refused(server: FakeServer, hobnob: Cli) -> None:
    result = await hobnob.run("ask", "x", stdin=bytes(range(256)) * 400)
    assert (result.code, result.err.count("\n"), server.requests) == (2, 1, [])


async def test_options_travel_as_json_values(server: FakeServer, hobnob: Cli) -> None:
    options = ["-o", "temperature", "0.5", "-o", "seed=7", "-o", "stop", "12", "-o", "stop", "END"]
    options += ["--option", "ignore_eos", "true", "-o", "logit_bias", '{"5": -1}']
    options += ["--max-tokens", "40"]
    await hobnob.run("ask", *options, "-s", "Be brief.", "hi")
    assert server.asked("POST", MESSAGES)[0].json == {
        "text": "hi",
        "system": "Be brief.",
        "options": {
            "temperature": 0.5,
            "seed": 7,
            "stop": ["12", "END"],
            "ignore_eos": True,
            "logit_bias": {"5": -1},
            "max_tokens": 40,
        },
    }


async def test_continue_goes_on_with_the_newest_conversation(
    server: FakeServer, hobnob: Cli
) -> None:
    assert (await hobnob.run("-c", "hi")).code == Exit.NOT_FOUND
    server.conversations = [{"id": "newest00"}, {"id": "older000"}]
    result = await hobnob.run("ask", "-c", "-s", "Be brief.", "hi")
    assert result.code == 0
    assert server.asked("PATCH", "/conversations/newest00")[0].json == {"system": "Be brief."}
    assert server.asked("POST", "/conversations/newest00/messages")[0].json == {
        "text": "hi",
        "options": {},
    }
    await hobnob.run("ask", "--conversation", "olde", "hi")
    assert server.asked("POST", "/conversations/older000/messages")


async def test_another_model_than_the_running_one_is_refused(
    server: FakeServer, hobnob: Cli
) -> None:
    result = await hobnob.run("ask", "-m", "other", "hi")
    assert (result.code, sent(server)) == (Exit.MODEL, [])
    assert (await hobnob.run("ask", "-m", "fake-model", "hi")).code == 0
    assert (await hobnob.run("ask", "-m", "/models/fake.gguf", "hi")).code == 0


async def test_messages_left_out_of_the_prompt_are_said_on_stderr(
    server: FakeServer, hobnob: Cli
) -> None:
    server.events[0] = Event(1, wire.Context(100, 128, 3, left_out=["a", "b"]))
    result = await hobnob.run("ask", "hi")
    assert result.out == b"Hello world.\n" and "2 messages were left out" in result.err
    assert (await hobnob.run("ask", "-q", "hi")).err == ""


# ---- how it ends ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (refusal(401, "unauthorized"), Exit.KEY),
        (refusal(400, "context_length_exceeded"), Exit.USAGE),
        (refusal(413, "body_too_large"), Exit.USAGE),
        (refusal(404, "model_not_found"), Exit.MODEL),
        (refusal(503, "model_unavailable"), Exit.MODEL),
        (refusal(404, "not_found"), Exit.NOT_FOUND),
        (refusal(507, "not_saved"), Exit.OUTPUT),
        (refusal(500, "internal"), Exit.INTERNAL),
        (b"SSH-2.0-OpenSSH_9\r\n", Exit.UNREACHABLE),
    ],
)
async def test_a_refused_question_has_its_own_code_and_an_empty_stdout(
    server: FakeServer, hobnob: Cli, answer: bytes, code: Exit
) -> None:
    server.scripts[MESSAGES] = [says(answer)] * 1000
    result = await hobnob.run("ask", "hi")
    assert (result.code, result.out) == (code, b"") and result.err.startswith("hobnob: ")


async def test_json_is_json_when_the_question_is_refused(server: FakeServer, hobnob: Cli) -> None:
    server.scripts[MESSAGES] = [says(refusal(404, "model_not_found", "No such model."))]
    result = await hobnob.run("ask", "hi", "--json")
    reply = json.loads(result.out)
    assert (result.code, reply["status"], reply["text"]) == (Exit.MODEL, "failed", "")
    assert reply["error"] == {"code": "model_not_found", "message": "No such model."}


@pytest.mark.parametrize("arguments", [["ask"], ["ask", "-5"], ["history", "show", "x"]])
async def test_json_is_json_even_when_nothing_was_asked(
    server: FakeServer, hobnob: Cli, arguments: list[str]
) -> None:
    server.scripts["/conversations/x/messages"] = [says(refusal(404, "not_found"))]
    result = await hobnob.run(*arguments, "--json")
    answer = json.loads(result.out)
    assert result.code in (2, 3) and answer["error"]["code"]
    assert (answer.get("text"), answer.get("status")) == (
        ("", "failed") if arguments[0] == "ask" else (None, None)
    )


@pytest.mark.parametrize(
    ("status", "stop", "arguments", "code", "words"),
    [
        (wire.Status.LENGTH, {}, [], Exit.OK, "cut"),
        (wire.Status.LENGTH, {}, ["--fail-on-truncation"], Exit.TRUNCATED, "cut"),
        (wire.Status.CANCELLED, {}, [], Exit.CANCELLED, "cancelled"),
        (wire.Status.REFUSED, {"error": Failure("refused", "Not that.")}, [], Exit.REFUSED, "Not"),
        (wire.Status.FAILED, {"error": Failure("engine_failed", "Boom.")}, [], Exit.INTERNAL, "Bo"),
    ],
)
async def test_how_a_reply_ended_is_told_by_code_and_stderr(
    server: FakeServer,
    hobnob: Cli,
    status: str,
    stop: dict[str, Failure],
    arguments: list[str],
    code: Exit,
    words: str,
) -> None:
    server.events = reply_events("part", status=status, **stop)
    result = await hobnob.run("ask", "hi", *arguments)
    assert (result.code, result.out) == (code, b"part\n") and words in result.err


async def test_an_empty_reply_prints_nothing(server: FakeServer, hobnob: Cli) -> None:
    server.events = reply_events()
    result = await hobnob.run("ask", "hi")
    assert (result.code, result.out) == (0, b"")


async def test_the_json_of_a_reply_has_these_names(server: FakeServer, hobnob: Cli) -> None:
    server.events = reply_events("a\x1b[2J\u2028", "\ud83d b")
    result = await hobnob.run("ask", "hi", "--json", env={"FORCE_COLOR": "1", "COLUMNS": "20"})
    assert result.out.count(b"\n") == 1 and result.out.isascii()
    reply = json.loads(result.out)
    assert reply.pop("usage")["completion_tokens"] == 2
    assert "token_p50_s" in reply.pop("timings")
    assert reply == {
        "run": RUN,
        "conversation": CONVERSATION,
        "message": REPLY,
        "model": "fake-model",
        "seed": 7,
        "text": "a\x1b[2J\u2028\ud83d b",
        "status": "completed",
        "stop_reason": "end_turn",
        "left_out": [],
        "error": None,
    }


# ---- exactly once -----------------------------------------------------------------------------


async def test_a_reply_cut_many_times_is_printed_once(server: FakeServer, hobnob: Cli) -> None:
    server.events = reply_events(*"The quick brown 狐 jumps. ".split(" "))
    whole = server.stream_from(0)
    server.scripts[EVENTS] = [says(whole[:n]) for n in range(200, len(whole), 150)]
    result = await hobnob.run("ask", "hi")
    assert (result.code, result.out) == (0, "Thequickbrown狐jumps.\n".encode())
    assert "connection was lost" in result.err or "ended early" in result.err


async def test_a_killed_client_can_be_resumed_to_the_byte(
    server: FakeServer, hobnob: Cli, tmp_path: Path
) -> None:
    server.events = reply_events("Héllo", " wörld.")
    server.scripts[EVENTS] = [begins(server, 4)]
    process = await hobnob.start("ask", "hi")
    await shows(process, "Héllo".encode())
    notes = tmp_path / "home" / "state" / "printed"
    while not [one for one in notes.glob("*") if int(one.read_text() or 0) == 6]:
        await asyncio.sleep(0.01)
    process.kill()
    await hobnob.finish(process)
    assert not server.cancelled

    exact = await hobnob.run("ask", "--resume", RUN, "--printed", "3")
    assert exact.out == "llo wörld.\n".encode()
    server.scripts[EVENTS] = [begins(server, 4)]
    process = await hobnob.start("ask", "hi")
    await shows(process, "Héllo".encode())
    process.kill()
    await hobnob.finish(process)
    notes.mkdir(exist_ok=True)
    (notes / RUN).write_text("00006")
    rest = await hobnob.run("ask", "--resume", RUN)
    assert (rest.code, rest.out) == (0, " wörld.\n".encode())
    assert list(notes.iterdir()) == [], "a reply that is out leaves no note"
    assert len(sent(server)) == 2


async def test_what_was_printed_to_the_end_is_not_printed_again(hobnob: Cli) -> None:
    size = len(b"Hello world.\n")
    assert (await hobnob.run("ask", "--resume", RUN, "--printed", str(size))).out == b""
    assert (await hobnob.run("ask", "--resume", RUN, "--printed", str(size - 1))).out == b"\n"


async def test_a_run_that_does_not_exist_cannot_be_resumed(hobnob: Cli) -> None:
    assert (await hobnob.run("ask", "--resume", "nothing")).code == Exit.NOT_FOUND


# ---- signals and closed outputs ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "code", "cancelled"),
    [
        (signal.SIGINT, Exit.INTERRUPTED, True),
        (signal.SIGTERM, Exit.TERMINATED, True),
        (signal.SIGHUP, -signal.SIGHUP, False),
        (signal.SIGKILL, -signal.SIGKILL, False),
    ],
)
async def test_only_a_wish_to_stop_cancels_the_run(
    server: FakeServer, hobnob: Cli, number: signal.Signals, code: int, cancelled: bool
) -> None:
    server.scripts[EVENTS] = [begins(server)]
    process = await hobnob.start("ask", "hi")
    await shows(process, b"Hello world.")
    process.send_signal(number)
    result = await hobnob.finish(process)
    assert (result.code, server.cancelled) == (code, cancelled)
    assert "Traceback" not in result.err and result.out == b""


async def test_hanging_up_on_a_temporary_conversation_ends_and_deletes_it(
    server: FakeServer, hobnob: Cli
) -> None:
    server.scripts[EVENTS] = [begins(server)]
    process = await hobnob.start("ask", "hi", "--temporary")
    await shows(process, b"Hello world.")
    process.send_signal(signal.SIGHUP)
    result = await hobnob.finish(process)
    assert (result.code, server.cancelled) == (-signal.SIGHUP, True)
    assert server.deleted == [CONVERSATION] and result.err == ""


async def test_a_question_interrupted_before_it_is_accepted_is_cancelled_too(
    server: FakeServer, hobnob: Cli
) -> None:
    posted, interrupted = asyncio.Event(), asyncio.Event()

    async def late(request: Request, writer: asyncio.StreamWriter) -> None:
        posted.set()
        await interrupted.wait()
        await server._answer(request, writer)

    server.scripts[MESSAGES] = [late]
    process = await hobnob.start("ask", "hi")
    await posted.wait()
    process.send_signal(signal.SIGINT)
    await asyncio.sleep(0.1)
    interrupted.set()
    result = await hobnob.finish(process)
    assert (result.code, server.cancelled, result.err) == (Exit.INTERRUPTED, True, "")


async def test_an_interrupt_while_nothing_answers_still_ends(
    server: FakeServer, hobnob: Cli
) -> None:
    asked = asyncio.Event()

    async def silent(request: Request, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await hangs(request, writer)

    server.scripts[MESSAGES] = [silent]
    process = await hobnob.start("ask", "hi")
    await asked.wait()
    process.send_signal(signal.SIGINT)
    await asyncio.sleep(SAME_SIGNAL_SECONDS + 0.1)
    process.send_signal(signal.SIGINT)  # twice: now at once
    result = await hobnob.finish(process)
    assert (result.code, result.err) == (-signal.SIGINT, "")


async def test_an_interrupt_between_two_connections_cancels_and_ends(
    server: FakeServer, hobnob: Cli
) -> None:
    first = body_of(server.events[:4])
    server.scripts[EVENTS] = [streams(first, complete=False), *[hangs_up] * 50]
    process = await hobnob.start("ask", "hi")
    await shows(process, b"Hello")
    while len(server.resumed_from) < 3:
        await asyncio.sleep(0.01)
    process.send_signal(signal.SIGINT)
    result = await hobnob.finish(process)
    assert (result.code, server.cancelled) == (Exit.INTERRUPTED, True)
    assert "Traceback" not in result.err


async def test_interrupted_json_is_still_json(server: FakeServer, hobnob: Cli) -> None:
    server.scripts[EVENTS] = [begins(server)]
    process = await hobnob.start("ask", "hi", "--json")
    while not server.resumed_from:
        await asyncio.sleep(0.01)
    process.send_signal(signal.SIGINT)
    result = await hobnob.finish(process)
    assert result.code == Exit.INTERRUPTED
    assert json.loads(result.out)["status"] == "cancelled"


async def test_a_reader_that_leaves_cancels_the_run_without_a_word(
    server: FakeServer, hobnob: Cli
) -> None:
    async def endless(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        for n in range(1, 1_000_000):
            event = Event(n, wire.BlockDelta(0, "x" * 100))
            writer.write(chunk(wire.sse(event).encode()))
            await writer.drain()

    server.scripts[EVENTS] = [endless]
    read, write = os.pipe()
    process = await hobnob.start("ask", "hi", stdout=write)
    os.close(write)
    await asyncio.to_thread(os.read, read, 10)
    os.close(read)
    result = await hobnob.finish(process)
    assert (result.code, result.err, server.cancelled) == (Exit.CLOSED_OUTPUT, "", True)


async def test_a_slow_reader_can_be_interrupted(server: FakeServer, hobnob: Cli) -> None:
    server.events = reply_events(*["x" * 10_000] * 40)
    read, write = os.pipe()
    process = await hobnob.start("ask", "hi", stdout=write)
    os.close(write)
    while not server.resumed_from:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)  # the pipe is full by now, and nobody reads it
    process.send_signal(signal.SIGINT)
    result = await hobnob.finish(process)
    os.close(read)
    assert (result.code, server.cancelled) == (Exit.INTERRUPTED, True)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["--help"], ["key"]])
def test_a_full_disk_is_one_line_for_the_short_commands_too(
    arguments: list[str], tmp_path: Path
) -> None:
    environment = {**os.environ, "HOBNOB_HOME": str(tmp_path), "HOBNOB_KEY": "abcdefghij"}
    environment.pop("PYTHONUNBUFFERED", None)  # what could not be written is tried again at the end
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, env=environment
        )
    assert done.returncode == 74
    assert done.stderr.decode().count("\n") == 1 and b"Traceback" not in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize(
    "arguments",
    [["ask", "hi"], ["ask", "hi", "--json"], ["history", "list", "--json"], ["--version"]],
)
async def test_a_full_disk_is_an_error(hobnob: Cli, arguments: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        result = await hobnob.run(*arguments, stdout=full)
    assert result.code == Exit.OUTPUT and "No space left" in result.err


async def test_a_question_without_stdout_is_not_asked(server: FakeServer, hobnob: Cli) -> None:
    line = 'exec "$@" >&-'
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", line, "sh", *COMMAND, "ask", "hi", env=hobnob.env, stdin=subprocess.DEVNULL
    )
    assert await process.wait() == Exit.CLOSED_OUTPUT
    assert server.requests == []


# ---- terminals and locales --------------------------------------------------------------------

HOSTILE = "A\x1b]52;c;cHduZWQ=\x1b\\B\x1b]0;owned\x07C\x1b[2J\x1b[31mD\x9d0;x\x9cE\rF\x08G"


async def in_terminal(hobnob: Cli, *arguments: str) -> bytes:
    """What reaches a terminal that the command writes to."""
    ours, theirs = os.openpty()
    process = await hobnob.start(
        *arguments, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL, env={"TERM": "dumb"}
    )
    os.close(theirs)
    await hobnob.finish(process)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    return shown.replace(b"\r\n", b"\n")


@pytest.mark.parametrize("piece", [1, 2, 5, 1000])
async def test_a_reply_cannot_drive_the_terminal(
    server: FakeServer, hobnob: Cli, piece: int
) -> None:
    server.events = reply_events(*(HOSTILE[i : i + piece] for i in range(0, len(HOSTILE), piece)))
    shown = (await in_terminal(hobnob, "ask", "hi")).decode()
    assert not [
        char for char in shown if char != "\n" and ord(char) in (*range(32), 127, *range(128, 160))
    ]
    assert [char for char in shown if char in "ABCDEFG"] == list("ABCDEFG")
    assert shown.endswith("G\n")


async def test_titles_errors_and_names_cannot_either(server: FakeServer, hobnob: Cli) -> None:
    server.conversations = [{"id": "abcd1234", "title": HOSTILE, "updated_at": 1}]
    server.messages = [{"id": "m", "role": HOSTILE, "text": HOSTILE, "status": "completed"}]
    server.scripts["/search"] = [says(refusal(400, "invalid_request", HOSTILE))]
    for arguments in (["history", "list"], ["history", "show", "abcd"], ["history", "search", "x"]):
        shown = await in_terminal(hobnob, *arguments)
        assert b"A" in shown and not set(shown) & {*range(10), *range(11, 32), 127}


async def test_a_pipe_gets_the_bytes_of_the_reply(server: FakeServer, hobnob: Cli) -> None:
    server.events = reply_events(HOSTILE)
    assert (await hobnob.run("ask", "hi")).out == HOSTILE.encode() + b"\n"


@pytest.mark.parametrize(
    "env",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"PYTHONIOENCODING": "latin-1"},
        {"PYTHONIOENCODING": "utf-16"},
    ],
)
async def test_what_the_locale_cannot_write_is_replaced(
    server: FakeServer, hobnob: Cli, env: dict[str, str]
) -> None:
    server.events = reply_events("smile ", "😀", " \ud83d done")
    result = await hobnob.run("ask", "hi", env=env)
    assert (result.code, result.err) == (0, "")
    encoding = env.get("PYTHONIOENCODING", "ascii")
    assert result.out.decode(encoding).startswith("smile ")
    for arguments in (["ask", "--help"], ["nonsense", "--😀"]):
        assert "Traceback" not in (await hobnob.run(*arguments, env=env)).err


# ---- the other commands -----------------------------------------------------------------------


async def test_history_speaks_json(server: FakeServer, hobnob: Cli) -> None:
    server.conversations = [{"id": "abcd1234", "title": "t", "updated_at": 5}]
    listed = json.loads((await hobnob.run("history", "list", "--json")).out)
    assert (listed[0]["id"], listed[0]["title"], listed[0]["updated_at"]) == ("abcd1234", "t", 5)
    shown = json.loads((await hobnob.run("history", "show", "abcd", "--json")).out)
    assert shown["id"] == "abcd1234" and shown["messages"][0]["text"] == "Hello world."
    (hit,) = json.loads((await hobnob.run("history", "search", "a b", "--json")).out)
    assert (hit["message"], hit["snippet"]) == (REPLY, "a hit")
    assert server.asked("GET", "/search")[0].query["q"] == "a b"


async def test_deleting_looks_all_up_before_it_deletes_any(server: FakeServer, hobnob: Cli) -> None:
    server.conversations = [{"id": "abcd1234"}]
    server.scripts["/conversations/nope"] = [says(refusal(404, "not_found"))]
    assert (await hobnob.run("history", "rm", "-y", "abcd", "nope")).code == Exit.NOT_FOUND
    assert server.deleted == []
    assert (await hobnob.run("history", "rm", "-y", "abcd")).code == 0
    assert server.deleted == ["abcd1234"]


async def test_status_and_models_speak_json(hobnob: Cli) -> None:
    status = json.loads((await hobnob.run("status", "--json")).out)
    assert status["model"]["id"] == "fake-model"
    assert json.loads((await hobnob.run("models", "list", "--json")).out)[0]["id"] == "fake-model"
    assert b"fake-model" in (await hobnob.run("status")).out


async def test_status_tells_how_many_guesses_were_right_once_there_are_some(
    hobnob: Cli, server: FakeServer
) -> None:
    for drafted, accepted, line in ((0, 0, b""), (200, 150, b"150 of 200 tokens right (75%)")):
        server.status = {"speculation": {"drafted": drafted, "accepted": accepted}}
        out = (await hobnob.run("status")).out
        assert (b"guesses" in out) == bool(line)
        assert line in out


async def test_status_and_key_start_no_server(tmp_path: Path) -> None:
    alone = Cli(tmp_path / "home")
    result = await alone.run("status", "--json")
    assert result.code == Exit.UNREACHABLE
    assert json.loads(result.out)["error"]["code"] == "not_running"
    assert (await alone.run("key")).code == Exit.KEY
    assert (await alone.run("stop")).code == 0
    assert not (tmp_path / "home").exists()


async def test_key_prints_the_key_and_nothing_else(tmp_path: Path) -> None:
    alone = Cli(tmp_path / "home")
    (tmp_path / "home" / "data").mkdir(parents=True)
    (tmp_path / "home" / "data" / "key").write_text("secret-key\n")
    for key in ("", "of-another-machine"):
        assert (await alone.run("key", env={"HOBNOB_KEY": key})).out == b"secret-key\n"
    result = await alone.run("key")
    assert (result.code, result.out, result.err) == (0, b"secret-key\n", "")


async def test_a_key_that_cannot_be_read_is_a_matter_of_permissions(tmp_path: Path) -> None:
    (tmp_path / "home" / "data" / "key").mkdir(parents=True)
    result = await Cli(tmp_path / "home").run("key")
    assert (result.code, result.out) == (Exit.CONFIG, b"")
    assert "cannot be read" in result.err


async def test_a_home_that_cannot_be_made_is_one_sentence_for_every_command(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    alone = Cli(tmp_path / "file" / "home")
    for words in (
        ["ask", "hi"],
        ["history", "list"],
        ["models", "list"],
        ["history", "rm", "-y", "x"],
    ):
        result = await alone.run(*words)
        assert (result.code, result.out) == (Exit.CONFIG, b"")
        assert re.fullmatch(r"hobnob: The folder \S+ cannot be made: [^\n]+\n", result.err)


async def test_an_address_may_come_before_the_command(server: FakeServer, hobnob: Cli) -> None:
    del hobnob.env["HOBNOB_URL"]
    assert (await hobnob.run("status", "--url", server.url)).code == 0
    assert (await hobnob.run("--url", server.url, "hi")).out == b"Hello world.\n"


async def test_the_key_is_never_shown(server: FakeServer, tmp_path: Path) -> None:
    wrong = Cli(tmp_path / "home", server.url, key="secret-of-mine")
    result = await wrong.run("ask", "hi")
    assert result.code == Exit.KEY and "secret-of-mine" not in result.err


async def test_version_and_help(hobnob: Cli) -> None:
    assert (await hobnob.run("--version")).out == f"hobnob {__version__}\n".encode()
    for arguments in (["-h"], ["ask", "-h"], ["history", "--help"], ["serve", "-h"]):
        result = await hobnob.run(*arguments)
        assert result.code == 0 and b"Usage: hobnob" in result.out and b"\x1b" not in result.out


# ---- reading the arguments --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "rewritten"),
    [
        ([], ["ask", "--bare"]),
        (["hi"], ["ask", "--bare", "hi"]),
        (["history", "list"], ["history", "list"]),
        (["ask", "-o", "seed", "1"], ["ask", "-o", "seed=1"]),
        (["ask", "-o", "seed=1", "x"], ["ask", "-o", "seed=1", "x"]),
        (["ask", "-o"], ["ask", "-o"]),
        (["--seed", "1", "hi"], ["ask", "--bare", "-o", "seed=1", "hi"]),
        (["ask", "--max-tokens=5", "x"], ["ask", "-o", "max_tokens=5", "x"]),
        (["ask", "x", "--temperature"], ["ask", "x", "-o"]),
        (["ask", "--", "--seed", "1"], ["ask", "--", "--seed", "1"]),
        (["serve", "--seed", "1"], ["serve", "--seed", "1"]),
        (["ask", "--", "-o", "seed", "1"], ["ask", "--", "-o", "seed", "1"]),
        (["--help"], ["--help"]),
        (["history", "export", "-o", "out", "abcd"], ["history", "export", "-o", "out", "abcd"]),
    ],
)
def test_a_bare_prompt_becomes_ask_and_option_pairs_are_joined(
    arguments: list[str], rewritten: list[str]
) -> None:
    assert cli_arguments.rewrite(arguments) == rewritten


def test_every_command_is_known_as_one() -> None:
    commands = {one.name or one.callback.__name__ for one in cli.app.registered_commands}  # type: ignore[union-attr]
    groups = {one.name for one in cli.app.registered_groups}
    assert commands | groups == cli_arguments.VERBS
    under = [one for g in cli.app.registered_groups for one in g.typer_instance.registered_commands]  # type: ignore[union-attr]
    assert {one.name or one.callback.__name__ for one in under} == cli_arguments.SUBVERBS  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["history", "models", "roles"])
def test_a_group_without_a_command_prints_its_help_line_by_line(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([name, "--help"]) == Exit.OK
    help = capfd.readouterr().out
    code = cli.run([name])
    assert (code, *capfd.readouterr()) == (Exit.USAGE, "", help)


@pytest.mark.parametrize("arguments", [["--help"], ["ask", "--help"], ["--version"]])
def test_the_command_line_itself_imports_nothing_heavy(
    arguments: list[str], hobnob_home: Path
) -> None:
    heavy = "textual httpx pydantic fastapi numpy llama_cpp rich asyncio".split()
    code = (
        "import sys; from hobnob import cli\n"
        f"cli.run({arguments!r})\n"
        f"print([m for m in {heavy!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["histroy"], "history"),
        (["Models"], "models"),
        (["histroy", "list"], "history"),
        (["hisory", "show", "abcd"], "history"),
    ],
)
def test_a_mistyped_command_is_no_question(
    typed: list[str], meant: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.isatty", lambda descriptor: True)
    assert cli.run(typed) == Exit.USAGE
    assert f"Did you mean `hobnob {meant}`" in " ".join(capfd.readouterr().err.split())


@pytest.mark.parametrize(
    ("arguments", "terminal"),
    [(["histroy"], False), (["histroy", "of", "Rome"], True), (["Hello"], True)],
)
def test_what_may_be_a_question_is_one(
    arguments: list[str], terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.isatty", lambda descriptor: terminal)
    cli_arguments.check_verb(arguments)


def test_a_model_that_cannot_be_loaded_is_marked_and_says_why() -> None:
    good = verbs._model_line({"id": "a", "size": 10**9, "path": "/a", "loaded": True})
    bad = verbs._model_line({"id": "b", "size": 5, "path": "/b", "problem": "It is cut off."})
    assert good.startswith("* a") and "cannot" not in good
    assert bad.startswith("! b") and bad.endswith("(cannot be loaded: It is cut off.)")


@pytest.mark.parametrize("id", ["", "..", "../runs/x", "a/b"])
async def test_an_id_that_cannot_be_one_is_not_found(hobnob: Cli, id: str) -> None:
    done = await hobnob.run("history", "show", "--", id)
    assert done.code == Exit.NOT_FOUND
    assert "There is no conversation" in done.err and "Not Found" not in done.err
