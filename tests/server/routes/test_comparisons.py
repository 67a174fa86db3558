"""Several replies to one message, each with instructions and options of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support_edge import Edge, edge_at


@pytest.fixture
async def edge(tmp_path: Path) -> AsyncIterator[Edge]:
    async with edge_at(tmp_path, sockets=False) as opened:
        yield opened


async def reply_again(edge: Edge, turn: dict[str, Any], **fields: Any) -> Any:
    path = f"/conversations/{turn['conversation']['id']}/replies"
    answer = await edge.call("POST", path, json={"parent": turn["message"]["id"], **fields})
    assert answer.status_code == 202, answer.text
    return answer.json()


def system_of_last_prompt(edge: Edge) -> str | None:
    first = edge.engine.rendered[-1][0]
    return first.text if first.role == "system" else None


async def test_instructions_are_the_system_prompt_of_one_reply_alone(edge: Edge) -> None:
    turn = await edge.send("hi", system="Be brief.", instructions="Rhyme.")
    assert system_of_last_prompt(edge) == "Rhyme."
    assert turn["conversation"]["system"] == "Be brief."
    await reply_again(edge, turn)
    assert system_of_last_prompt(edge) == "Be brief."
    again = await reply_again(edge, turn, instructions="Shout.")
    assert system_of_last_prompt(edge) == "Shout."
    assert again["conversation"]["system"] == "Be brief."
    await reply_again(edge, turn, instructions="")
    assert system_of_last_prompt(edge) is None


async def test_instructions_hold_in_a_conversation_that_is_there_already(edge: Edge) -> None:
    first = await edge.send("hi", system="Be brief.")
    await edge.call("GET", f"/runs/{first['run']['id']}/events")
    place = first["conversation"]["id"]
    await edge.send("more", conversation=place, instructions="Rhyme.")
    assert system_of_last_prompt(edge) == "Rhyme."


async def test_a_reply_aside_leaves_the_conversation_as_it_is_shown(edge: Edge) -> None:
    first = await edge.send("hi", aside=True)
    assert first["conversation"]["head"] == first["reply"]["id"]
    await edge.call("GET", f"/runs/{first['run']['id']}/events")
    place = first["conversation"]["id"]
    again = await reply_again(edge, first, aside=True)
    more = await edge.send("more", conversation=place, aside=True)
    for turn in (again, more):
        assert turn["conversation"]["head"] == first["reply"]["id"]
        assert turn["conversation"]["change"] > first["conversation"]["change"]
    usual = await reply_again(edge, first)
    assert usual["conversation"]["head"] == usual["reply"]["id"]


async def test_instructions_of_another_wording_are_another_request(edge: Edge) -> None:
    turn = await edge.send("hi")
    path = f"/conversations/{turn['conversation']['id']}/replies"
    statuses = []
    for instructions in ("Rhyme.", "Rhyme.", "Shout."):
        body = {"parent": turn["message"]["id"], "instructions": instructions}
        answer = await edge.call("POST", path, json=body, headers={"Idempotency-Key": "k"})
        statuses.append(answer.status_code)
    assert statuses == [202, 202, 409]


async def test_instructions_are_held_to_the_size_of_a_message(tmp_path: Path) -> None:
    async with edge_at(tmp_path, sockets=False, max_text_bytes=10) as edge:
        body = {"text": "hi", "instructions": "x" * 11}
        answer = await edge.call("POST", "/conversations/new/messages", json=body)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (400, "context_length_exceeded")
        assert error["param"] == "instructions"


async def test_the_replies_of_a_message_say_what_was_asked_for(edge: Edge) -> None:
    turn = await edge.send("hi", settings={"top_k": 5}, options={"temperature": 0.5})
    await reply_again(edge, turn, options={"seed": 7}, instructions="Rhyme.")
    place, parent = turn["conversation"]["id"], turn["message"]["id"]
    answer = await edge.call("GET", f"/conversations/{place[:8]}/replies?parent={parent}")
    found = answer.json()
    assert answer.status_code == 200
    assert found["conversation"]["id"] == place
    assert found["message"]["text"] == "hi"
    assert [one["reply"]["parent"] for one in found["replies"]] == [parent, parent]
    params = [one["run"]["params"] for one in found["replies"]]
    assert [one["asked"] for one in params] == [
        {"options": {"temperature": 0.5}, "instructions": None},
        {"options": {"seed": 7}, "instructions": "Rhyme."},
    ]
    assert [one["top_k"] for one in params] == [5, 5]
    assert params[1]["seed"] == 7


async def test_what_has_no_replies_is_refused(edge: Edge) -> None:
    turn = await edge.send("hi")
    path = f"/conversations/{turn['conversation']['id']}/replies"
    for parent, status in ((turn["reply"]["id"], 400), ("nope", 404)):
        assert (await edge.call("GET", f"{path}?parent={parent}")).status_code == status
    assert (await edge.call("GET", path)).status_code == 400


async def test_messages_with_several_replies_are_listed(edge: Edge) -> None:
    assert (await edge.call("GET", "/comparisons")).json() == {"comparisons": []}
    turn = await edge.send("hi there", title="T")
    await reply_again(edge, turn)
    (one,) = (await edge.call("GET", "/comparisons")).json()["comparisons"]
    assert one.pop("created_at") > 0
    assert one == {
        "conversation": turn["conversation"]["id"],
        "title": "T",
        "message": turn["message"]["id"],
        "text": "hi there",
        "replies": 2,
    }
    assert (await edge.call("GET", "/comparisons?limit=0")).status_code == 400
