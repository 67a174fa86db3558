"""`/compact`: what is older becomes a summary, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from fake_engine import FakeEngine
from support_app import running, screen_text, until
from support_edge import KEY, Edge, edge_at

from hobnob.launch import Target
from hobnob.paths import Paths
from hobnob.tui import compaction
from hobnob.tui.client import Client
from hobnob.tui.compaction import REQUEST, Stop, compact, divide
from hobnob.tui.line import Line
from hobnob.tui.notice import ClientError
from hobnob.tui.talk import Talk
from hobnob.tui.transcript import ASSISTANT, TEXT, USER, Entry, Part

SAID = "Hello, world!"


def entries(*texts: str) -> list[Entry]:
    """User and assistant in turn."""
    return [
        Entry(
            id=f"m{number}",
            role=ASSISTANT if number % 2 else USER,
            parts=[Part(TEXT, text, ended=True)],
            parent=f"m{number - 1}" if number else None,
        )
        for number, text in enumerate(texts)
    ]


def test_the_last_two_turns_are_kept() -> None:
    cut = divide(entries("a", "b", "c", "d", "e", "f", "g", "h"), 0)
    assert cut == compaction.Cut("m3", "m4", "m7", 4)
    assert divide(entries("a", "b", "c", "d", "e", "f"), 10) == compaction.Cut("m1", "m2", "m5", 12)


def test_what_is_short_or_not_at_an_end_is_left_as_it_is() -> None:
    assert divide([], 0) is None
    assert divide(entries("a", "b", "c", "d"), 0) is None
    assert divide(entries("a", "b", "c", "d", "e", "f", "g"), 0) is None
    assert divide(entries(REQUEST, "b", "c", "d", "e", "f"), 0) is None
    assert divide(entries(REQUEST, "b", "c", "d", "e", "f", "g", "h"), 0) is not None


class Engine(FakeEngine):
    """While it `waits` it does nothing but end what is cancelled."""

    waits = False

    def step(self, *runs: str) -> None:
        chosen = [id for id, run in self.runs.items() if run.cancelled] if self.waits else runs
        if chosen or not self.waits:
            super().step(*chosen)


@dataclass
class Place:
    edge: Edge
    engine: Engine
    target: Target
    talk: Talk


@asynccontextmanager
async def talking(path: Path, turns: int) -> AsyncIterator[Place]:
    """A conversation of so many turns with a real server, open."""
    engine = Engine()
    async with edge_at(path / "server", engine) as edge:
        target = Target(Paths.home({"HOBNOB_HOME": str(path)}), edge.url, KEY)
        async with Client(target) as client:
            line = Line()
            line.open(client)
            talk = Talk(line)
            for number in range(turns):
                reply = await talk.send(talk.prepare(f"q{number}"))
                await talk.follow(reply, lambda _: None)
            yield Place(edge, engine, target, talk)


async def test_it_goes_on_with_the_summary_and_the_last_turns(tmp_path: Path) -> None:
    async with talking(tmp_path, 4) as here:
        told: list[str] = []
        said = await compact(here.talk, Stop(), told.append)
        assert told == ["summing up the first 4 messages…"]
        assert said.startswith("The first 4 messages are a summary now.")
        shown = [one.text for one in here.talk.entries]
        assert shown == [REQUEST, SAID, "q2", SAID, "q3", SAID]
        await here.talk.follow(await here.talk.send(here.talk.prepare("q4")), lambda _: None)
        asked = [one.text for one in here.engine.rendered[-1]]
        assert asked == [REQUEST, SAID, "q2", SAID, "q3", SAID, "q4"]


async def test_all_of_it_is_the_other_version_of_the_first_message(tmp_path: Path) -> None:
    async with talking(tmp_path, 4) as here:
        before = [one.id for one in here.talk.entries]
        await compact(here.talk, Stop(), lambda _: None)
        assert await here.talk.switch(here.talk.entries[0], -1) is not None
        assert [one.id for one in here.talk.entries] == before
        assert await here.talk.switch(here.talk.entries[0], 1) is not None
        assert here.talk.entries[0].text == REQUEST and len(here.talk.entries) == 6


async def test_the_summary_is_text_whatever_form_the_replies_are_held_to(tmp_path: Path) -> None:
    async with talking(tmp_path, 4) as here:
        held = {"response_format": {"type": "json_object"}}
        assert here.talk.id is not None
        await here.edge.call("PATCH", f"/conversations/{here.talk.id}", json={"settings": held})
        await compact(here.talk, Stop(), lambda _: None)
        assert here.engine.submitted[-1].sampling.response_format == {}
        await here.talk.follow(await here.talk.send(here.talk.prepare("q4")), lambda _: None)
        assert here.engine.submitted[-1].sampling.response_format == {"type": "json_object"}


async def test_a_short_one_sends_nothing(tmp_path: Path) -> None:
    async with talking(tmp_path, 2) as here:
        assert "nothing to sum up" in await compact(here.talk, Stop(), lambda _: None)
        assert len(here.engine.submitted) == 2


async def test_again_it_sums_up_the_summary_too(tmp_path: Path) -> None:
    async with talking(tmp_path, 3) as here:
        await compact(here.talk, Stop(), lambda _: None)
        assert "nothing to sum up" in await compact(here.talk, Stop(), lambda _: None)
        await here.talk.follow(await here.talk.send(here.talk.prepare("q3")), lambda _: None)
        assert "first 4 messages" in await compact(here.talk, Stop(), lambda _: None)
        asked = [one.text for one in here.engine.rendered[-1]]
        assert asked == [REQUEST, SAID, "q1", SAID, REQUEST]


async def test_stopped_it_leaves_the_conversation_as_it_was(tmp_path: Path) -> None:
    async with talking(tmp_path, 4) as here:
        before = [one.id for one in here.talk.entries]
        here.engine.waits = True
        stop = Stop()
        doing = asyncio.ensure_future(compact(here.talk, stop, lambda _: None))
        await here.edge.until(lambda: len(here.engine.submitted) == 5)
        stop.ask()
        said = await doing
        assert said.startswith("Not compacted: the summary was stopped.")
        assert [one.id for one in here.talk.entries] == before
        await here.talk.open(str(here.talk.id))
        assert [one.id for one in here.talk.entries] == before


@pytest.mark.parametrize(
    ("script", "why"), [([], "the model wrote nothing"), (["w "] * 2000, "cut before its end")]
)
async def test_a_summary_that_is_none_changes_nothing(
    tmp_path: Path, script: list[str], why: str
) -> None:
    async with talking(tmp_path, 4) as here:
        here.engine.script = script
        said = await compact(here.talk, Stop(), lambda _: None)
        assert why in said and len(here.talk.entries) == 8


async def test_a_server_that_refuses_it_is_told_in_words(tmp_path: Path) -> None:
    async with talking(tmp_path, 4) as here:
        here.engine.template_error = "no such order"
        with pytest.raises(ClientError, match="no such order"):
            await compact(here.talk, Stop(), lambda _: None)
        assert len(here.talk.entries) == 8


async def test_in_the_app_the_screen_stays_until_it_is_done(tmp_path: Path) -> None:
    async with talking(tmp_path, 4) as here:
        async with running(Client(here.target), tmp_path, conversation=here.talk.id) as pilot:
            await until(pilot, lambda: len(pilot.app.talk.entries) == 8)
            pilot.app.chat.composer.put("/compact")
            await pilot.press("enter")
            await until(pilot, lambda: len(pilot.app.talk.entries) == 6)
            await until(pilot, lambda: not pilot.app.chat.busy)
            assert [one.text for one in pilot.app.talk.entries][2:] == ["q2", SAID, "q3", SAID]
            await until(pilot, lambda: "and nothing else." in screen_text(pilot))


async def test_in_the_app_esc_stops_it(tmp_path: Path) -> None:
    async with talking(tmp_path, 4) as here:
        here.engine.waits = True
        async with running(Client(here.target), tmp_path, conversation=here.talk.id) as pilot:
            await until(pilot, lambda: len(pilot.app.talk.entries) == 8)
            pilot.app.chat.composer.put("/compact")
            await pilot.press("enter")
            await until(pilot, lambda: "Esc stops it" in screen_text(pilot))
            await pilot.press("escape")
            await until(pilot, lambda: not pilot.app.chat.busy)
            assert len(pilot.app.talk.entries) == 8
            assert "Esc stops it" not in screen_text(pilot)
