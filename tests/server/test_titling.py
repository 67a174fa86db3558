"""Titles by the model, over a real store and a scripted engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeEngine
from support_edge import PATIENCE_SECONDS, Edge, edge_at

from hobnob.server import titling
from hobnob.server.engine.protocol import Submit
from hobnob.server.titling import REQUEST, Titling
from hobnob.store.values import LOCAL_OWNER as ME

SAID = "Hello, world!"
ASKED = "how do I tie a bowline"


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(titling, "LOOK_SECONDS", 0.005)


@pytest.fixture
async def edge(tmp_path: Path) -> AsyncIterator[Edge]:
    """Where the model is asked only by hand."""
    async with edge_at(tmp_path) as opened:
        yield opened


@pytest.fixture
async def slow(tmp_path: Path) -> AsyncIterator[Edge]:
    """Where the engine does what the test says, and titles are the model's."""
    async with edge_at(tmp_path, playing=False) as opened, titles_of(opened):
        yield opened


class titles_of:
    """The task that asks, as long as the block lasts."""

    def __init__(self, edge: Edge) -> None:
        self._titling = Titling(edge.store, edge.runs)

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._titling.run())

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


async def title_of(edge: Edge, turn: dict[str, Any]) -> str:
    return (await edge.store.conversation(ME, turn["conversation"]["id"])).title


