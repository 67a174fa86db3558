"""While one thing takes long, everything else goes on: the real server, asked for several at once.

How long an answer took is not looked at, but how many came before the slow one had its own.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx
import pytest
from support_e2e import WAIT_SECONDS, Home, kill

from hobnob.paths import Paths
from hobnob.server.wire import API

T = TypeVar("T")

pytestmark = pytest.mark.alone
PAUSE_SECONDS = 0.02
UNITS = ("a", " ", "\n", "aA", "é", "𝔘", "\t ", "\u200d", "\u0301", "7")
ENDLESS = {"max_tokens": 3000, "ignore_eos": True}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    home = Home(tmp_path_factory.mktemp("alongside") / "home", threads=0)
    started = home.run("ask", "-o", "max_tokens", "1", "hi")
    assert started.returncode == 0, started.stderr.decode()
    yield home
    home.stop()


@pytest.fixture(scope="module")
def settings(home: Home) -> dict[str, Any]:
    host, port = home.address()
    headers = {"x-api-key": home.key()}
    base = f"http://{host}:{port}"
    return {"base_url": base, "headers": headers, "timeout": WAIT_SECONDS, "trust_env": False}


@pytest.fixture
async def client(settings: dict[str, Any]) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(**settings) as client:
        yield client


@dataclass
class Reply:
    """One that is read while it is written."""

    run: str
    events: list[str] = field(default_factory=list)
    over: bool = False

    @property
    def deltas(self) -> int:
        return self.events.count("content_block_delta")

    async def read(self, client: httpx.AsyncClient) -> None:
        try:
            async with client.stream("GET", f"{API}/runs/{self.run}/events") as stream:
                assert stream.status_code == 200
                async for line in stream.aiter_lines():
                    if line.startswith("event: "):
                        self.events.append(line.removeprefix("event: "))
        finally:
            self.over = True


async def ask(client: httpx.AsyncClient, text: str, **options: Any) -> Reply:
    answer = await client.post(
        f"{API}/conversations/new/messages", json={"text": text, "options": options}
    )
    assert answer.status_code == 202, answer.text
    told = answer.json()
    return Reply(told["run"]["id"])


@asynccontextmanager
async def endless(client: httpx.AsyncClient) -> AsyncIterator[Reply]:
    """A reply that goes on as long as anybody likes; cancelled and whole at the end."""
    reply = await ask(client, "Count for ever.", **ENDLESS)
    reading = asyncio.create_task(reply.read(client))
    await grown(reply, 0)
    yield reply
    assert not reply.over, "the stream was broken off"
    await client.post(f"{API}/runs/{reply.run}/cancel")
    await reading
    assert reply.events[-1] == "message_stop"


async def grown(reply: Reply, deltas: int) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while reply.deltas <= deltas:
            assert not reply.over, f"the reply ended: {reply.events[-3:]}"
            await asyncio.sleep(PAUSE_SECONDS)


async def healthy(client: httpx.AsyncClient) -> str:
    answer = await client.get("/health")
    assert answer.status_code == 200
    state: str = answer.json()["state"]
    return state


async def meanwhile(client: httpx.AsyncClient, slow: Awaitable[T]) -> tuple[T, list[str]]:
    """What came of the slow thing, and what `/health` answered before that."""
    going, states = asyncio.ensure_future(slow), list[str]()
    while not going.done():
        states.append(await healthy(client))
        await asyncio.sleep(PAUSE_SECONDS)
    return await going, states[:-1]


async def test_a_long_prompt_is_read_while_others_are_answered_and_written_to(
    client: httpx.AsyncClient,
) -> None:
    async with endless(client) as other:
        before = other.deltas
        text = " ".join(f"The number {n} comes after {n - 1}." for n in range(1, 50))
        long = await ask(client, text, max_tokens=1)
        _, states = await meanwhile(client, long.read(client))
        assert long.events[-1] == "message_stop"
        assert "prefill" in long.events
        assert len(states) > 10
        assert other.deltas > before + 3


async def test_long_runs_of_one_character_are_counted_while_others_are_answered_and_written_to(
    client: httpx.AsyncClient,
) -> None:
    texts = [unit * (60_000 // len(unit)) for unit in UNITS]

    async def counted() -> list[httpx.Response]:
        asking = (client.post(f"{API}/count", json={"text": text}) for text in texts)
        return await asyncio.gather(*asking)

    async with endless(client) as other:
        before = other.deltas
        answers, states = await meanwhile(client, counted())
        assert [answer.status_code for answer in answers] == [200] * len(texts)
        assert all(0 < answer.json()["tokens"] <= 4 * 60_000 for answer in answers)
        assert len(states) > 3
        await grown(other, before + 3)


async def test_a_message_of_one_character_over_and_over_is_refused_if_it_does_not_fit(
    client: httpx.AsyncClient,
) -> None:
    async with endless(client) as other:
        before = other.deltas
        for unit in UNITS:
            text = unit * (100_000 // len(unit.encode()))
            for body in ({"text": text}, {"text": "hi", "system": text}):
                answer = await client.post(f"{API}/conversations/new/messages", json=body)
                if unit == " " and "system" in body:  # one token for many
                    assert answer.status_code == 202
                    run = answer.json()["run"]["id"]
                    await client.post(f"{API}/runs/{run}/cancel")
                    continue
                blank = not body["text"].strip()
                code = "empty_prompt" if blank else "context_length_exceeded"
                assert (answer.status_code, answer.json()["error"]["code"]) == (400, code), unit
        await grown(other, before)


async def test_a_new_engine_loads_its_model_while_others_are_answered(
    home: Home, client: httpx.AsyncClient
) -> None:
    async with endless(client) as other:
        kill(home.status()["engine"]["pid"])

        async def back() -> None:
            while "restarted" not in other.events:
                await asyncio.sleep(PAUSE_SECONDS)
            await grown(other, other.deltas)

        _, states = await meanwhile(client, back())
        assert states.count("restarting") > 10
        assert (await client.get(f"{API}/conversations")).status_code == 200


async def test_a_database_that_another_process_holds_stops_neither_health_nor_reading(
    home: Home, client: httpx.AsyncClient
) -> None:
    path = Paths.home({"HOBNOB_HOME": str(home.path)}).database
    async with endless(client) as other:
        with closing(sqlite3.connect(path, isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            asking = asyncio.create_task(ask(client, "And you?", max_tokens=1))
            for _ in range(30):
                assert await healthy(client) == "ready"
                assert (await client.get(f"{API}/conversations")).status_code == 200
            assert not asking.done(), "it was accepted before it was stored"
            holder.execute("COMMIT")
        reply = await asking
        await reply.read(client)
        assert reply.events[-1] == "message_stop"
        await grown(other, other.deltas)


async def test_logprobs_spell_the_reply_byte_for_byte(client: httpx.AsyncClient) -> None:
    body = {
        "model": "default",
        "messages": [{"role": "user", "content": "Repeat after me: 🙂 café 漢字 🙂"}],
        "temperature": 0,
        "max_tokens": 24,
        "logprobs": True,
        "top_logprobs": 3,
    }
    answer = await client.post("/v1/chat/completions", json=body)
    assert "Infinity" not in answer.text
    choice, usage = answer.json()["choices"][0], answer.json()["usage"]
    content = choice["logprobs"]["content"]
    assert len(content) == usage["completion_tokens"] > 0
    spelled = b"".join(bytes(token["bytes"]) for token in content).decode("utf-8", "replace")
    assert spelled == choice["message"]["content"]
    for token in content:
        assert len(token["top_logprobs"]) == 3
        assert all(top["logprob"] <= 0 for top in [token, *token["top_logprobs"]])
