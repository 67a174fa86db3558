"""Temporary conversations over a real socket and store: unseen, held, and gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from fake_engine import FakeEngine
from support_edge import Edge, edge_at, sse
from support_turns import new_run

from hobnob.server import temporary
from hobnob.server.wire import API
from hobnob.store.store import Store
from hobnob.store.values import LOCAL_OWNER as ME
from hobnob.store.values import Turn

WORD = "xyzzy"


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary, "CHECK_SECONDS", 0.01)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary, "GRACE_SECONDS", 0.02)


@pytest.fixture
async def edge(tmp_path: Path) -> AsyncIterator[Edge]:
    async with edge_at(tmp_path) as opened:
        yield opened


async def answered(edge: Edge, text: str = WORD) -> str:
    """A temporary conversation with a reply; its id."""
    turn = await edge.send(text, temporary=True, title=WORD)
    await edge.call("GET", f"/runs/{turn['run']['id']}/events")
    return str(turn["conversation"]["id"])


async def left(edge: Edge) -> list[tuple[str, str]]:
    return await edge.store.temporary()


async def all_gone(edge: Edge, folder: Path) -> None:
    """The rows, and a moment later every byte of what was said."""
    async with asyncio.timeout(10):
        while await left(edge) or everything(folder).count(WORD.encode()):
            await asyncio.sleep(0.01)


async def end_of(held: httpx.Response) -> str:
    """The code that a hold ends with."""
    async with asyncio.timeout(10):
        (event,) = sse("".join([piece async for piece in held.aiter_text()]))
    return str(json.loads(event["data"])["code"])


def everything(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir() if file.is_file())


async def test_it_is_in_no_list_no_search_no_comparison_and_no_feed(edge: Edge) -> None:
    seen = (await edge.call("POST", "/conversations", json={"title": "seen"})).json()
    id = await answered(edge)
    path = f"/conversations/{id}"
    branch = (await edge.call("GET", f"{path}/messages")).json()
    parent = branch["messages"][0]["id"]
    assert branch["conversation"]["temporary"] is True and seen["temporary"] is False
    again = await edge.call("POST", f"{path}/replies", json={"parent": parent})
    await edge.call("GET", f"/runs/{again.json()['run']['id']}/events")
    for listed in ("", "?pinned=false", f"?q={WORD}"):
        found = (await edge.call("GET", f"/conversations{listed}")).json()["conversations"]
        assert id not in [one["id"] for one in found]
    for words in (WORD, "Hello", "ello"):
        assert (await edge.call("GET", f"/search?q={words}")).json()["hits"] == []
    assert (await edge.call("GET", "/comparisons")).json()["comparisons"] == []
    assert [one.change for one in await edge.store.changes(ME, 0) or ()] == [seen["change"]]
    assert (await edge.call("DELETE", path)).status_code == 204
    assert [one.change for one in await edge.store.changes(ME, 0) or ()] == [seen["change"]]
    assert await edge.store.check() == []


async def test_it_is_deleted_a_little_after_nobody_holds_it(
    edge: Edge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = await edge.send(WORD, temporary=True)
    id = turn["conversation"]["id"]
    async with edge.client.stream("GET", f"{API}/conversations/{id}/hold") as held:
        assert held.status_code == 200
        monkeypatch.setattr(temporary, "GRACE_SECONDS", 0.02)
        await edge.call("GET", f"/runs/{turn['run']['id']}/events")
        await asyncio.sleep(0.1)
        assert await left(edge) == [(ME, id)]
        assert everything(tmp_path).count(WORD.encode()) > 0
    await all_gone(edge, tmp_path)
    assert id in edge.engine.forgotten
    assert (await edge.call("GET", f"/conversations/{id}/hold")).status_code == 404


async def test_one_that_nobody_ever_held_is_deleted_in_the_middle_of_its_reply(
    at_once: None, tmp_path: Path
) -> None:
    async with edge_at(tmp_path, FakeEngine(["word "] * 100_000)) as edge:
        turn = await edge.send("hi", temporary=True)
        await all_gone(edge, tmp_path)
        assert (await edge.call("GET", f"/runs/{turn['run']['id']}")).status_code == 404
        assert edge.runs.live_count == 0


async def test_one_holder_of_two_is_enough(
    edge: Edge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = await answered(edge)
    path = f"{API}/conversations/{id}/hold"
    monkeypatch.setattr(temporary, "GRACE_SECONDS", 0.02)
    async with edge.client.stream("GET", path):
        async with edge.client.stream("GET", path):
            pass
        await asyncio.sleep(0.1)
        assert await left(edge) == [(ME, id)]
    await all_gone(edge, tmp_path)


async def test_who_holds_one_that_is_deleted_learns_of_it(edge: Edge) -> None:
    id = await answered(edge)
    async with edge.client.stream("GET", f"{API}/conversations/{id}/hold") as held:
        assert (await edge.call("DELETE", f"/conversations/{id}")).status_code == 204
        assert await end_of(held) == "not_found"


async def test_only_a_temporary_one_can_be_held_and_only_a_new_one_become_so(edge: Edge) -> None:
    turn = await edge.send("hi")
    path = f"/conversations/{turn['conversation']['id']}"
    assert (await edge.call("GET", f"{path}/hold")).status_code == 400
    body = {"text": "more", "temporary": True}
    assert (await edge.call("POST", f"{path}/messages", json=body)).status_code == 400
    assert (await edge.call("PATCH", path, json={"temporary": True})).status_code == 400
    assert (await edge.call("GET", path)).json()["temporary"] is False


async def test_a_server_that_stops_deletes_them_and_says_so(edge: Edge, tmp_path: Path) -> None:
    id = await answered(edge)
    kept = await edge.send("an ordinary one")
    async with edge.client.stream("GET", f"{API}/conversations/{id}/hold") as held:
        await edge.parts.temporary.delete_all()
        edge.parts.temporary.close()
        assert await end_of(held) == "not_found"
    assert await left(edge) == []
    await edge.store.erased()
    assert everything(tmp_path).count(WORD.encode()) == 0
    assert (await edge.store.conversation(ME, kept["conversation"]["id"])).title


async def test_a_server_that_cannot_delete_them_in_time_says_that_it_stops(edge: Edge) -> None:
    id = await answered(edge)
    async with edge.client.stream("GET", f"{API}/conversations/{id}/hold") as held:
        edge.parts.temporary.close()
        assert await end_of(held) == "server_stopping"
    async with edge.client.stream("GET", f"{API}/conversations/{id}/hold") as late:
        assert await end_of(late) == "server_stopping"
    assert await left(edge) == [(ME, id)]


async def one_left_over(folder: Path) -> Turn:
    """What a server leaves that was killed while it wrote."""
    store = await Store.open(folder / "hobnob.db")
    turn = await store.begin_turn(
        ME, None, parent=None, text=WORD, run=new_run(), title=WORD, temporary=True
    )
    await store.close()
    return turn


async def test_what_a_killed_server_left_is_deleted_when_nobody_comes_back_to_it(
    at_once: None, tmp_path: Path
) -> None:
    turn = await one_left_over(tmp_path)
    async with edge_at(tmp_path, FakeEngine(["word "] * 100_000)) as edge:
        await all_gone(edge, tmp_path)
        assert turn.conversation.id in edge.engine.forgotten
        assert edge.runs.live_count == 0


async def test_what_a_killed_server_left_goes_on_for_who_comes_back_in_time(tmp_path: Path) -> None:
    turn = await one_left_over(tmp_path)
    id = turn.conversation.id
    async with edge_at(tmp_path) as edge:
        async with edge.client.stream("GET", f"{API}/conversations/{id}/hold") as held:
            assert held.status_code == 200
            events = sse((await edge.call("GET", f"/runs/{turn.run.id}/events")).text)
            assert events[-1]["event"] == "message_stop"
            assert await left(edge) == [(ME, id)]
