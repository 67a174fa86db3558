"""The feed of changes over a real socket and store: live, resumed, bounded, and how it ends."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support_edge import KEY, Edge, edge_at, sse

from hobnob.server import listener, streams, wire
from hobnob.server.changes import Changes
from hobnob.server.wire import API
from hobnob.store import changes as stored
from hobnob.store.store import Store
from hobnob.store.values import LOCAL_OWNER


@pytest.fixture
async def edge(tmp_path: Path) -> AsyncIterator[Edge]:
    async with edge_at(tmp_path) as opened:
        yield opened


class Feed:
    """An open stream, read block by block."""

    def __init__(self, pieces: AsyncIterator[str]) -> None:
        self._pieces = pieces
        self.text = ""
        self._taken = 0

    async def blocks(self, count: int) -> list[dict[str, str]]:
        """So many that were not read yet."""
        async with asyncio.timeout(10):
            while len(sse(self._whole())) < self._taken + count:
                self.text += await anext(self._pieces)
        found = sse(self._whole())[self._taken : self._taken + count]
        self._taken += count
        return found

    async def next(self) -> tuple[str, Any]:
        (block,) = await self.blocks(1)
        return block["event"], json.loads(block["data"])

    def _whole(self) -> str:
        return self.text[: self.text.rfind("\n\n") + 1]


@asynccontextmanager
async def feed(edge: Edge, after: int | None = None, **fields: Any) -> AsyncIterator[Feed]:
    params = {} if after is None else {"after": after}
    async with edge.client.stream("GET", f"{API}/changes", params=params, **fields) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Feed(answer.aiter_text())


async def test_without_a_cursor_it_begins_with_where_it_begins(edge: Edge) -> None:
    await edge.call("POST", "/conversations", json={"title": "before"})
    async with feed(edge) as following:
        (block,) = await following.blocks(1)
        assert block["event"] == "position"
        assert json.loads(block["data"]) == {"change": int(block["id"])}
        assert block["retry"] == str(streams.RETRY_MS)
        made = (await edge.call("POST", "/conversations", json={"title": "after"})).json()
        assert await following.next() == ("conversation", {"conversation": made})


async def test_what_a_client_does_is_told_to_the_others_as_it_happens(edge: Edge) -> None:
    async with feed(edge) as following, feed(edge) as other:
        await following.blocks(1)
        turn = await edge.send("hello")
        id = turn["conversation"]["id"]
        seen = []
        while not seen or seen[-1]["conversation"]["change"] == turn["conversation"]["change"]:
            seen.append((await following.next())[1])
        assert seen[0]["conversation"]["head"] == turn["reply"]["id"]
        branch = (await edge.call("GET", f"/conversations/{id}/messages")).json()
        assert branch["messages"][-1]["status"] == "completed"
        assert seen[-1] == {"conversation": branch["conversation"]}
        await edge.call("PATCH", f"/conversations/{id}", json={"title": "new name"})
        assert (await following.next())[1]["conversation"]["title"] == "new name"
        await edge.call("DELETE", f"/conversations/{id}")
        assert await following.next() == ("deleted", {"conversation": id})
        told = await other.blocks(len(seen) + 3)
        assert told[-1]["event"] == "deleted"


async def test_a_pin_is_told_to_the_others(edge: Edge) -> None:
    made = (await edge.call("POST", "/conversations", json={"title": "t"})).json()
    async with feed(edge) as following:
        await following.blocks(1)
        path = f"/conversations/{made['id']}"
        for pinned in (True, False):
            answer = await edge.call("PATCH", path, json={"pinned": pinned})
            kind, payload = await following.next()
            assert (kind, payload["conversation"]) == ("conversation", answer.json())
            assert payload["conversation"]["pinned"] is pinned


async def test_who_comes_back_gets_what_was_missed_once_and_in_its_newest_state(
    edge: Edge,
) -> None:
    async with feed(edge) as following:
        (block,) = await following.blocks(1)
    made = (await edge.call("POST", "/conversations", json={"title": "one"})).json()
    gone = (await edge.call("POST", "/conversations", json={"title": "two"})).json()
    await edge.call("DELETE", f"/conversations/{gone['id']}")
    await edge.call("PATCH", f"/conversations/{made['id']}", json={"title": "three"})
    for fields in ({"headers": {"Last-Event-ID": block["id"]}}, {"after": int(block["id"])}):
        async with feed(edge, **fields) as following:
            assert await following.next() == ("deleted", {"conversation": gone["id"]})
            kind, data = await following.next()
            assert (kind, data["conversation"]["title"]) == ("conversation", "three")
    async with feed(edge, 0, headers={"Last-Event-ID": str(data["conversation"]["change"])}) as f:
        await edge.call("PATCH", f"/conversations/{made['id']}", json={"title": "four"})
        assert (await f.next())[1]["conversation"]["title"] == "four"  # the header wins


async def test_a_long_absence_is_made_up_for_in_pages(tmp_path: Path) -> None:
    async with edge_at(tmp_path) as edge:
        made = [await edge.store.create_conversation(LOCAL_OWNER) for _ in range(250)]
        async with feed(edge, 0) as following:
            told = await following.blocks(250)
        assert [json.loads(one["data"])["conversation"]["id"] for one in told] == [
            one.id for one in made
        ]
        assert [int(one["id"]) for one in told] == [one.change for one in made]


async def test_a_cursor_that_is_too_old_or_of_another_database_is_gone(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "DELETIONS_KEPT", 1)
    for _ in range(3):
        made = (await edge.call("POST", "/conversations", json={})).json()
        await edge.call("DELETE", f"/conversations/{made['id']}")
    for after in (1, 999):
        answer = await edge.call("GET", "/changes", params={"after": after})
        assert answer.status_code == 410
        assert answer.json()["error"]["code"] == "gone"
        assert "message_id" not in answer.json()["error"]
    for cursor in ("x", "-1"):
        answer = await edge.call("GET", "/changes", headers={"Last-Event-ID": cursor})
        assert answer.status_code == 400


async def test_a_key_is_needed(edge: Edge) -> None:
    answer = await edge.call("GET", "/changes", headers={"authorization": "Bearer wrong"})
    assert answer.status_code == 401


async def test_changes_of_another_owner_wake_nobody_up_with_news(edge: Edge) -> None:
    async with feed(edge) as following:
        await following.blocks(1)
        await edge.store.create_conversation("somebody else", title="secret")
        mine = await edge.store.create_conversation(LOCAL_OWNER, title="mine")
        assert (await following.next())[1]["conversation"]["id"] == mine.id


async def test_silence_is_filled_with_keep_alives(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "PING_SECONDS", 0.02)
    async with feed(edge) as following:
        await following.blocks(1)
        async with asyncio.timeout(10):
            while following.text.count(streams.PING) < 3:
                following.text += await anext(following._pieces)


async def test_following_is_no_use_of_the_server_that_keeps_it_from_sleeping(edge: Edge) -> None:
    async with feed(edge) as following:
        await following.blocks(1)
        await asyncio.sleep(0.01)
        assert edge.lifecycle.idle_s() > 0


async def test_a_reader_ends_with_the_server_and_says_so(edge: Edge) -> None:
    async with feed(edge) as following:
        await following.blocks(1)
        edge.parts.changes.close(wire.StreamError("server_stopping", "Stopping."))
        kind, data = await following.next()
        assert (kind, data["code"]) == ("error", "server_stopping")
        with pytest.raises(StopAsyncIteration):
            await following.blocks(1)


async def test_a_reader_that_does_not_read_is_dropped_and_may_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "STALL_SECONDS", 0.2)
    async with edge_at(tmp_path) as edge:
        settings = {"stop": ["x" * 250] * 16}
        silent = socket.socket()
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        silent.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(silent, ("127.0.0.1", edge.client.base_url.port))
        lines = [f"GET {API}/changes HTTP/1.1", "Host: localhost", f"x-api-key: {KEY}", "", ""]
        await loop.sock_sendall(silent, "\r\n".join(lines).encode())
        await edge.until(lambda: edge.parts.changes.readers == 1)
        one = await edge.store.create_conversation(LOCAL_OWNER, settings=settings)
        for number in range(2000):  # more than the kernel keeps for one who does not read
            await edge.store.update_conversation(LOCAL_OWNER, one.id, title=str(number))
            if edge.parts.changes.readers == 0:
                break
        await edge.until(lambda: edge.parts.changes.readers == 0)
        silent.close()
        async with feed(edge, 1) as following:
            newest = await edge.store.conversation(LOCAL_OWNER, one.id)
            assert (await following.next())[1]["conversation"]["change"] == newest.change


async def test_a_reader_that_was_left_far_behind_is_told_to_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "DELETIONS_KEPT", 1)
    store = await Store.open(tmp_path / "hobnob.db")
    await store.create_conversation(LOCAL_OWNER)
    reader = await Changes(store).follow(LOCAL_OWNER, None)
    assert await reader.next_within(10) == wire.Change(1, wire.Position(1))
    for _ in range(3):
        made = await store.create_conversation(LOCAL_OWNER)
        await store.delete_conversation(LOCAL_OWNER, made.id)
    told = await reader.next_within(10)
    assert told is not None and isinstance(told.payload, wire.StreamError)
    assert told.payload.code == "gone"
    with pytest.raises(StopAsyncIteration):
        await reader.next_within(10)
    await store.close()


async def test_a_store_that_closes_ends_the_reader_with_an_error(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "hobnob.db")
    reader = await Changes(store).follow(LOCAL_OWNER, 0)
    await store.close()
    told = await reader.next_within(10)
    assert told is not None and isinstance(told.payload, wire.StreamError)


async def test_a_reader_that_was_left_is_forgotten(edge: Edge) -> None:
    async with feed(edge) as following:
        await following.blocks(1)
        assert edge.parts.changes.readers == 1
    await edge.until(lambda: edge.parts.changes.readers == 0)
