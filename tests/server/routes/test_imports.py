"""`POST /conversations/import`: what it takes, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support_edge import Edge, edge_at

from hobnob.server import security
from hobnob.server.wire import API

ID = "0123456789abcdef0123"
Q, A = "a" * 20, "b" * 20


@pytest.fixture
async def edge(tmp_path: Path) -> AsyncIterator[Edge]:
    async with edge_at(tmp_path, sockets=False, max_text_bytes=1_000) as opened:
        yield opened


def message(id: str, parent: str | None, role: str, **fields: Any) -> dict[str, Any]:
    blocks = [{"type": "text", "text": f"the {role}'s"}]
    return {"id": id, "parent": parent, "role": role, "blocks": blocks, "created_at": 5} | fields


def whole(**fields: Any) -> dict[str, Any]:
    messages = [message(Q, None, "user"), message(A, Q, "assistant", model="tiny")]
    times = {"created_at": 1_000, "updated_at": 2_000}
    return {"id": ID, "title": "Tea", "head": A, "messages": messages} | times | fields


async def take(edge: Edge, body: Any) -> Any:
    return await edge.call("POST", "/conversations/import", json=body)


async def test_a_conversation_is_taken_once_and_gone_on_with(edge: Edge) -> None:
    first, second = await take(edge, whole()), await take(edge, whole(title="Other"))
    assert (first.status_code, first.json()["imported"]) == (201, True)
    assert (second.status_code, second.json()["imported"]) == (200, False)
    assert second.json()["conversation"] == first.json()["conversation"]
    assert first.json()["conversation"]["title"] == "Tea"
    turn = await edge.send("and green?", ID)
    assert turn["message"]["parent"] == A
    prompt = [(one.role, one.text) for one in edge.engine.rendered[-1]]
    assert prompt == [
        ("user", "the user's"),
        ("assistant", "the assistant's"),
        ("user", "and green?"),
    ]


async def test_another_reply_to_an_imported_question_can_be_had(edge: Edge) -> None:
    failed = message(A, Q, "assistant", status="failed", blocks=[], error="no_reply: None.")
    await take(edge, whole(messages=[message(Q, None, "user"), failed]))
    for body in ({"parent": Q}, {"continue": A}):
        answer = await edge.call("POST", f"/conversations/{ID}/replies", json=body)
        assert answer.status_code == 202, answer.text
    found = (await edge.call("GET", f"/conversations/{ID}/replies?parent={Q}")).json()
    assert [one["run"] is None for one in found["replies"]] == [True, False, False]


def changed(index: int, **fields: Any) -> dict[str, Any]:
    body = whole()
    body["messages"][index] |= fields
    return body


@pytest.mark.parametrize(
    "body",
    [
        whole(id="new"),
        whole(id=ID + "\n"),
        whole(id="../../../../etc/passwd"),
        whole(created_at=2**62),
        whole(updated_at=1.5),
        whole(title="x" * 501),
        whole(system="x" * 1_001),
        whole(settings={"temperature": "hot"}),
        whole(settings={"unknown": 1}),
        whole(head="c" * 20),
        whole(temporary=True),
        whole(messages=None),
        changed(0, id="root"),
        changed(0, role="system"),
        changed(0, status="failed"),
        changed(0, blocks="text"),
        changed(0, blocks=[{"text": "x"}]),
        changed(0, blocks=[{"type": "text", "text": 1}]),
        changed(0, blocks=[{"type": "text", "text": "x" * 1_001}]),
        changed(0, created_at=None),
        changed(1, status="running"),
        changed(1, status="odd"),
        changed(1, parent="c" * 20),
        changed(1, parent=None, status="length"),
        changed(1, role="user"),
        changed(1, usage=[]),
        changed(1, model="x" * 1_001),
    ],
)
async def test_what_hobnob_would_not_have_written_is_refused(edge: Edge, body: Any) -> None:
    answer = await take(edge, body)
    assert answer.status_code == 400, answer.text
    assert (await edge.call("GET", "/conversations")).json()["conversations"] == []


async def test_a_text_block_without_a_text_is_refused(edge: Edge) -> None:
    assert (await take(edge, changed(0, blocks=[{"type": "text"}]))).status_code == 400


async def test_numbers_that_json_has_not_and_endless_nesting_are_refused(edge: Edge) -> None:
    path = f"{API}/conversations/import"
    for value in ("NaN", "-Infinity", "1e999", "[" * 5_000 + "]" * 5_000):
        body = json.dumps(changed(1, usage={"n": "HERE"})).replace('"HERE"', value)
        answer = await edge.raw(path, body.encode())
        assert answer.status_code == 400, (value[:9], answer.text[:99])
    assert (await edge.call("GET", "/conversations")).json()["conversations"] == []


async def test_an_id_that_is_taken_is_a_conflict(edge: Edge) -> None:
    await take(edge, whole())
    answer = await take(edge, whole(id="c" * 20))
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")


async def test_a_body_may_be_larger_than_others_and_has_a_bound(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = " " * security.MAX_BODY_BYTES
    path = f"{API}/conversations/import"
    assert (await edge.raw(path, (json.dumps(whole()) + space).encode())).status_code == 201
    other = await edge.raw(f"{API}/conversations", ("{}" + space).encode())
    assert other.status_code == 413
    over = b" " * security.MAX_IMPORT_BYTES + b"{}"
    assert (await edge.raw(path, over)).status_code == 413
