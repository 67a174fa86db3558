"""One question in this process: what is sent, printed and left behind."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
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
    chunk,
    refusal,
    reply_events,
    says,
)

from hobnob.exits import Exit
from hobnob.launch import Target
from hobnob.paths import Paths
from hobnob.server import wire
from hobnob.tui.ask import Question, _Ask
from hobnob.tui.notice import ClientError

EVENTS = f"/runs/{RUN}/events"
MESSAGES = "/conversations/new/messages"
DELETION = f"/conversations/{CONVERSATION}"


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    fake = FakeServer()
    async with fake.running():
        yield fake


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


# ---- temporary --------------------------------------------------------------------------------


async def test_a_temporary_conversation_is_named_so_and_deleted_after_its_reply(
    server: FakeServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert await ask(server, tmp_path, temporary=True) is Exit.OK
    assert capfd.readouterr().out == "Hello world.\n"
    assert server.asked("POST", MESSAGES)[0].json["title"] == "(temporary)"
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
