"""Streams of `/v1`, read by the official clients, and what happens when a client leaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import anthropic
import httpx
import openai
import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from support_http import served

from hobnob.server import streams, wire


def chunk(text: str | None, finish: str | None = None) -> str:
    delta = {} if text is None else {"content": text}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return f"data: {json.dumps({**head, 'choices': [choice]})}\n\n"


def application(
    blocks: Callable[[], AsyncGenerator[str, None]],
    *,
    ping_s: float,
    on_close: Callable[[], None] = lambda: None,
) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        stream = streams.CompletionStream(blocks(), on_close=on_close, ping_s=ping_s)
        await stream(scope, receive, send)

    return app


async def slow_blocks() -> AsyncGenerator[str, None]:
    """Silence before, between and after the pieces, long enough for several keep-alives."""
    for piece in ("Hel", "lo", " \U0001f600"):
        await asyncio.sleep(0.05)
        yield chunk(piece)
    await asyncio.sleep(0.05)
    yield chunk(None, "stop")
    yield "data: [DONE]\n\n"


async def test_the_openai_client_reads_a_stream_with_keep_alives_to_its_end() -> None:
    async with served(application(slow_blocks, ping_s=0.01)) as url:
        async with httpx.AsyncClient(trust_env=False) as plain:
            raw = (await plain.post(url, json={})).content
        http = openai.DefaultAsyncHttpxClient(trust_env=False)
        client = openai.AsyncOpenAI(base_url=url, api_key="k", http_client=http, max_retries=0)
        async with client:
            stream = await client.chat.completions.create(model="m", messages=[], stream=True)
            pieces = [part.choices[0].delta.content or "" async for part in stream]
    assert raw.count(b": ping\n") >= 3
    assert b": ping\n\n" not in raw
    assert b"\nid:" not in raw and b"\nretry:" not in raw
    assert "".join(pieces) == "Hello \U0001f600"


async def test_the_anthropic_client_reads_a_stream_with_keep_alives_to_its_end() -> None:
    """Its own events come with a later route; the frame around them is this one."""

    async def blocks() -> AsyncGenerator[str, None]:
        message: dict[str, Any] = {"id": "m1", "type": "message", "role": "assistant"}
        message |= {"content": [], "model": "m", "stop_reason": None, "stop_sequence": None}
        message["usage"] = {"input_tokens": 1, "output_tokens": 0}
        text = {"type": "text", "text": ""}
        events: list[dict[str, Any]] = [
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": text},
        ]
        events += [
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": piece},
            }
            for piece in ("Hel", "lo")
        ]
        events += [{"type": "content_block_stop", "index": 0}, {"type": "message_stop"}]
        for event in events:
            await asyncio.sleep(0.03)
            yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"

    async with served(application(blocks, ping_s=0.01)) as url:
        http = anthropic.DefaultAsyncHttpxClient(trust_env=False)
        client = anthropic.AsyncAnthropic(
            base_url=url, api_key="k", http_client=http, max_retries=0
        )
        said = {"role": "user", "content": "hi"}
        async with (
            client,
            client.messages.stream(
                model="m",
                max_tokens=9,
                messages=[said],  # type: ignore[list-item]
            ) as stream,
        ):
            pieces = [piece async for piece in stream.text_stream]
    assert "".join(pieces) == "Hello"


async def test_headers_go_out_before_the_first_block() -> None:
    release = asyncio.Event()

    async def blocks() -> AsyncGenerator[str, None]:
        await release.wait()
        yield "data: x\n\n"

    async with (
        served(application(blocks, ping_s=60)) as url,
        httpx.AsyncClient(trust_env=False) as client,
        client.stream("POST", url, json={}) as answer,
    ):
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["x-accel-buffering"] == "no"
        assert "content-length" not in answer.headers
        release.set()
        assert await answer.aread() == b"data: x\n\n"


async def test_a_client_that_leaves_in_the_silence_ends_the_generator_at_once() -> None:
    entered, closed, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def blocks() -> AsyncGenerator[str, None]:
        try:
            entered.set()
            await asyncio.Event().wait()
            yield ""
        finally:
            ended.set()

    app = application(blocks, ping_s=60, on_close=closed.set)
    async with served(app) as url:
        async with httpx.AsyncClient(trust_env=False) as client:
            async with client.stream("POST", url, json={}):
                await entered.wait()
                assert not closed.is_set()
        async with asyncio.timeout(5):
            await closed.wait()
            await ended.wait()


async def test_a_client_that_left_before_the_first_block_still_closes_the_run() -> None:
    closed: list[bool] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        await asyncio.sleep(0)

    stream = streams.CompletionStream(slow_blocks(), on_close=lambda: closed.append(True))
    await stream({"type": "http"}, receive, send)
    assert closed == [True]


async def test_a_failing_generator_closes_the_run_and_is_heard_of() -> None:
    closed: list[bool] = []

    async def blocks() -> AsyncGenerator[str, None]:
        yield "data: x\n\n"
        raise ZeroDivisionError

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        pass

    stream = streams.CompletionStream(blocks(), on_close=lambda: closed.append(True))
    with pytest.raises(ZeroDivisionError):
        await stream({"type": "http"}, receive, send)
    assert closed == [True]


async def test_work_is_cancelled_when_its_client_leaves() -> None:
    gone, cancelled = asyncio.Event(), asyncio.Event()

    async def receive() -> Message:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def work() -> int:
        try:
            gone.set()
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return 1

    with pytest.raises(streams.ClientGone):
        await streams.unless_gone(receive, work())
    assert cancelled.is_set()


async def test_work_that_is_done_gives_its_result_or_its_error() -> None:
    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def good() -> int:
        return 7

    async def bad() -> int:
        raise ZeroDivisionError

    assert await streams.unless_gone(receive, good()) == 7
    with pytest.raises(ZeroDivisionError):
        await streams.unless_gone(receive, bad())


def test_retry_travels_inside_the_first_event_and_only_there() -> None:
    event = wire.Event(3, wire.BlockDelta(0, "x"))
    first = streams.native_event(event, first=True)
    assert (first.id, first.event, first.retry) == ("3", "content_block_delta", streams.RETRY_MS)
    assert streams.native_event(event, first=False).retry is None
    assert wire.load(str(first.event), str(first.raw_data)) == event.payload


def test_news_of_the_moment_has_no_id() -> None:
    assert streams.native_event(wire.Event(None, wire.Queued(1)), first=False).id is None
