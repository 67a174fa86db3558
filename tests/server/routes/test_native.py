"""The native API over a real socket, store and registry; only the engine is scripted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeEngine
from support_edge import KEY, Edge, edge_at, sse

from hobnob.server import streams
from hobnob.server.errors import EngineFailed
from hobnob.server.wire import API


@pytest.fixture
async def edge(tmp_path: Path) -> AsyncIterator[Edge]:
    async with edge_at(tmp_path, sockets=False) as opened:
        yield opened


async def stream(edge: Edge, run: str, **fields: Any) -> list[dict[str, str]]:
    answer = await edge.call("GET", f"/runs/{run}/events", **fields)
    assert answer.status_code == 200, answer.text
    return sse(answer.text)


def text_of(events: list[dict[str, str]]) -> str:
    deltas = [e for e in events if e["event"] == "content_block_delta"]
    return "".join(json.loads(e["data"])["text"] for e in deltas)


# ---- turns


async def test_a_first_message_makes_a_conversation_and_says_where_its_reply_streams(
    edge: Edge,
) -> None:
    answer = await edge.call(
        "POST",
        "/conversations/new/messages",
        json={"text": "hi", "system": "Be brief.", "title": "T", "settings": {"temperature": 0}},
    )
    turn = answer.json()
    assert answer.status_code == 202
    assert answer.headers["location"] == f"{API}/runs/{turn['run']['id']}/events"
    assert turn["conversation"]["title"] == "T"
    assert turn["conversation"]["system"] == "Be brief."
    assert turn["conversation"]["settings"] == {"temperature": 0}
    assert (turn["message"]["role"], turn["message"]["text"]) == ("user", "hi")
    assert turn["reply"]["parent"] == turn["message"]["id"]
    assert turn["run"]["message"] == turn["reply"]["id"]


async def test_the_stream_is_numbered_and_its_deltas_are_the_stored_text(edge: Edge) -> None:
    turn = await edge.send()
    events = await stream(edge, turn["run"]["id"])
    numbers = [int(event["id"]) for event in events if "id" in event]
    assert numbers == list(range(1, len(numbers) + 1))
    assert [event["event"] for event in events if "id" in event][-1] == "message_stop"
    branch = await edge.call("GET", f"/conversations/{turn['conversation']['id']}/messages")
    reply = branch.json()["messages"][-1]
    assert text_of(events) == reply["text"] == "Hello, world!"
    assert reply["status"] == "completed"


async def test_retry_is_told_once_and_never_in_a_block_of_its_own(edge: Edge) -> None:
    events = await stream(edge, (await edge.send())["run"]["id"])
    assert [index for index, event in enumerate(events) if "retry" in event] == [0]
    assert all("data" in event for event in events)


async def test_a_replay_from_any_number_has_exactly_the_rest(edge: Edge) -> None:
    run = (await edge.send())["run"]["id"]
    whole = await stream(edge, run)
    for after in range(len(whole)):
        rest = await stream(edge, run, headers={"Last-Event-ID": str(after)})
        assert [event["data"] for event in rest] == [event["data"] for event in whole[after:]]


async def test_the_header_wins_over_the_address(edge: Edge) -> None:
    run = (await edge.send())["run"]["id"]
    last = len(await stream(edge, run))
    address = f"/runs/{run}/events?after=1"
    events = sse((await edge.call("GET", address, headers={"Last-Event-ID": str(last - 1)})).text)
    assert [event["event"] for event in events] == ["message_stop"]


async def test_a_reconnect_after_the_end_is_told_that_nothing_follows(edge: Edge) -> None:
    run = (await edge.send())["run"]["id"]
    last = len(await stream(edge, run))
    for fields in ({"headers": {"Last-Event-ID": str(last)}}, {"params": {"after": last}}):
        answer = await edge.call("GET", f"/runs/{run}/events", **fields)
        assert (answer.status_code, answer.content) == (204, b"")


@pytest.mark.parametrize("cursor", ["x", "-1", "1.5", "9" * 40, "²"])
async def test_an_odd_cursor_is_refused_before_the_stream_opens(edge: Edge, cursor: str) -> None:
    run = (await edge.send())["run"]["id"]
    headers = {"Last-Event-ID": cursor.encode("latin-1")}
    answer = await edge.call("GET", f"/runs/{run}/events", headers=headers)
    assert answer.status_code == 400
    answer = await edge.call("GET", f"/runs/{run}/events", params={"after": cursor})
    assert answer.status_code == 400


async def test_an_unknown_run_is_refused_before_the_stream_opens(edge: Edge) -> None:
    answer = await edge.call("GET", "/runs/nope/events")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/json"


async def test_a_repeated_post_under_one_key_makes_one_turn(edge: Edge) -> None:
    headers = {"Idempotency-Key": "k-1"}
    path = "/conversations/new/messages"
    first = await edge.call("POST", path, json={"text": "hi"}, headers=headers)
    second = await edge.call("POST", path, json={"text": "hi"}, headers=headers)
    assert second.status_code == 202
    assert second.headers["location"] == first.headers["location"]
    assert (first.json()["created"], second.json()["created"]) == (True, False)
    listed = (await edge.call("GET", "/conversations")).json()["conversations"]
    assert len(listed) == 1


async def test_the_same_key_with_another_body_is_a_conflict(edge: Edge) -> None:
    headers = {"Idempotency-Key": "k-1"}
    path = "/conversations/new/messages"
    await edge.call("POST", path, json={"text": "hi"}, headers=headers)
    answer = await edge.call("POST", path, json={"text": "ho"}, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")


@pytest.mark.parametrize("key", ["a b", "x" * 256, "clé"])
async def test_an_odd_idempotency_key_is_refused(edge: Edge, key: str) -> None:
    answer = await edge.call(
        "POST",
        "/conversations/new/messages",
        json={"text": "hi"},
        headers={"Idempotency-Key": key.encode("latin-1")},
    )
    assert answer.status_code == 400


async def test_a_conversation_goes_on_from_its_head(edge: Edge) -> None:
    turn = await edge.send("one")
    await stream(edge, turn["run"]["id"])
    conversation = turn["conversation"]["id"]
    second = await edge.send("two", conversation[:6])
    assert second["message"]["parent"] == turn["reply"]["id"]


async def test_regenerating_makes_a_sibling(edge: Edge) -> None:
    turn = await edge.send()
    await stream(edge, turn["run"]["id"])
    conversation = turn["conversation"]["id"]
    again = await edge.call(
        "POST", f"/conversations/{conversation}/replies", json={"parent": turn["message"]["id"]}
    )
    assert again.status_code == 202
    branch = (await edge.call("GET", f"/conversations/{conversation}/messages")).json()
    ids = [turn["reply"]["id"], again.json()["reply"]["id"]]
    assert branch["siblings"] == {ids[1]: ids}
    older = await edge.call(
        "GET", f"/conversations/{conversation}/messages", params={"leaf": ids[0]}
    )
    assert [m["id"] for m in older.json()["messages"]][-1] == ids[0]


async def test_a_reply_that_was_cut_goes_on_as_another_version(edge: Edge) -> None:
    sent = {"text": "hi", "options": {"max_tokens": 2}}
    turn = (await edge.call("POST", "/conversations/new/messages", json=sent)).json()
    assert text_of(await stream(edge, turn["run"]["id"])) == "Hello, "
    path = f"/conversations/{turn['conversation']['id']}/replies"
    body = {"continue": turn["reply"]["id"], "options": {"max_tokens": 0}}
    key = {"Idempotency-Key": "k1"}
    answers = [await edge.call("POST", path, json=body, headers=key) for _ in range(2)]
    again, repeated = (answer.json() for answer in answers)
    assert [answer.status_code for answer in answers] == [202, 202]
    assert (again["run"]["id"], repeated["created"]) == (repeated["run"]["id"], False)
    assert again["message"]["id"] == turn["message"]["id"]
    assert again["run"]["params"]["continued"] == {"message": turn["reply"]["id"], "tokens": 2}
    assert text_of(await stream(edge, again["run"]["id"])) == "Hello, world!"


async def test_what_cannot_be_gone_on_with_is_refused(edge: Edge) -> None:
    turn = await edge.send()
    await stream(edge, turn["run"]["id"])
    path = f"/conversations/{turn['conversation']['id']}/replies"
    reply, message = turn["reply"]["id"], turn["message"]["id"]
    refusals: list[tuple[dict[str, Any], int, str | None]] = [
        ({"continue": reply}, 409, None),
        ({"continue": message}, 400, "continue"),
        ({"continue": "nobody"}, 404, None),
        ({"continue": reply, "parent": message}, 400, "parent"),
        ({"continue": reply, "instructions": "x"}, 400, "instructions"),
        ({}, 400, "parent"),
    ]
    for body, status, param in refusals:
        answer = await edge.call("POST", path, json=body)
        error = answer.json()["error"]
        assert (answer.status_code, error.get("param")) == (status, param), error


async def test_a_branch_can_be_read_on_to_its_newest_message(edge: Edge) -> None:
    turn = await edge.send("one")
    await stream(edge, turn["run"]["id"])
    conversation, first = turn["conversation"]["id"], turn["message"]["id"]
    follow_up = await edge.send("two", conversation)
    await stream(edge, follow_up["run"]["id"])
    edited = await edge.call(
        "POST", f"/conversations/{conversation}/messages", json={"text": "1", "parent": "root"}
    )
    await stream(edge, edited.json()["run"]["id"])
    for params, last in (
        ({"leaf": first}, first),
        ({"leaf": first, "newest": "true"}, follow_up["reply"]["id"]),
        ({}, edited.json()["reply"]["id"]),
    ):
        answer = await edge.call("GET", f"/conversations/{conversation}/messages", params=params)
        assert answer.json()["messages"][-1]["id"] == last


async def test_a_branch_is_read_in_pages_from_its_end(edge: Edge) -> None:
    turn = await edge.send("0")
    place = turn["conversation"]["id"]
    for number in range(1, 4):
        await stream(edge, turn["run"]["id"])
        turn = await edge.send(str(number), place, parent=turn["reply"]["id"])
    await stream(edge, turn["run"]["id"])
    path = f"/conversations/{place}/messages"
    whole = (await edge.call("GET", path)).json()
    assert (len(whole["messages"]), whole["earlier"]) == (8, 0)
    found: list[dict[str, Any]] = []
    params: dict[str, Any] = {"limit": 3}
    while page := (await edge.call("GET", path, params=params)).json():
        found[:0] = page["messages"]
        if page["earlier"] == 0:
            break
        assert page["earlier"] == 8 - len(found)
        params["before"] = found[0]["id"]
    assert found == whole["messages"]


@pytest.mark.parametrize(
    "params", [{"limit": 0}, {"limit": 501}, {"limit": "x"}, {"before": "a", "leaf": "b"}]
)
async def test_an_odd_page_is_refused(edge: Edge, params: dict[str, Any]) -> None:
    place = (await edge.send())["conversation"]["id"]
    answer = await edge.call("GET", f"/conversations/{place}/messages", params=params)
    assert answer.status_code == 400
    answer = await edge.call("GET", f"/conversations/{place}/messages", params={"before": "nope"})
    assert answer.status_code == 404


# ---- cancelling


async def test_only_cancel_ends_a_run_and_twice_is_fine(tmp_path: Path) -> None:
    engine = FakeEngine(["word "] * 100_000)
    async with edge_at(tmp_path, engine) as edge:
        run = (await edge.send())["run"]["id"]
        async with edge.client.stream("GET", f"{API}/runs/{run}/events") as answer:
            await anext(answer.aiter_bytes())
        assert edge.runs.live_count == 1  # stopping to read is not stopping the run
        for _ in range(2):
            answer = await edge.call("POST", f"/runs/{run}/cancel")
            assert answer.status_code == 202 and answer.json()["cancel_asked"]
        events = await stream(edge, run)
        assert json.loads(events[-1]["data"])["status"] == "cancelled"
        assert (await edge.call("GET", f"/runs/{run}")).json()["status"] == "cancelled"


async def test_a_stop_tells_every_reader_and_leaves_the_run(tmp_path: Path) -> None:
    engine = FakeEngine(["word "] * 100_000)
    async with edge_at(tmp_path, engine) as edge:
        run = (await edge.send())["run"]["id"]
        reading = asyncio.create_task(stream(edge, run))
        await edge.until(lambda: engine.runs[run].at > 3)
        await edge.runs.stop()
        last = (await reading)[-1]
        assert last["event"] == "error"
        assert "id" not in last
        assert json.loads(last["data"])["code"] == "server_stopping"
        assert (await edge.store.run("local", run)).status in ("queued", "running")


# ---- conversations


async def test_a_conversation_is_made_changed_and_deleted(edge: Edge) -> None:
    made = await edge.call("POST", "/conversations", json={"title": "One", "system": "S"})
    one = made.json()
    assert (made.status_code, one["title"], one["system"]) == (201, "One", "S")
    path = f"/conversations/{one['id']}"
    assert made.headers["location"] == f"{API}{path}"
    changed = await edge.call("PATCH", path, json={"title": "Two"})
    assert (changed.json()["title"], changed.json()["system"]) == ("Two", "S")
    cleared = await edge.call("PATCH", path, json={"system": None})
    assert cleared.json()["system"] is None
    assert cleared.json()["change"] > one["change"]
    assert (await edge.call("DELETE", path)).status_code == 204
    assert (await edge.call("DELETE", path)).status_code == 404
    assert (await edge.call("GET", path)).status_code == 404


async def test_a_beginning_of_an_id_names_a_conversation_wherever_the_id_does(edge: Edge) -> None:
    one = (await edge.call("POST", "/conversations", json={"title": "One"})).json()
    path = f"/conversations/{one['id'][:6]}"
    changed = await edge.call("PATCH", path, json={"title": "Two"})
    assert (changed.status_code, changed.json()["title"]) == (200, "Two")
    assert (await edge.call("GET", path)).json() == changed.json()
    assert (await edge.call("PATCH", path[:-3], json={"title": "Three"})).status_code == 404
    assert (await edge.call("DELETE", path)).status_code == 204


async def test_a_system_prompt_has_the_bound_of_a_message_wherever_it_is_set(
    tmp_path: Path,
) -> None:
    async with edge_at(tmp_path, sockets=False, max_text_bytes=8) as edge:
        fits, too_long = {"system": "é" * 4}, {"system": "é" * 4 + "x"}
        refused = await edge.call("POST", "/conversations", json=too_long)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "system")
        made = (await edge.call("POST", "/conversations", json=fits)).json()
        path = f"/conversations/{made['id']}"
        refused = await edge.call("PATCH", path, json=too_long)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "system")
        assert (await edge.call("GET", path)).json() == made


async def test_pinned_conversations_are_asked_for_apart_from_the_others(edge: Edge) -> None:
    one, other = [
        (await edge.call("POST", "/conversations", json={"title": title})).json()
        for title in ("one", "other")
    ]
    assert one["pinned"] is False
    path = f"/conversations/{one['id']}"
    pinned = (await edge.call("PATCH", path, json={"pinned": True})).json()
    assert pinned == {**one, **{name: pinned[name] for name in ("pinned", "change", "updated_at")}}
    for query, ids in (
        ("", [one["id"], other["id"]]),
        ("?pinned=true", [one["id"]]),
        ("?pinned=false", [other["id"]]),
    ):
        found = (await edge.call("GET", f"/conversations{query}")).json()["conversations"]
        assert [each["id"] for each in found] == ids
    for wrong in (None, 1, "yes"):
        assert (await edge.call("PATCH", path, json={"pinned": wrong})).status_code == 400
    assert (await edge.call("GET", "/conversations?pinned=perhaps")).status_code == 400
    assert (await edge.call("GET", path)).json()["pinned"] is True


async def test_deleting_ends_what_is_being_written(tmp_path: Path) -> None:
    engine = FakeEngine(["word "] * 100_000)
    async with edge_at(tmp_path, engine) as edge:
        turn = await edge.send()
        conversation = turn["conversation"]["id"]
        assert (await edge.call("DELETE", f"/conversations/{conversation}")).status_code == 204
        assert edge.runs.live_count == 0
        assert (await edge.call("GET", f"/runs/{turn['run']['id']}/events")).status_code == 404


async def test_the_list_is_newest_first_and_paged(edge: Edge) -> None:
    for title in ("a", "b", "c"):
        await edge.call("POST", "/conversations", json={"title": title})
    first = (await edge.call("GET", "/conversations", params={"limit": 2})).json()
    titles = [one["title"] for one in first["conversations"]]
    before = first["conversations"][-1]["change"]
    rest = (await edge.call("GET", "/conversations", params={"before": before})).json()
    assert (titles, [one["title"] for one in rest["conversations"]]) == (["c", "b"], ["a"])


@pytest.mark.parametrize("limit", ["0", "-1", "501", "x", "1e9", "9" * 5000])
async def test_an_odd_limit_is_refused_by_name(edge: Edge, limit: str) -> None:
    answer = await edge.call("GET", "/conversations", params={"limit": limit})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "limit")


async def test_a_get_changes_nothing(edge: Edge) -> None:
    turn = await edge.send()
    await stream(edge, turn["run"]["id"])
    conversation, run = turn["conversation"]["id"], turn["run"]["id"]
    before = (await edge.call("GET", f"/conversations/{conversation}")).json()
    for path in ("/conversations", f"/runs/{run}", "/search?q=hi", "/status", "/count?text=a"):
        assert (await edge.call("GET", path)).status_code == 200
    for path in (f"/runs/{run}/cancel", "/stop"):
        assert (await edge.call("GET", path)).status_code == 405
    assert (await edge.call("GET", f"/conversations/{conversation}")).json() == before
    assert not edge.lifecycle.stopping


async def test_ids_of_nobody_are_not_found(edge: Edge) -> None:
    paths = ["/conversations/nope", "/conversations/nope/messages", "/runs/nope"]
    paths += ["/conversations/..%2f..%2fetc", "/runs/%00", "/runs/%ed%a0%bd"]
    for path in paths:
        assert (await edge.call("GET", path)).status_code == 404, path
    for path in ("/conversations/nope/messages", "/conversations/nope/plan"):
        assert (await edge.call("POST", path, json={"text": "x"})).status_code == 404, path


async def test_private_fields_stay_inside(edge: Edge) -> None:
    turn = await edge.send()
    await stream(edge, turn["run"]["id"])
    path = f"/conversations/{turn['conversation']['id']}/messages"
    reply = (await edge.call("GET", path)).json()["messages"][-1]
    assert not {"tokens", "vocab_hash"} & set(reply)
    assert not {"owner", "prompt"} & set(turn["run"])
    assert "owner" not in turn["conversation"]


# ---- search, plan, count


async def test_search_finds_what_was_said(edge: Edge) -> None:
    turn = await edge.send("the quick brown fox")
    hits = (await edge.call("GET", "/search", params={"q": "quick"})).json()["hits"]
    assert [hit["message"] for hit in hits] == [turn["message"]["id"]]


@pytest.mark.parametrize("query", ['"', "a AND", "*", "NEAR(", "col:x", "'; DROP TABLE x", "\x00"])
async def test_any_text_is_a_query(edge: Edge, query: str) -> None:
    assert (await edge.call("GET", "/search", params={"q": query})).status_code == 200


async def test_a_blank_query_is_refused(edge: Edge) -> None:
    assert (await edge.call("GET", "/search", params={"q": " "})).status_code == 400
    assert (await edge.call("GET", "/search")).status_code == 400


async def test_a_plan_says_what_would_be_sent_and_sends_nothing(edge: Edge) -> None:
    answer = await edge.call("POST", "/conversations/new/plan", json={"text": "hi"})
    assert answer.json() == {
        "text_tokens": 2,
        "prompt_tokens": 3,
        "cached_tokens": 0,
        "n_ctx": 4096,
        "included": 1,
        "left_out": [],
    }
    assert edge.engine.submitted == []
    assert (await edge.call("GET", "/conversations")).json() == {"conversations": []}


async def test_a_plan_says_how_much_of_the_prompt_is_there_already(edge: Edge) -> None:
    id = await finished(edge)
    edge.engine.in_cells = 7
    plan = (await edge.call("POST", f"/conversations/{id}/plan", json={"text": "more"})).json()
    assert (plan["text_tokens"], plan["cached_tokens"], plan["included"]) == (4, 7, 3)
    ((prompt, owner, exact),) = edge.engine.looked_up
    assert (len(prompt), owner, exact) == (plan["prompt_tokens"], "local", True)
    sent = await edge.send("more", id)
    assert edge.engine.submitted[-1].prompt == prompt and sent["created"]


async def test_a_plan_is_made_while_the_weights_load_and_says_what_it_does_not_know(
    tmp_path: Path,
) -> None:
    engine = FakeEngine(loading=True)
    async with edge_at(tmp_path, engine, sockets=False) as edge:
        plan = (await edge.call("POST", "/conversations/new/plan", json={"text": "hi"})).json()
        assert (plan["prompt_tokens"], plan["cached_tokens"]) == (3, None)


async def test_without_a_model_a_plan_is_refused_with_the_reason(edge: Edge) -> None:
    edge.engine.fail(message="The file is cut off.")
    answer = await edge.call("POST", "/conversations/new/plan", json={"text": "hi"})
    assert answer.status_code == 503
    assert answer.json()["error"]["message"] == "The file is cut off."


# ---- warming up


async def finished(edge: Edge) -> str:
    """A conversation with one reply."""
    turn = await edge.send()
    await stream(edge, turn["run"]["id"])
    return turn["conversation"]["id"]


async def test_a_warm_up_asks_for_the_history_alone_and_leaves_no_trace(edge: Edge) -> None:
    id = await finished(edge)
    before = (await edge.call("GET", f"/conversations/{id}/messages")).json()
    answers = [await edge.call("POST", f"/conversations/{id}/warm") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[0].json() == {"warming": True}
    first, second = edge.engine.submitted[-2:]
    assert first.warm and first.run == second.run
    assert (await edge.call("GET", f"/conversations/{id}/messages")).json() == before
    assert (await edge.call("GET", "/status")).json()["runs"]["live"] == 0
    edge.engine.runs.clear()
    await edge.send("next", id)
    prompt = edge.engine.submitted[-1].prompt
    assert prompt[: len(first.prompt)] == first.prompt and len(prompt) > len(first.prompt)


async def test_a_warm_up_is_not_asked_for_while_anything_else_is_wanted(tmp_path: Path) -> None:
    async with edge_at(tmp_path, sockets=False, playing=False) as edge:
        turn = await edge.send()
        id = turn["conversation"]["id"]
        edge.engine.finish_all()
        await stream(edge, turn["run"]["id"])
        await edge.send("other")
        answer = await edge.call("POST", f"/conversations/{id}/warm")
        assert (answer.status_code, answer.json()) == (202, {"warming": False})
        assert not any(submit.warm for submit in edge.engine.submitted)


async def test_an_empty_conversation_or_an_engine_that_is_away_is_not_warmed(edge: Edge) -> None:
    empty = (await edge.call("POST", "/conversations", json={})).json()["id"]
    full = await finished(edge)
    assert (await edge.call("POST", f"/conversations/{empty}/warm")).json() == {"warming": False}
    edge.engine.die()
    assert (await edge.call("POST", f"/conversations/{full}/warm")).json() == {"warming": False}
    assert (await edge.call("POST", "/conversations/ffffffff/warm")).status_code == 404


async def test_a_warm_up_whose_text_the_engine_dies_of_is_not_now_and_no_fault_of_the_server(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = await finished(edge)

    async def dies(*_: object, **__: object) -> list[int]:
        raise EngineFailed("The prompt could not be read. The engine was ended by SIGKILL.")

    monkeypatch.setattr(edge.engine, "render", dies)
    answer = await edge.call("POST", f"/conversations/{id}/warm")
    assert (answer.status_code, answer.json()) == (202, {"warming": False})


async def test_tokens_are_counted_from_an_address_or_a_body(edge: Edge) -> None:
    assert (await edge.call("GET", "/count", params={"text": "four"})).json() == {"tokens": 4}
    long = "x" * 200_000
    assert (await edge.call("POST", "/count", json={"text": long})).json() == {"tokens": 200_000}


# ---- bad input


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "text"),
        ({"text": ""}, "text"),
        ({"text": " \n"}, "text"),
        ({"text": 5}, "text"),
        ({"text": None}, "text"),
        ({"text": "x", "bogus": 1}, "bogus"),
        ({"text": "x", "options": []}, "options"),
        ({"text": "x", "options": {"temperature": "hot"}}, "temperature"),
        ({"text": "x", "options": {"bogus": 1}}, "bogus"),
        ({"text": "x", "settings": {"top_p": 2}}, "top_p"),
        ({"text": "x", "title": "t" * 501}, "title"),
    ],
)
async def test_a_wrong_body_is_refused_with_the_field_named(
    edge: Edge, body: dict[str, Any], param: str
) -> None:
    answer = await edge.call("POST", "/conversations/new/messages", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert (await edge.call("GET", "/conversations")).json() == {"conversations": []}


NUMBERS = [
    ("temperature", "NaN"),
    ("top_p", "Infinity"),
    ("presence_penalty", "-Infinity"),
    ("temperature", "1e999"),
    ("seed", "1e30"),
    ("seed", "-2"),
    ("top_k", "99999999999999999999"),
    ("seed", "1" + "0" * 400),
    ("temperature", "1" + "0" * 400),
    ("max_tokens", "true"),
    ("min_p", '"0.5"'),
]


@pytest.mark.parametrize(("name", "value"), NUMBERS)
async def test_edge_values_of_numbers_are_refused_by_name(
    edge: Edge, name: str, value: str
) -> None:
    body = f'{{"text": "x", "options": {{"{name}": {value}}}}}'.encode()
    answer = await edge.raw(f"{API}/conversations/new/messages", body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, name)
    assert (await edge.call("GET", "/health")).status_code == 200


async def test_a_lone_surrogate_becomes_a_replacement_character_everywhere(edge: Edge) -> None:
    path = f"{API}/conversations/new/messages"
    body = rb'{"text": "half \ud83d emoji", "system": "\udc00", "title": "\ud800",'
    body += rb' "settings": {"stop": ["\ud83d"]}}'
    turn = (await edge.raw(path, body)).json()
    assert turn["message"]["text"] == "half \ufffd emoji"
    assert turn["conversation"]["system"] == turn["conversation"]["title"] == "\ufffd"
    assert turn["conversation"]["settings"] == {"stop": ["\ufffd"]}
    await stream(edge, turn["run"]["id"])
    second = await edge.send("and on", turn["conversation"]["id"])
    await stream(edge, second["run"]["id"])


async def test_a_surrogate_pair_is_one_character_and_stays(edge: Edge) -> None:
    body = rb'{"text": "\ud83d\ude00"}'
    turn = (await edge.raw(f"{API}/conversations/new/messages", body)).json()
    assert turn["message"]["text"] == "\U0001f600"


async def test_a_surrogate_in_raw_bytes_or_in_a_name_is_no_fault_of_the_server(edge: Edge) -> None:
    path = f"{API}/conversations/new/messages"
    turn = (await edge.raw(path, b'{"text": "\xed\xa0\xbd"}')).json()
    assert turn["message"]["text"] == "\ufffd"
    answer = await edge.raw(path, rb'{"text": "x", "\ud83d": 1}')
    assert answer.status_code == 400


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le"])
async def test_a_body_of_another_encoding_than_utf_8_is_refused(edge: Edge, encoding: str) -> None:
    for text in ("whole", "half \ud83d"):
        body = f'{{"text": "{text}"}}'.encode(encoding, "surrogatepass")
        answer = await edge.raw(f"{API}/conversations/new/messages", body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
    assert (await edge.call("GET", "/conversations")).json() == {"conversations": []}


async def test_a_byte_order_mark_before_utf_8_is_passed_over(edge: Edge) -> None:
    body = '{"text": "\ufeffé"}'.encode("utf-8-sig")
    turn = (await edge.raw(f"{API}/conversations/new/messages", body)).json()
    assert turn["message"]["text"] == "\ufeffé"


async def test_fields_of_a_new_conversation_are_refused_on_an_existing_one(edge: Edge) -> None:
    turn = await edge.send()
    await stream(edge, turn["run"]["id"])
    path = f"/conversations/{turn['conversation']['id']}/messages"
    answer = await edge.call("POST", path, json={"text": "x", "system": "other"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "system")


async def test_a_prompt_over_the_window_is_told_both_numbers_and_nothing_is_stored(
    tmp_path: Path,
) -> None:
    async with edge_at(tmp_path, FakeEngine(n_ctx=64), sockets=False) as edge:
        answer = await edge.call("POST", "/conversations/new/messages", json={"text": "x" * 100})
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (400, "context_length_exceeded")
        assert (error["n_prompt_tokens"], error["n_ctx"]) == (101, 64)
        assert (await edge.call("GET", "/conversations")).json() == {"conversations": []}


async def test_an_overload_is_refused_with_a_time_to_come_back(tmp_path: Path) -> None:
    async with edge_at(
        tmp_path, playing=False, max_running=1, max_waiting=0, sockets=False
    ) as edge:
        await edge.send()
        answer = await edge.call("POST", "/conversations/new/messages", json={"text": "x"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "server_overloaded")
        assert int(answer.headers["retry-after"]) >= 1


async def test_loading_is_told_in_the_stream_while_the_request_waits(tmp_path: Path) -> None:
    engine = FakeEngine(loading=True)
    async with edge_at(tmp_path, engine) as edge:
        run = (await edge.send())["run"]["id"]
        said = ""
        async with edge.client.stream("GET", f"{API}/runs/{run}/events") as answer:
            async for part in answer.aiter_text():
                said += part
                if "event: loading" in said and engine.status.ready is None:
                    engine.get_ready()
        assert text_of(sse(said)) == "Hello, world!"


async def test_a_silent_stream_shows_that_it_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "PING_SECONDS", 0.02)
    engine = FakeEngine(loading=True)
    async with edge_at(tmp_path, engine) as edge:
        run = (await edge.send())["run"]["id"]
        said = ""
        async with edge.client.stream("GET", f"{API}/runs/{run}/events") as answer:
            async for part in answer.aiter_text():
                said += part
                if said.count(": ping") >= 3 and engine.status.ready is None:
                    engine.get_ready()
        assert text_of(sse(said)) == "Hello, world!"


async def test_where_waiting_is_off_a_loading_model_is_a_refusal(tmp_path: Path) -> None:
    engine = FakeEngine(loading=True)
    async with edge_at(tmp_path, engine, wait_for_model=False, sockets=False) as edge:
        answer = await edge.call("POST", "/conversations/new/messages", json={"text": "x"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_loading")
        assert "retry-after" in answer.headers


async def test_the_key_is_needed_on_every_route(edge: Edge) -> None:
    for method, path in edge.routes():
        if path in ("/health", f"{API}/health"):
            continue
        answer = await edge.client.request(method, path, headers={"authorization": "Bearer x"})
        assert answer.status_code == 401, (method, path)
        assert KEY not in answer.text
