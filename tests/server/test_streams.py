"""Streams of `/v1`, read by the official clients, and what happens when a client leaves."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from support_http import served

from hobnob.server import streams, wire
from hobnob.server.log import LogEntry, Reader, RunLog


def chunk(text: str | None, finish: str | None = None) -> str:
    delta = {} if text is None else {"content": text}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return f"data: {json.dumps({**head, 'choices': [choice]})}\n\n"


def application(
    blocks: Callable[[], AsyncGenerator[str, None]],
    on_close: Callable[[], None] = lambda: None,
) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        await streams.EventStream(blocks(), on_close=on_close)(scope, receive, send)

    return app


@contextlib.asynccontextmanager
async def slow_log(*payloads: wire.Payload) -> AsyncIterator[RunLog]:
    """Publishes them one by one, each after a silence that is long enough for keep-alives."""
    log = RunLog()

    async def publish() -> None:
        for seq, payload in enumerate(payloads, 1):
            await asyncio.sleep(0.05)
            log.publish([LogEntry(seq, payload)], ended=seq == len(payloads))

    publishing = asyncio.create_task(publish())
    yield log
    publishing.cancel()


def deltas(*texts: str) -> list[wire.Payload]:
    return [wire.BlockDelta(0, text) for text in texts]


STOP = wire.MessageStop("completed", "end_turn")


async def test_the_openai_client_reads_a_stream_with_keep_alives_to_its_end() -> None:
    import openai

    def render(event: wire.Event) -> str:
        return chunk(event.payload.text) if isinstance(event.payload, wire.BlockDelta) else ""

    async with slow_log(*deltas("Hel", "lo", " \U0001f600"), STOP) as log:

        async def blocks() -> AsyncGenerator[str, None]:
            async for block in streams.rendered(Reader(log), render, ping_s=0.01):
                yield block
            yield chunk(None, "stop") + "data: [DONE]\n\n"

        async with served(application(blocks)) as url:
            http = openai.DefaultAsyncHttpxClient(trust_env=False)
            client = openai.AsyncOpenAI(base_url=url, api_key="k", http_client=http, max_retries=0)
            async with client:
                stream = await client.chat.completions.create(model="m", messages=[], stream=True)
                pieces = [part.choices[0].delta.content or "" async for part in stream]
            async with httpx.AsyncClient(trust_env=False) as plain:
                raw = (await plain.post(url, json={})).content
    assert "".join(pieces) == "Hello \U0001f600"
    assert b"\nid:" not in raw and b"\nretry:" not in raw


async def test_the_anthropic_client_reads_a_stream_with_keep_alives_to_its_end() -> None:
    """Its own events come with a later route; the frame around them is this one."""
    import anthropic

    message: dict[str, Any] = {"id": "m1", "type": "message", "role": "assistant"}
    message |= {"content": [], "model": "m", "stop_reason": None, "stop_sequence": None}
    message["usage"] = {"input_tokens": 1, "output_tokens": 0}

    def block(event: dict[str, Any]) -> str:
        return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"

    def render(event: wire.Event) -> str:
        if not isinstance(event.payload, wire.BlockDelta):
            return ""
        delta = {"type": "text_delta", "text": event.payload.text}
        return block({"type": "content_block_delta", "index": 0, "delta": delta})

    async with slow_log(*deltas("Hel", "lo"), STOP) as log:

        async def blocks() -> AsyncGenerator[str, None]:
            yield block({"type": "message_start", "message": message})
            text = {"type": "text", "text": ""}
            yield block({"type": "content_block_start", "index": 0, "content_block": text})
            async for one in streams.rendered(Reader(log), render, ping_s=0.01):
                yield one
            yield block({"type": "content_block_stop", "index": 0})
            yield block({"type": "message_stop"})

        async with served(application(blocks)) as url:
            http = anthropic.DefaultAsyncHttpxClient(trust_env=False)
            client = anthropic.AsyncAnthropic(
                base_url=url, api_key="k", http_client=http, max_retries=0
            )
            said: Any = [{"role": "user", "content": "hi"}]
            async with (
                client,
                client.messages.stream(model="m", max_tokens=9, messages=said) as stream,
            ):
                pieces = [piece async for piece in stream.text_stream]
    assert "".join(pieces) == "Hello"


async def test_both_official_clients_read_ids_and_keep_alives_together() -> None:
    """The native framing, whose ids once made a keep-alive an empty event to such readers."""
    from anthropic import _streaming as anthropic_streaming
    from openai import _streaming as openai_streaming

    async with slow_log(*deltas("Hel", "lo"), STOP) as log:

        async def blocks() -> AsyncGenerator[str, None]:
            async for block in streams.native(Reader(log), ping_s=0.01):
                yield block

        async with served(application(blocks)) as url:
            async with httpx.AsyncClient(trust_env=False) as plain:
                raw = (await plain.post(url, json={})).text
    assert ": ping\n" in raw and ": ping\n\n" not in raw
    decoders: list[Any] = [openai_streaming.SSEDecoder(), anthropic_streaming.SSEDecoder()]
    for decoder in decoders:
        events = list(decoder.iter_bytes(iter([raw.encode()])))
        assert [event.data for event in events] == [
            wire.dump(p) for p in (*deltas("Hel", "lo"), STOP)
        ]
        assert [event.id for event in events] == ["1", "2", "3"]


async def test_keep_alives_come_through_news_that_this_stream_does_not_show() -> None:
    log = RunLog()

    async def tell() -> None:
        for position in range(20):
            log.tell(wire.Queued(position))
            await asyncio.sleep(0.005)
        log.publish([LogEntry(1, STOP)], ended=True)

    telling = asyncio.create_task(tell())
    said = [text async for text in streams.rendered(Reader(log), lambda _: "", ping_s=0.02)]
    await telling
    assert len(said) >= 2 and set(said) == {streams.PING}


async def test_a_busy_stream_has_no_keep_alives() -> None:
    log = RunLog()
    log.publish([LogEntry(1, wire.BlockDelta(0, "x")), LogEntry(2, STOP)], ended=True)
    assert streams.PING not in [text async for text in streams.native(Reader(log), ping_s=60)]


def test_silence_is_shorter_than_the_promise() -> None:
    assert streams.PING_SECONDS <= 15


async def test_headers_go_out_before_the_first_block() -> None:
    release = asyncio.Event()

    async def blocks() -> AsyncGenerator[str, None]:
        await release.wait()
        yield "data: x\n\n"

    async with (
        served(application(blocks)) as url,
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

    app = application(blocks, closed.set)
    async with served(app) as url:
        async with httpx.AsyncClient(trust_env=False) as client:
            async with client.stream("POST", url, json={}):
                await entered.wait()
                assert not closed.is_set()
        async with asyncio.timeout(5):
            await closed.wait()
            await ended.wait()


async def one_block() -> AsyncGenerator[str, None]:
    yield "data: x\n\n"


async def test_a_client_that_left_before_the_first_block_still_closes_the_run() -> None:
    closed: list[bool] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        await asyncio.sleep(0)

    stream = streams.EventStream(one_block(), on_close=lambda: closed.append(True))
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

    stream = streams.EventStream(blocks(), on_close=lambda: closed.append(True))
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


async def test_retry_travels_inside_the_first_event_and_only_there() -> None:
    log = RunLog()
    log.publish([LogEntry(1, wire.BlockDelta(0, "x")), LogEntry(2, STOP)], ended=True)
    first, second = [text async for text in streams.native(Reader(log))]
    assert f"retry: {streams.RETRY_MS}\n" in first and "data: " in first
    assert "retry:" not in second


async def test_news_of_the_moment_has_no_id() -> None:
    log = RunLog()
    log.tell(wire.Queued(1))
    stream = streams.native(Reader(log))
    assert "id:" not in await anext(stream)
    await stream.aclose()
