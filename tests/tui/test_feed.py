"""The client's side of the feed of changes, against a server that does everything wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from fake_server import (
    KEY,
    STREAM_HEAD,
    FakeServer,
    chunk,
    hangs,
    hangs_up,
    http,
    refusal,
    says,
    streams,
)

from hobnob.launch import Target
from hobnob.paths import Paths
from hobnob.server import wire
from hobnob.tui import connection
from hobnob.tui.client import Client
from hobnob.tui.notice import ClientError, Notice, NoticeKind

PATH = "/changes"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_DELAY_SECONDS", 0.01)
    monkeypatch.setattr(connection, "MAX_RETRY_AFTER_SECONDS", 0.02)


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    fake = FakeServer()
    async with fake.running():
        yield fake


def client_of(server: FakeServer, tmp_path: Path, **options: Any) -> Client:
    target = Target(Paths.home({"HOBNOB_HOME": str(tmp_path)}), server.url, KEY)
    return Client(target, **options)


def block(seq: int | None, payload: wire.ChangePayload) -> bytes:
    number = "" if seq is None else f"id: {seq}\n"
    return f"{number}event: {payload.TYPE}\ndata: {wire.dump(payload)}\n\n".encode()


def changed(id: str) -> wire.ConversationChanged:
    return wire.ConversationChanged({"id": id})


async def read(client: Client, count: int) -> list[wire.ChangePayload | Notice]:
    found: list[wire.ChangePayload | Notice] = []
    async with asyncio.timeout(10), aclosing(client.changes()) as items:
        async for item in items:
            found.append(item)
            if len(found) == count:
                break
    return found


def cursors(server: FakeServer) -> list[str | None]:
    return [one.headers.get("last-event-id") for one in server.asked("GET", PATH)]


async def test_it_goes_on_after_each_cut_where_it_was(server: FakeServer, tmp_path: Path) -> None:
    first = block(7, wire.Position(7)) + block(8, changed("a"))
    then = block(8, changed("a")) + block(9, changed("b"))  # a replay that begins too early
    last = block(11, wire.ConversationDeleted("a"))
    server.scripts[PATH] = [streams(first), streams(then, complete=False), streams(last), hangs]
    async with client_of(server, tmp_path) as client:
        found = await read(client, 4)
    assert found == [wire.Position(7), changed("a"), changed("b"), wire.ConversationDeleted("a")]
    assert cursors(server) == [None, "8", "9"]


async def test_a_cut_at_every_byte_loses_and_repeats_nothing(
    server: FakeServer, tmp_path: Path
) -> None:
    whole = block(1, wire.Position(1)) + block(2, changed("é")) + block(3, changed("b"))
    answer = STREAM_HEAD + chunk(whole)
    for cut in range(len(STREAM_HEAD), len(answer), 3):
        rest = answer[cut:]
        server.scripts[PATH] = [says(answer[:cut]), says(answer), hangs]
        async with client_of(server, tmp_path) as client:
            found = [one for one in await read(client, 3) if not isinstance(one, Notice)]
        assert found == [wire.Position(1), changed("é"), changed("b")], (cut, rest)
        server.scripts[PATH].clear()


async def test_what_is_not_known_is_skipped(server: FakeServer, tmp_path: Path) -> None:
    odd = b"id: 2\nevent: novelty\ndata: {}\n\n" + b"id: 3\nevent: deleted\ndata: nonsense\n\n"
    body = block(1, wire.Position(1)) + odd + b": ping\n" + block(4, changed("a"))
    server.scripts[PATH] = [streams(body), hangs]
    async with client_of(server, tmp_path) as client:
        assert await read(client, 2) == [wire.Position(1), changed("a")]


@pytest.mark.parametrize(
    "answer",
    [
        refusal(410, "gone"),
        STREAM_HEAD + chunk(block(None, wire.StreamError("gone", "Too far behind."))),
    ],
)
async def test_a_cursor_that_is_too_old_is_dropped_and_a_new_position_says_so(
    server: FakeServer, tmp_path: Path, answer: bytes
) -> None:
    server.scripts[PATH] = [
        streams(block(5, wire.Position(5))),
        says(answer),
        streams(block(9, wire.Position(9))),
        hangs,
    ]
    async with client_of(server, tmp_path) as client:
        found = [one for one in await read(client, 2) if not isinstance(one, Notice)]
    assert found == [wire.Position(5), wire.Position(9)]
    assert cursors(server) == [None, "5", None]


async def test_a_short_break_is_not_worth_a_word_and_a_long_one_is(
    server: FakeServer, tmp_path: Path
) -> None:
    server.scripts[PATH] = [
        streams(block(1, wire.Position(1))),
        streams(block(2, changed("a"))),
        hangs_up,
        hangs_up,
        refusal_act(503, "server_stopping"),
        streams(block(3, changed("b"))),
        hangs,
    ]
    async with client_of(server, tmp_path) as client:
        found = await read(client, 7)
    kinds = [one.kind if isinstance(one, Notice) else one for one in found]
    assert kinds == [
        wire.Position(1),
        changed("a"),
        NoticeKind.RECONNECTING,
        NoticeKind.RECONNECTING,
        NoticeKind.RECONNECTING,
        NoticeKind.CONNECTED,
        changed("b"),
    ]


def refusal_act(status: int, code: str) -> Any:
    return says(refusal(status, code))


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (refusal(401, "unauthorized"), "unauthorized"),
        (refusal(404, "not_found"), "not_found"),
        (http(200, b"<html>"), "bad_answer"),
    ],
)
async def test_a_server_that_has_no_feed_for_us_ends_it(
    server: FakeServer, tmp_path: Path, answer: bytes, code: str
) -> None:
    server.scripts[PATH] = [says(answer)]
    async with client_of(server, tmp_path) as client:
        with pytest.raises(ClientError) as raised:
            await read(client, 1)
    assert raised.value.code == code


async def test_silence_longer_than_the_keep_alives_is_a_dead_connection(
    server: FakeServer, tmp_path: Path
) -> None:
    async def goes_silent(request: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + chunk(block(1, wire.Position(1))))
        await asyncio.Event().wait()

    server.scripts[PATH] = [goes_silent, streams(block(2, changed("a"))), hangs]
    async with client_of(server, tmp_path, idle_s=0.05) as client:
        assert await read(client, 2) == [wire.Position(1), changed("a")]
