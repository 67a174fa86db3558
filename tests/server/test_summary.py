"""A summary of a branch, asked at its end and standing at the root; and what goes on below it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeEngine, prompt_of
from support_edge import PATIENCE_SECONDS, Edge, edge_at

from hobnob.server.engine.protocol import ChatMessage
from hobnob.store.values import LIVE, LOCAL_OWNER

SAID = "Hello, world!"
ASKED = "Sum up."


@pytest.fixture
async def edge(tmp_path: Path) -> AsyncIterator[Edge]:
    async with edge_at(tmp_path) as opened:
        yield opened


async def finished(edge: Edge, turn: dict[str, Any]) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await edge.store.run(LOCAL_OWNER, turn["run"]["id"])).status in LIVE:
            await asyncio.sleep(0.005)
    return turn


async def talk(edge: Edge, *texts: str) -> list[dict[str, Any]]:
    """A conversation of so many turns."""
    turns: list[dict[str, Any]] = []
    for text in texts:
        place = turns[0]["conversation"]["id"] if turns else "new"
        turns.append(await finished(edge, await edge.send(text, place)))
    return turns


async def sum_up(edge: Edge, turns: list[dict[str, Any]], about: int) -> dict[str, Any]:
    place = turns[0]["conversation"]["id"]
    fields = {"parent": "root", "about": turns[about]["reply"]["id"], "aside": True}
    return await finished(edge, await edge.send(ASKED, place, **fields))


async def graft(
    edge: Edge, onto: dict[str, Any], first: dict[str, Any], last: dict[str, Any]
) -> Any:
    body = {
        "onto": onto["reply"]["id"],
        "first": first["message"]["id"],
        "leaf": last["reply"]["id"],
    }
    path = f"/conversations/{onto['conversation']['id']}/graft"
    return await edge.call("POST", path, json=body)


async def branch(edge: Edge, id: str, **given: str) -> dict[str, Any]:
    answer = await edge.call("GET", f"/conversations/{id}/messages", params=given)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def texts(found: dict[str, Any]) -> list[str]:
    return [one["text"] for one in found["messages"]]


async def test_it_is_asked_at_the_end_of_the_branch_and_stands_at_the_root(edge: Edge) -> None:
    turns = await talk(edge, "one", "two", "three")
    summary = await sum_up(edge, turns, 1)
    told = ["one", SAID, "two", SAID, ASKED]
    assert [message.text for message in edge.engine.rendered[-1]] == told
    assert edge.engine.submitted[-1].prompt == prompt_of(edge.engine.rendered[-1])
    assert summary["message"]["parent"] is None
    id = turns[0]["conversation"]["id"]
    shown = await branch(edge, id)
    assert texts(shown) == ["one", SAID, "two", SAID, "three", SAID]
    first = shown["messages"][0]["id"]
    assert shown["siblings"][first] == [first, summary["message"]["id"]]


async def test_what_is_kept_stands_below_it_and_the_old_branch_as_it_was(edge: Edge) -> None:
    turns = await talk(edge, "one", "two", "three")
    summary = await sum_up(edge, turns, 0)
    id = turns[0]["conversation"]["id"]
    changed = await graft(edge, summary, turns[1], turns[2])
    assert changed.status_code == 200
    shown = await branch(edge, id)
    assert texts(shown) == [ASKED, SAID, "two", SAID, "three", SAID]
    assert shown["messages"][-1]["id"] == changed.json()["head"]
    assert all(one["run"] is None for one in shown["messages"][2:])
    old = await branch(edge, id, leaf=turns[2]["reply"]["id"])
    assert texts(old) == ["one", SAID, "two", SAID, "three", SAID]
    copy = (await edge.store.branch(LOCAL_OWNER, id, shown["messages"][-1]["id"]))[-1]
    original = (await edge.store.branch(LOCAL_OWNER, id, turns[2]["reply"]["id"]))[-1]
    assert (copy.tokens, copy.model, copy.created_at, copy.blocks) == (
        original.tokens,
        original.model,
        original.created_at,
        original.blocks,
    )


async def test_the_conversation_goes_on_with_the_summary(edge: Edge) -> None:
    turns = await talk(edge, "one", "two", "three")
    await graft(edge, await sum_up(edge, turns, 1), turns[2], turns[2])
    await finished(edge, await edge.send("four", turns[0]["conversation"]["id"]))
    told = [ASKED, SAID, "three", SAID, "four"]
    assert [message.text for message in edge.engine.rendered[-1]] == told


async def test_to_repeat_it_copies_nothing_again(edge: Edge) -> None:
    turns = await talk(edge, "one", "two", "three")
    summary = await sum_up(edge, turns, 0)
    first = await graft(edge, summary, turns[1], turns[2])
    again = await graft(edge, summary, turns[1], turns[2])
    assert again.json()["head"] == first.json()["head"]
    assert len((await branch(edge, turns[0]["conversation"]["id"]))["messages"]) == 6


async def test_another_version_of_it_is_asked_in_the_same_place(edge: Edge) -> None:
    turns = await talk(edge, "one", "two", "three")
    summary = await sum_up(edge, turns, 1)
    path = f"/conversations/{turns[0]['conversation']['id']}/replies"
    answer = await edge.call("POST", path, json={"parent": summary["message"]["id"]})
    await finished(edge, answer.json())
    told = ["one", SAID, "two", SAID, ASKED]
    assert [message.text for message in edge.engine.rendered[-1]] == told


async def test_it_can_be_made_of_a_conversation_that_has_one(edge: Edge) -> None:
    turns = await talk(edge, "one", "two", "three")
    await graft(edge, await sum_up(edge, turns, 0), turns[1], turns[2])
    id = turns[0]["conversation"]["id"]
    last = (await branch(edge, id))["messages"][-1]["id"]
    fields = {"parent": "root", "about": last, "aside": True}
    await finished(edge, await edge.send(ASKED, id, **fields))
    told = [ASKED, SAID, "two", SAID, "three", SAID, ASKED]
    assert [message.text for message in edge.engine.rendered[-1]] == told


async def test_the_summary_stays_when_the_window_is_small(tmp_path: Path) -> None:
    async with edge_at(tmp_path, FakeEngine(n_ctx=120), reply_tokens=8) as edge:
        turns = await talk(edge, "one", "two" * 5, "three" * 3)
        await graft(edge, await sum_up(edge, turns, 0), turns[1], turns[2])
        id = turns[0]["conversation"]["id"]
        turn = await finished(edge, await edge.send("four" * 8, id))
        planned = turn["run"]["params"]["context"]
        assert len(planned["left_out"]) == 2 and planned["included"] == 5
        last = edge.engine.submitted[-1].prompt
        kept = [ASKED, SAID, "three" * 3, SAID, "four" * 8]
        roles = ["user", "assistant", "user", "assistant", "user"]
        assert last == prompt_of([ChatMessage(*one) for one in zip(roles, kept, strict=True)])


async def test_a_request_that_makes_no_sense_stores_nothing(edge: Edge) -> None:
    turns = await talk(edge, "one")
    id = turns[0]["conversation"]["id"]
    mine, reply = turns[0]["message"]["id"], turns[0]["reply"]["id"]
    for place, fields in (
        (id, {"parent": "root", "about": mine}),
        (id, {"about": reply}),
        (id, {"parent": reply, "about": reply}),
        ("new", {"about": reply}),
    ):
        path = f"/conversations/{place}/messages"
        refused = await edge.call("POST", path, json={"text": ASKED, **fields})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "about"), fields
    path = f"/conversations/{id}/messages"
    body = {"text": ASKED, "parent": "root", "about": "nothing"}
    assert (await edge.call("POST", path, json=body)).status_code == 404
    assert len((await branch(edge, id))["messages"]) == 2


async def test_what_cannot_stand_there_is_not_copied(edge: Edge) -> None:
    turns = await talk(edge, "one", "two")
    id, path = (
        turns[0]["conversation"]["id"],
        f"/conversations/{turns[0]['conversation']['id']}/graft",
    )
    first, second = turns
    for onto, begin, end, status in (
        (first["message"]["id"], second["message"]["id"], second["reply"]["id"], 400),
        (first["reply"]["id"], second["reply"]["id"], second["reply"]["id"], 400),
        (first["reply"]["id"], second["message"]["id"], second["message"]["id"], 400),
        (second["reply"]["id"], second["message"]["id"], second["reply"]["id"], 400),
        ("nothing", second["message"]["id"], second["reply"]["id"], 404),
        (first["reply"]["id"], "nothing", second["reply"]["id"], 404),
    ):
        body = {"onto": onto, "first": begin, "leaf": end}
        refused = await edge.call("POST", path, json=body)
        assert refused.status_code == status, (body, refused.text)
    assert texts(await branch(edge, id)) == ["one", SAID, "two", SAID]
