"""One run's log and its readers."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hobnob.server import wire
from hobnob.server.log import LogEntry, Reader, RunLog

STOPPING = wire.StreamError("server_stopping", "…")


def delta(seq: int) -> LogEntry:
    return LogEntry(seq, wire.BlockDelta(0, str(seq)), [seq])


def log_of(count: int, *, ended: bool = False) -> RunLog:
    log = RunLog()
    log.publish([delta(n) for n in range(1, count + 1)], ended=ended)
    return log


async def read(reader: Reader) -> list[wire.Event]:
    return [event async for event in reader]


async def test_a_reader_starts_at_its_cursor_and_ends_with_the_log() -> None:
    events = await read(Reader(log_of(3, ended=True), 1))
    assert [event.seq for event in events] == [2, 3]


async def test_at_the_end_there_is_nothing_to_read() -> None:
    reader = Reader(log_of(3, ended=True), 3)
    assert reader.at_end
    with pytest.raises(StopAsyncIteration):
        await reader.next_within(1)


async def test_a_reader_waits_for_what_comes_and_says_when_nothing_came() -> None:
    log = log_of(1)
    reader = Reader(log, 1)
    assert await reader.next_within(0.01) is None
    waiting = asyncio.create_task(reader.next_within(10))
    await asyncio.sleep(0)
    log.publish([delta(2)], ended=True)
    event = await waiting
    assert event is not None and event.seq == 2
    assert reader.entry is not None and reader.entry.tokens == [2]


async def test_of_news_only_the_latest_is_kept_and_it_comes_before_the_entries() -> None:
    log = log_of(0)
    reader = Reader(log)
    log.tell(wire.Queued(3))
    log.tell(wire.NotSaved("full"))
    log.tell(wire.Queued(2))
    log.publish([delta(1)], ended=True)
    payloads = [event.payload for event in await read(reader)]
    assert payloads == [wire.NotSaved("full"), wire.BlockDelta(0, "1")]
    log.untell(wire.NotSaved)
    assert [event.seq for event in await read(Reader(log))] == [1]


async def test_a_restart_is_no_news_for_who_comes_after_it() -> None:
    log = log_of(0)
    early = Reader(log)
    log.tell(wire.Restarted("why"))
    late = Reader(log)
    log.tell(wire.Prefill(1, 2))
    assert (await anext(early)).payload == wire.Restarted("why")
    assert (await anext(late)).payload == wire.Prefill(1, 2)


async def test_a_closed_log_ends_its_readers_after_what_is_published() -> None:
    log = log_of(2)
    reader = Reader(log)
    log.close(STOPPING)
    events = await read(reader)
    assert [event.payload for event in events][-1] == STOPPING
    assert [event.seq for event in events] == [1, 2, None]
    assert reader.at_end
    assert await read(reader) == []


async def test_readers_that_are_dropped_are_forgotten() -> None:
    log = log_of(1)
    readers = [Reader(log) for _ in range(100)]
    assert log.readers == 100
    readers.clear()
    assert log.readers == 0


def test_numbers_have_no_gaps() -> None:
    with pytest.raises(AssertionError):
        log_of(1).publish([delta(3)])


@given(st.lists(st.sampled_from(["publish", "news", "read", "cancel"]), max_size=60))
async def test_no_order_of_reading_and_cancelling_loses_or_repeats_an_event(
    steps: list[str],
) -> None:
    log = log_of(0)
    reader = Reader(log)
    seen: list[int] = []
    for step in steps:
        if step == "publish":
            log.publish([delta(log.last_seq + 1)])
        elif step == "news":
            log.tell(wire.Prefill(1, 2))
        elif step == "read":
            event = await reader.next_within(0)
            seen += [event.seq] if event is not None and event.seq is not None else []
        else:
            task = asyncio.ensure_future(anext(reader))
            await asyncio.sleep(0)
            if task.done():
                event = task.result()
                seen += [event.seq] if event.seq is not None else []
            task.cancel()
            await asyncio.sleep(0)
    log.publish([delta(log.last_seq + 1)], ended=True)
    seen += [event.seq for event in await read(reader) if event.seq is not None]
    assert seen == list(range(1, log.last_seq + 1))
