"""Holding a temporary conversation, before a server that does not make it easy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_server import (
    CONVERSATION,
    KEY,
    STREAM_HEAD,
    FakeServer,
    Request,
    chunk,
    hangs_up,
    refusal,
    says,
    streams,
)

from hobnob import launch
from hobnob.launch import Server, Target
from hobnob.paths import Paths
from hobnob.server import wire
from hobnob.server.wire import Event
from hobnob.tui import connection
from hobnob.tui.client import Client
from hobnob.tui.line import Line
from hobnob.tui.notice import ClientError
from hobnob.tui.temporary import Temporary, beside

HOLD = f"/conversations/{CONVERSATION}/hold"
STOPPING = wire.sse(Event(None, wire.StreamError("server_stopping", "It stops.")))
GONE = wire.sse(Event(None, wire.StreamError("not_found", "It is gone.")))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_DELAY_SECONDS", 0.01)
    monkeypatch.setattr(connection, "MAX_RETRY_AFTER_SECONDS", 0.02)


async def held(request: Request, writer: asyncio.StreamWriter) -> None:
    """As long as the client wants."""
    writer.write(STREAM_HEAD + chunk(b": ping\n"))
    await asyncio.Event().wait()


def client_of(server: FakeServer, tmp_path: Path) -> Client:
    return Client(Target(Paths.home({"HOBNOB_HOME": str(tmp_path)}), server.url, KEY))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def test_it_takes_hold_again_after_every_kind_of_outage(
    server: FakeServer, tmp_path: Path
) -> None:
    outages = [
        streams(b": ping\n", complete=False),
        streams(b": ping\n"),
        streams(STOPPING.encode()),
        hangs_up,
        says(refusal(503, "server_stopping", Retry_After="5")),
        says(refusal(500, "internal")),
    ]
    server.scripts[HOLD] = [*outages, held]
    async with client_of(server, tmp_path) as client:
        holding = asyncio.create_task(client.hold(CONVERSATION))
        await until(lambda: len(server.asked("GET", HOLD)) == len(outages) + 1)
        assert not holding.done()
        holding.cancel()


@pytest.mark.parametrize("says_so", [streams(GONE.encode()), says(refusal(404, "not_found"))])
async def test_it_ends_when_the_server_says_that_the_conversation_is_gone(
    server: FakeServer, tmp_path: Path, says_so: Callable[..., object]
) -> None:
    server.scripts[HOLD] = [hangs_up, says_so]
    async with client_of(server, tmp_path) as client, asyncio.timeout(10):
        with pytest.raises(ClientError) as raised:
            await client.hold(CONVERSATION)
    assert raised.value.code == "not_found"
    assert len(server.asked("GET", HOLD)) == 2


async def test_it_follows_a_local_server_that_was_started_again_and_starts_none_itself(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at(one: FakeServer) -> Server:
        return Server(1, one.host, one.port, one.url, "0", 1, 0, "instance")

    monkeypatch.setattr(launch, "still_serves", lambda *_: True)
    asked = iter([None, at(server)])
    last = at(server)
    monkeypatch.setattr(launch, "find", lambda paths: next(asked, last))
    first = FakeServer()
    async with first.running():
        monkeypatch.setattr(launch, "ensure", lambda *_, **__: at(first))
        first.scripts[HOLD] = [streams(b": ping\n", complete=False), hangs_up]
        server.scripts[HOLD] = [held]
        target = Target(Paths.home({"HOBNOB_HOME": str(tmp_path)}), None, KEY)
        async with Client(target) as client:

            def fails(*_: object, **__: object) -> Server:
                raise AssertionError("it starts a server")

            monkeypatch.setattr(launch, "ensure", fails)
            holding = asyncio.create_task(client.hold(CONVERSATION))
            await until(lambda: server.asked("GET", HOLD))
            assert not holding.done()
            holding.cancel()


async def test_a_thread_holds_while_the_event_loop_stands_still_and_lets_go_when_it_is_left(
    server: FakeServer, tmp_path: Path
) -> None:
    """The server is in this loop: what stands still is one in another thread."""
    let_go = asyncio.Event()

    async def watched(request: Request, writer: asyncio.StreamWriter) -> None:
        try:
            await held(request, writer)
        finally:
            let_go.set()

    server.scripts[HOLD] = [hangs_up, watched]
    runner = asyncio.Runner()

    async def take() -> Temporary:
        made = Temporary(Line(), beside(lambda hear: client_of(server, tmp_path)))
        made.hold(CONVERSATION)
        return made

    made = await asyncio.to_thread(lambda: runner.run(take()))
    await until(lambda: len(server.asked("GET", HOLD)) == 2)
    assert not let_go.is_set()
    made.leave()
    async with asyncio.timeout(10):
        await let_go.wait()
    assert made.left == [CONVERSATION]
    await asyncio.to_thread(runner.close)
