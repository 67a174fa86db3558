"""What waits for the step thread's answer, and for how long."""

from __future__ import annotations

import asyncio

from hobnob.server.engine.lookups import MAX_OPEN, Lookups
from hobnob.server.engine.protocol import Found


async def test_each_answer_goes_to_who_asked_for_it() -> None:
    lookups, asked = Lookups(), list[int]()
    waiting = [asyncio.create_task(lookups.put(asked.append)) for _ in range(3)]
    await asyncio.sleep(0)
    assert len(set(asked)) == 3
    for number in reversed(asked):
        lookups.answered(Found(number, 100 + number))
    assert await asyncio.gather(*waiting) == [100 + number for number in asked]


async def test_an_answer_that_does_not_come_in_time_or_comes_too_late_is_not_known() -> None:
    lookups, asked = Lookups(patience_s=0.01), list[int]()
    assert await lookups.put(asked.append) is None
    lookups.answered(Found(asked[0], 5))
    lookups.answered(Found(99, 5))


async def test_a_death_answers_everybody_at_once() -> None:
    lookups = Lookups(patience_s=60.0)
    waiting = [asyncio.create_task(lookups.put(lambda number: None)) for _ in range(2)]
    await asyncio.sleep(0)
    lookups.died()
    lookups.died()
    assert await asyncio.gather(*waiting) == [None, None]


async def test_more_than_its_bound_is_not_asked() -> None:
    lookups, asked = Lookups(patience_s=60.0), list[int]()
    waiting = [asyncio.create_task(lookups.put(asked.append)) for _ in range(MAX_OPEN)]
    await asyncio.sleep(0)
    assert await lookups.put(asked.append) is None
    assert len(asked) == MAX_OPEN
    lookups.died()
    await asyncio.gather(*waiting)
    assert lookups._open == {}
