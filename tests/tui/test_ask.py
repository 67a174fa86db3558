"""One question in this process: what is sent, printed and left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from fake_server import (
    CONVERSATION,
    KEY,
    RUN,
    STREAM_HEAD,
    Act,
    FakeServer,
    body_of,
    chunk,
    http,
    refusal,
    reply_events,
    says,
    streams,
)

from hobnob import cli
from hobnob.exits import Exit
from hobnob.launch import Target
from hobnob.paths import Paths
from hobnob.server import wire
from hobnob.server.wire import Event
from hobnob.tui.ask import Question, _Ask
from hobnob.tui.notice import ClientError

EVENTS = f"/runs/{RUN}/events"
MESSAGES = "/conversations/new/messages"
DELETION = f"/conversations/{CONVERSATION}"


async def ask(server: FakeServer, home: Path, **fields: Any) -> Exit:
    target = Target(Paths.home({"HOBNOB_HOME": str(home)}), server.url, KEY)
    return await _Ask(target, Question(**({"prompt": "hi"} | fields))).run()


def signals(number: signal.Signals, server: FakeServer, events: int = 5) -> Act:
    """Streams the first events, then sends this process a signal and streams nothing more."""

    async def act(request: Any, writer: Any) -> None:
        body = "".join(wire.sse(event) for event in server.events[:events])
        writer.write(STREAM_HEAD + chunk(body.encode()))
        await writer.drain()
        os.kill(os.getpid(), number)
        await asyncio.Event().wait()

    return act


async def test_thoughts_are_no_part_of_the_reply(
    server: FakeServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    begin, start, *rest = [event.payload for event in reply_events("42", ".")]
    thoughts = [wire.BlockStart(7, "reasoning"), wire.BlockDelta(7, "hm"), wire.BlockStop(7)]
    payloads: list[wire.Payload] = [begin, start, *thoughts, *rest]
    server.events = [Event(number, one) for number, one in enumerate(payloads, 1)]
    for form in ({}, {"render": True}, {"stream": False}):
        assert await ask(server, tmp_path, **form) is Exit.OK
        assert capfd.readouterr().out == "42.\n"


# ---- temporary --------------------------------------------------------------------------------


async def test_a_temporary_conversation_is_named_so_and_deleted_after_its_reply(
    server: FakeServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert await ask(server, tmp_path, temporary=True) is Exit.OK
    assert capfd.readouterr().out == "Hello world.\n"
    assert server.asked("POST", MESSAGES)[0].json["title"] == "(temporary)"
    assert server.asked("POST", MESSAGES)[0].json["temporary"] is True
    assert server.deleted == [CONVERSATION]
    assert [one.method for one in server.requests][-1] == "DELETE"


async def test_any_other_conversation_is_kept_and_named_by_the_server(
    server: FakeServer, tmp_path: Path
) -> None:
    assert await ask(server, tmp_path) is Exit.OK
    assert "title" not in server.asked("POST", MESSAGES)[0].json and server.deleted == []


@pytest.mark.parametrize("status", [wire.Status.FAILED, wire.Status.CANCELLED, wire.Status.LENGTH])
async def test_it_is_deleted_however_the_reply_ended(
    server: FakeServer, tmp_path: Path, status: str
) -> None:
    server.events = reply_events("part", status=status)
    code = await ask(server, tmp_path, temporary=True)
    assert server.deleted == [CONVERSATION]
    assert (code is Exit.OK) == (status == wire.Status.LENGTH)


async def test_what_was_never_accepted_needs_no_deletion(
    server: FakeServer, tmp_path: Path
) -> None:
    server.scripts[MESSAGES] = [says(refusal(400, "context_length_exceeded"))]
    assert await ask(server, tmp_path, temporary=True) is Exit.USAGE
    assert server.deleted == [] and not server.asked("DELETE", DELETION)


async def test_a_conversation_that_stays_is_said_with_the_way_to_delete_it(
    server: FakeServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    server.scripts[DELETION] = [says(refusal(500, "internal"))]
    assert await ask(server, tmp_path, temporary=True) is Exit.UNREACHABLE
    out, err = capfd.readouterr()
    assert out == "Hello world.\n" and f"`hobnob history rm {CONVERSATION}`" in err


async def test_one_that_somebody_else_has_deleted_is_gone_as_well(
    server: FakeServer, tmp_path: Path
) -> None:
    server.scripts[DELETION] = [says(refusal(404, "not_found"))]
    assert await ask(server, tmp_path, temporary=True) is Exit.OK


async def test_a_lost_server_is_not_asked_to_delete_and_resuming_is_not_offered(
    server: FakeServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def lost(*args: Any, **fields: Any) -> None:
        raise ClientError("unreachable", "The server cannot be reached.")

    monkeypatch.setattr(_Ask, "_follow", lost)
    assert await ask(server, tmp_path, temporary=True) is Exit.UNREACHABLE
    err = capfd.readouterr().err
    assert "history rm" in err and "--resume" not in err
    assert not server.asked("DELETE", DELETION)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_an_interrupted_one_is_cancelled_and_deleted(
    server: FakeServer, tmp_path: Path, number: signal.Signals
) -> None:
    server.scripts[EVENTS] = [signals(number, server)]
    code = await ask(server, tmp_path, temporary=True)
    assert code in (Exit.INTERRUPTED, Exit.TERMINATED)
    assert server.cancelled and server.deleted == [CONVERSATION]


# ---- events -----------------------------------------------------------------------------------


def lines(text: str) -> list[dict[str, Any]]:
    assert text.isascii() and text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


async def test_each_event_is_a_line_of_json_with_its_type_number_and_fields(
    server: FakeServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    server.events = reply_events("a\x1b[2J\u2028", "\ud83d b\n")
    server.events.insert(1, Event(None, wire.Queued(2, 1.5)))
    server.scripts[EVENTS] = [streams(body_of(server.events))]
    assert await ask(server, tmp_path, events=True) is Exit.OK
    out, err = capfd.readouterr()
    printed = lines(out)
    expected = [
        {"type": one.payload.TYPE, "seq": one.seq, **asdict(one.payload)} for one in server.events
    ]
    assert printed == expected
    assert printed[1] == {"type": "queued", "seq": None, "position": 2, "eta_s": 1.5}
    assert printed[-1]["status"] == "completed" and err == ""


async def test_events_come_once_over_a_cut_connection(
    server: FakeServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = server.stream_from(0)
    server.scripts[EVENTS] = [says(whole[:n]) for n in range(150, len(whole), 150)]
    assert await ask(server, tmp_path, events=True) is Exit.OK
    assert [one["seq"] for one in lines(capfd.readouterr().out)] == list(range(1, 9))


async def test_the_last_line_says_what_failed_before_there_was_a_reply(
    server: FakeServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    server.scripts[MESSAGES] = [says(refusal(404, "model_not_found", "No such model."))]
    assert await ask(server, tmp_path, events=True) is Exit.MODEL
    (only,) = lines(capfd.readouterr().out)
    assert only == {
        "type": "error",
        "seq": None,
        "code": "model_not_found",
        "message": "No such model.",
    }


async def test_interrupted_events_still_end_with_the_end_of_the_reply(
    server: FakeServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    server.scripts[EVENTS] = [signals(signal.SIGINT, server)]
    assert await ask(server, tmp_path, events=True) is Exit.INTERRUPTED
    printed = lines(capfd.readouterr().out)
    assert [one["seq"] for one in printed] == list(range(1, 9))
    assert server.cancelled and printed[-1]["type"] == "message_stop"


async def test_an_interrupt_that_reaches_nobody_is_the_last_line(
    server: FakeServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    server.scripts[EVENTS] = [signals(signal.SIGINT, server)]
    server.scripts[f"/runs/{RUN}/cancel"] = [says(refusal(500, "internal"))]
    assert await ask(server, tmp_path, events=True) is Exit.INTERRUPTED
    assert lines(capfd.readouterr().out)[-1]["code"] == "cancelled"


# ---- code -------------------------------------------------------------------------------------

PROSE = "Do this:\n\n```py\nx = 1\n\nprint(x)\n```\n\nor\n\n- this\n  ~~~\n  a\tb\x1b\n  ~~~\nEnd"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_only_the_contents_of_code_blocks_are_printed(
    server: FakeServer,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    size: int,
    stream: bool,
) -> None:
    server.events = reply_events(*(PROSE[i : i + size] for i in range(0, len(PROSE), size)))
    assert await ask(server, tmp_path, code=True, stream=stream) is Exit.OK
    assert capfd.readouterr() == ("x = 1\n\nprint(x)\n\na\tb\x1b\n", "")


async def test_a_reply_without_code_prints_nothing_and_says_so(
    server: FakeServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert await ask(server, tmp_path, code=True) is Exit.OK
    assert capfd.readouterr() == ("", "hobnob: The reply has no code block\n")
    assert await ask(server, tmp_path, code=True, quiet=True) is Exit.OK
    assert capfd.readouterr() == ("", "")


async def test_code_that_was_cut_is_printed_as_far_as_it_is(
    server: FakeServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    server.events = reply_events("```\nx = 1\ny =", status=wire.Status.LENGTH)
    assert await ask(server, tmp_path, code=True, fail_on_truncation=True) is Exit.TRUNCATED
    assert capfd.readouterr().out == "x = 1\ny =\n"


# ---- counting ---------------------------------------------------------------------------------


async def count(server: FakeServer, *arguments: str) -> int:
    environment = {"HOBNOB_URL": server.url, "HOBNOB_KEY": KEY}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.setattr("hobnob.tui.stdin.read_stdin", lambda waiting: None)
        return await asyncio.to_thread(cli.run, ["ask", "--count", *arguments])


def plans(*, left_out: int = 0) -> Act:
    found = {"prompt_tokens": 100, "n_ctx": 128, "included": 3, "left_out": ["m"] * left_out}
    return says(http(200, json.dumps(found).encode()))


async def test_counting_says_what_would_be_sent_and_sends_nothing(
    server: FakeServer, hobnob_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    server.scripts["/conversations/new/plan"] = [plans()]
    assert await count(server, "-o", "max_tokens", "5", "-s", "Be brief.", "hi", "there") == 0
    assert capfd.readouterr() == (
        "prompt    100 tokens in 3 messages\nwindow    128 tokens, 28 left for the reply\n",
        "",
    )
    (only,) = server.requests
    assert (only.path, only.json) == (
        "/conversations/new/plan",
        {"text": "hi there", "options": {"max_tokens": 5}, "system": "Be brief."},
    )


async def test_counting_on_in_a_conversation_says_what_would_be_left_out(
    server: FakeServer, hobnob_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    server.conversations = [{"id": "newest00"}]
    server.scripts["/conversations/newest00/plan"] = [plans(left_out=2), plans(left_out=1)]
    assert await count(server, "-c", "hi") == 0
    assert "left out  the oldest 2 messages\n" in capfd.readouterr().out
    assert await count(server, "--conversation", "newest00", "--json", "hi") == 0
    assert json.loads(capfd.readouterr().out) == {
        "prompt_tokens": 100,
        "n_ctx": 128,
        "included": 3,
        "left_out": ["m"],
    }


async def test_a_prompt_that_would_be_refused_is_refused(
    server: FakeServer, hobnob_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    refused = refusal(400, "context_length_exceeded", "The prompt has 200 tokens.")
    server.scripts["/conversations/new/plan"] = [says(refused)]
    assert await count(server, "hi") == Exit.USAGE
    assert "200 tokens" in capfd.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--count", "--code"],
        ["--count", "--events"],
        ["--count", "-c", "-s", "Be brief."],
        ["--json", "--events"],
        ["--code", "--json"],
        ["--events", "--no-stream"],
    ],
)
def test_forms_that_exclude_each_other_are_wrong_use(
    arguments: list[str], hobnob_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["ask", *arguments, "hi"]) == Exit.USAGE
    out, err = capfd.readouterr()
    assert err.count("\n") == 1
    if "--events" in arguments:
        (only,) = lines(out)
        assert (only["type"], only["code"]) == ("error", "usage")
