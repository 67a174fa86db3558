"""Conversations that begin with what was said elsewhere, and messages and names looked up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeEngine
from support_edge import Edge, edge_at

PAST = [{"role": "user", "text": "What is 2 + 2?"}, {"role": "assistant", "text": "4"}]
NEW = "/conversations/new/messages"


@pytest.fixture
async def edge(tmp_path: Path) -> AsyncIterator[Edge]:
    async with edge_at(tmp_path, sockets=False) as opened:
        yield opened


async def branch(edge: Edge, turn: Any) -> list[dict[str, Any]]:
    await edge.call("GET", f"/runs/{turn['run']['id']}/events")
    answer = await edge.call("GET", f"/conversations/{turn['conversation']['id']}/messages")
    return list(answer.json()["messages"])


async def test_a_new_conversation_begins_with_the_history_it_is_given(edge: Edge) -> None:
    turn = await edge.send("And 3 + 3?", history=PAST, system="Be brief.")
    found = await branch(edge, turn)
    assert [(one["role"], one["text"]) for one in found] == [
        ("user", "What is 2 + 2?"),
        ("assistant", "4"),
        ("user", "And 3 + 3?"),
        ("assistant", "Hello, world!"),
    ]
    assert [one["parent"] for one in found] == [None, *(one["id"] for one in found[:-1])]
    given = found[1]
    assert (given["status"], given["run"], given["model"]) == ("completed", None, None)
    assert turn["conversation"]["title"] == "What is 2 + 2?"


async def test_what_is_sent_to_the_engine_has_the_history_in_it(edge: Edge) -> None:
    plain = await edge.call("POST", "/conversations/new/plan", json={"text": "x"})
    whole = await edge.call("POST", "/conversations/new/plan", json={"text": "x", "history": PAST})
    more = sum(len(one["text"]) + 1 for one in PAST)
    assert whole.json()["prompt_tokens"] == plain.json()["prompt_tokens"] + more
    assert whole.json()["included"] == 3
    turn = await edge.send("x", history=PAST)
    submitted = edge.engine.submitted[-1]
    assert len(submitted.prompt) == whole.json()["prompt_tokens"]
    again = await edge.call(
        "POST",
        f"/conversations/{turn['conversation']['id']}/plan",
        json={"text": "x", "parent": (await branch(edge, turn))[1]["id"]},
    )
    assert again.json()["prompt_tokens"] == whole.json()["prompt_tokens"]


async def test_what_of_it_does_not_fit_is_named_by_the_ids_it_is_stored_under(
    tmp_path: Path,
) -> None:
    async with edge_at(tmp_path, FakeEngine(n_ctx=40), sockets=False) as edge:
        turn = await edge.send("x" * 10, history=[*PAST, {**PAST[0], "text": "y"}, PAST[1]])
        events = (await edge.call("GET", f"/runs/{turn['run']['id']}/events")).text
        first, second, *_ = await branch(edge, turn)
        assert f'"left_out":["{first["id"]}","{second["id"]}"]' in events


async def test_the_same_history_under_one_key_makes_one_conversation(edge: Edge) -> None:
    body, key = {"text": "x", "history": PAST}, {"Idempotency-Key": "k"}
    one, two = [
        (await edge.call("POST", NEW, json=body, headers=key)).json()["conversation"]["id"]
        for _ in range(2)
    ]
    assert one == two
    other = {"text": "x", "history": [PAST[0], {**PAST[1], "text": "5"}]}
    assert (await edge.call("POST", NEW, json=other, headers=key)).status_code == 409


async def test_what_was_said_before_is_found_by_a_search(edge: Edge) -> None:
    turn = await edge.send("x", history=[PAST[0], {**PAST[1], "text": "fourfold"}])
    await branch(edge, turn)
    hits = (await edge.call("GET", "/search", params={"q": "fourfold"})).json()["hits"]
    assert [one["role"] for one in hits] == ["assistant"]


@pytest.mark.parametrize(
    "history",
    [
        PAST[:1],
        PAST[1:],
        [PAST[0], PAST[0]],
        [PAST[0], PAST[0], PAST[1]],
        [PAST[0], {"role": "assistant", "text": "  "}],
        [{"role": "tool", "text": "x"}],
        [{"role": "user"}],
        [PAST[0], PAST[1]] * 2049,
        "words",
    ],
)
async def test_an_odd_history_is_refused_and_nothing_is_stored(edge: Edge, history: Any) -> None:
    answer = await edge.call("POST", NEW, json={"text": "x", "history": history})
    error = answer.json()["error"]
    assert answer.status_code == 400 and error["param"].startswith("history"), error
    assert (await edge.call("GET", "/conversations")).json() == {"conversations": []}


async def test_a_history_has_the_bound_of_a_message(tmp_path: Path) -> None:
    async with edge_at(tmp_path, sockets=False, max_text_bytes=10) as edge:
        long = [PAST[0] | {"text": "é" * 5}, PAST[1]]
        refused = await edge.call("POST", NEW, json={"text": "x", "history": long})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "history")


async def test_a_conversation_that_is_there_takes_no_history(edge: Edge) -> None:
    turn = await edge.send()
    await branch(edge, turn)
    path = f"/conversations/{turn['conversation']['id']}/messages"
    refused = await edge.call("POST", path, json={"text": "x", "history": PAST})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "history")


async def test_a_message_is_found_by_its_id_alone(edge: Edge) -> None:
    turn = await edge.send()
    user, reply = await branch(edge, turn)
    assert (await edge.call("GET", f"/messages/{user['id']}")).json() == user
    assert (await edge.call("GET", f"/messages/{reply['id']}")).json() == reply
    assert (await edge.call("GET", "/messages/nope")).status_code == 404


async def test_conversations_are_found_by_their_exact_title(edge: Edge) -> None:
    for title in ("Notes", "notes", "Notes", "100% of_it"):
        await edge.call("POST", "/conversations", json={"title": title})
    for title, number in (("Notes", 2), ("notes", 1), ("Note", 0), ("100% of_it", 1), ("%", 0)):
        found = await edge.call("GET", "/conversations", params={"title": title})
        titles = [one["title"] for one in found.json()["conversations"]]
        assert titles == [title] * number