async def until_called(edge: Edge, turn: dict[str, Any], title: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await title_of(edge, turn) != title:
            await asyncio.sleep(0.005)


def questions(engine: FakeEngine) -> list[Submit]:
    """What was submitted and is no reply: it begins no log."""
    asked = [one[-1].text for one in engine.rendered]
    return [] if REQUEST not in asked else [one for one in engine.submitted if one.sampling.stop]


async def replied(edge: Edge, text: str = ASKED, place: str = "new", **fields: Any) -> Any:
    turn = await edge.send(text, place, **fields)
    await edge.until(lambda: edge.engine.runs)
    edge.engine.finish_all()
    await edge.until(lambda: not edge.runs.unsaved_count)
    return turn


async def asks(edge: Edge, count: int = 1) -> Submit:
    await edge.until(lambda: len(questions(edge.engine)) == count)
    return questions(edge.engine)[-1]


async def settled(edge: Edge) -> None:
    """Long enough for a question that nobody should ask."""
    await asyncio.sleep(0.1)
    assert edge.runs.live_count == 0


async def test_after_the_first_reply_the_model_is_asked_and_its_title_reaches_everybody(
    slow: Edge,
) -> None:
    turn = await replied(slow)
    before = await slow.store.last_change()
    submit = await asks(slow)
    assert not submit.interactive and submit.sampling.temperature == 0
    assert submit.sampling.max_tokens == titling.TITLE_TOKENS
    assert [one.text for one in slow.engine.rendered[-1]] == [ASKED, SAID, REQUEST]
    slow.engine.finish_all()
    await until_called(slow, turn, SAID)
    changes = await slow.store.changes(ME, before)
    assert changes is not None and [one.id for one in changes] == [turn["conversation"]["id"]]


async def test_nothing_of_the_question_stays_and_it_is_asked_once(slow: Edge) -> None:
    turn = await replied(slow)
    await asks(slow)
    slow.engine.finish_all()
    await until_called(slow, turn, SAID)
    place = turn["conversation"]["id"]
    tree = await slow.store.messages(ME, place)
    assert [message.text for message in tree] == [ASKED, SAID]
    assert (await slow.store.conversation(ME, place)).head == turn["reply"]["id"]
    assert not await slow.store.in_flight()
    await replied(slow, "and a sheet bend", place)
    assert [one.text for one in slow.engine.rendered[-1]] == [ASKED, SAID, "and a sheet bend"]
    await settled(slow)
    assert len(questions(slow.engine)) == 1


async def test_the_conversations_own_options_do_not_reach_the_question(slow: Edge) -> None:
    settings = {"temperature": 1.5, "stop": ["bow"], "response_format": {"type": "json_object"}}
    await replied(slow, settings=settings)
    await slow.until(lambda: len(slow.engine.submitted) == 2)
    sampling = slow.engine.submitted[-1].sampling
    assert (sampling.temperature, sampling.stop, sampling.response_format) == (0, ["\n"], {})


@pytest.mark.parametrize("fields", [{"title": "mine"}, {"temporary": True}])
async def test_a_title_of_the_users_and_a_temporary_conversation_stay(
    slow: Edge, fields: dict[str, Any]
) -> None:
    turn = await replied(slow, **fields)
    await settled(slow)
    assert questions(slow.engine) == []
    assert await title_of(slow, turn) == fields.get("title", ASKED)


async def test_a_title_that_is_set_meanwhile_stays(slow: Edge) -> None:
    turn = await replied(slow)
    await asks(slow)
    place = turn["conversation"]["id"]
    await slow.call("PATCH", f"/conversations/{place}", json={"title": "mine"})
    slow.engine.finish_all()
    await settled(slow)
    assert await title_of(slow, turn) == "mine"


async def test_a_reply_that_was_stopped_brings_no_title_but_the_first_whole_one_does(
    slow: Edge,
) -> None:
    turn = await slow.send(ASKED)
    await slow.until(lambda: slow.engine.runs)
    slow.engine.step()
    await slow.call("POST", f"/runs/{turn['run']['id']}/cancel")
    slow.engine.finish_all()
    await slow.until(lambda: not slow.runs.unsaved_count)
    await settled(slow)
    assert questions(slow.engine) == []
    await replied(slow, "go on", turn["conversation"]["id"])
    await asks(slow)
    slow.engine.finish_all()
    await until_called(slow, turn, SAID)


async def test_who_comes_has_the_engine_at_once_and_the_question_is_asked_again(
    slow: Edge,
) -> None:
    first = await replied(slow)
    asked = await asks(slow)
    other = await slow.send("another")
    await slow.until(lambda: other["run"]["id"] in slow.engine.runs)
    assert slow.engine.cancelled == [asked.run]
    slow.engine.step()
    assert asked.run not in slow.engine.runs
    await asyncio.sleep(0.05)
    assert len(questions(slow.engine)) == 1  # not while the other is written
    slow.engine.finish_all()
    await asks(slow, 2)
    slow.engine.finish_all()
    await until_called(slow, first, SAID)
    await asks(slow, 3)
    slow.engine.finish_all()
    await until_called(slow, other, SAID)


async def test_a_question_takes_no_place_of_a_queue_without_places(tmp_path: Path) -> None:
    narrow = {"max_running": 1, "max_waiting": 0}
    async with edge_at(tmp_path, playing=False, **narrow) as edge, titles_of(edge):
        await replied(edge)
        await asks(edge)
        await replied(edge, "another")


async def test_it_is_not_asked_for_ever(slow: Edge) -> None:
    turn = await replied(slow)
    place = turn["conversation"]["id"]
    for number in range(titling.ATTEMPTS):
        await asks(slow, number + 1)
        await replied(slow, "more", place)
    await settled(slow)
    assert len(questions(slow.engine)) == titling.ATTEMPTS
    assert await title_of(slow, turn) == ASKED


async def test_a_death_of_the_engine_does_not_bring_the_question_back_by_itself(
    slow: Edge,
) -> None:
    turn = await replied(slow)
    asked = await asks(slow)
    slow.engine.die_and_restart()
    await asks(slow, 2)
    assert [one.run for one in slow.engine.submitted].count(asked.run) == 1
    slow.engine.finish_all()
    await until_called(slow, turn, SAID)


async def test_a_deleted_conversation_takes_its_question_along(slow: Edge) -> None:
    turn = await replied(slow)
    asked = await asks(slow)
    deleting = asyncio.create_task(
        slow.call("DELETE", f"/conversations/{turn['conversation']['id']}")
    )
    await slow.until(lambda: asked.run in slow.engine.cancelled)
    slow.engine.finish_all()
    assert (await deleting).status_code == 204
    await settled(slow)


async def test_a_stop_of_the_server_does_not_wait_for_the_question(tmp_path: Path) -> None:
    async with edge_at(tmp_path, playing=False) as edge:
        async with titles_of(edge):
            turn = await replied(edge)
            await asks(edge)
            async with asyncio.timeout(1):
                await edge.runs.stop()
        assert await title_of(edge, turn) == ASKED
    async with edge_at(tmp_path) as edge, titles_of(edge):
        await settled(edge)
        assert edge.engine.submitted == []


async def test_a_reply_that_is_no_title_leaves_the_words(tmp_path: Path) -> None:
    engine = FakeEngine(script=["<think>", "who knows"])
    async with edge_at(tmp_path, engine, playing=False) as edge, titles_of(edge):
        turn = await replied(edge)
        await asks(edge)
        engine.finish_all()
        await settled(edge)
        assert await title_of(edge, turn) == ASKED


# ---- by hand ----------------------------------------------------------------------------------


async def ask(edge: Edge, turn: dict[str, Any]) -> Any:
    return await edge.call("POST", f"/conversations/{turn['conversation']['id']}/title")


async def whole(edge: Edge, **fields: Any) -> Any:
    turn = await edge.send(ASKED, **fields)
    await edge.call("GET", f"/runs/{turn['run']['id']}/events")
    return turn


async def test_a_title_that_is_asked_for_replaces_the_one_there_is(edge: Edge) -> None:
    turn = await whole(edge, title="mine")
    answer = await ask(edge, turn)
    assert answer.status_code == 200
    assert answer.json()["titled"] is True
    assert answer.json()["conversation"]["title"] == SAID
    assert len(await edge.store.messages(ME, turn["conversation"]["id"])) == 2


async def test_a_title_set_while_one_is_found_stays(tmp_path: Path) -> None:
    async with edge_at(tmp_path, playing=False) as edge:
        turn = await replied(edge)
        asking = asyncio.create_task(ask(edge, turn))
        await edge.until(lambda: edge.engine.runs)
        await edge.store.update_conversation(ME, turn["conversation"]["id"], title="mine")
        edge.engine.finish_all()
        answer = (await asking).json()
        assert (answer["titled"], answer["conversation"]["title"]) == (False, "mine")


async def test_without_a_reply_or_beside_one_there_is_nothing_to_ask(tmp_path: Path) -> None:
    async with edge_at(tmp_path, playing=False) as edge:
        empty = (await edge.call("POST", "/conversations", json={})).json()
        answer = await edge.call("POST", f"/conversations/{empty['id']}/title")
        assert answer.status_code == 409
        assert (await ask(edge, await edge.send(ASKED))).status_code == 409
        assert (await edge.call("POST", "/conversations/nobody/title")).status_code == 404


async def test_by_hand_it_is_a_run_like_others(tmp_path: Path) -> None:
    async with edge_at(tmp_path, playing=False) as edge:
        turn = await replied(edge)
        asking = asyncio.create_task(ask(edge, turn))
        await edge.until(lambda: edge.engine.runs)
        await edge.send("another")
        assert edge.engine.cancelled == []
        edge.engine.finish_all()
        assert (await asking).json()["titled"] is True


async def test_whoever_asks_is_told_that_the_server_stops(tmp_path: Path) -> None:
    async with edge_at(tmp_path, playing=False) as edge:
        turn = await replied(edge)
        asking = asyncio.create_task(ask(edge, turn))
        await edge.until(lambda: edge.engine.runs)
        await edge.runs.stop()
        answer = await asking
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "server_stopping")
