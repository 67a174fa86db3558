"""Questions that wait for an answer, without any process."""

from __future__ import annotations

import asyncio

import pytest

from hobnob.server.engine.protocol import Rendered, Tokenize
from hobnob.server.engine.questions import MAX_OPEN, Question, Questions
from hobnob.server.errors import Busy, EngineFailed, InvalidRequest, ServerStopping, TextTooLong


async def ask(questions: Questions, text: str) -> asyncio.Task[list[int]]:
    task = asyncio.create_task(questions.put(Tokenize(questions.next_id(), text)))
    await asyncio.sleep(0)
    return task


async def test_a_question_waits_for_a_process_and_is_asked_once_of_each() -> None:
    questions = Questions()
    asked: list[Question] = []
    task = await ask(questions, "a")
    assert not asked
    questions.can_ask(asked.append)
    questions.can_ask(asked.append)
    assert len(asked) == 1
    questions.died("why")
    questions.can_ask(asked.append)
    assert len(asked) == 2
    questions.answered(Rendered(asked[0].id, [1, 2]))
    assert await task == [1, 2]
    assert questions.open_count == 0
    questions.answered(Rendered(asked[0].id, [3]))  # late: nobody waits


@pytest.mark.parametrize(("too_long", "kind"), [(False, InvalidRequest), (True, TextTooLong)])
async def test_what_the_text_is_refused_for_is_told(
    too_long: bool, kind: type[InvalidRequest]
) -> None:
    questions = Questions()
    task = await ask(questions, "a")
    asked: list[Question] = []
    questions.can_ask(asked.append)
    questions.answered(Rendered(asked[0].id, error="9 characters", too_long=too_long))
    with pytest.raises(InvalidRequest, match="9 characters") as error:
        await task
    assert type(error.value) is kind


async def test_a_question_that_two_processes_died_with_is_given_up() -> None:
    questions = Questions()
    task = await ask(questions, "a")
    for _ in range(2):
        questions.can_ask(lambda question: None)
        questions.died("The engine was ended by SIGSEGV.")
    with pytest.raises(EngineFailed, match="SIGSEGV"):
        await task


async def test_the_number_of_open_questions_is_bounded() -> None:
    questions = Questions()
    tasks = [await ask(questions, "a") for _ in range(MAX_OPEN)]
    with pytest.raises(Busy):
        await questions.put(Tokenize(questions.next_id(), "b"))
    questions.refuse(ServerStopping("stopping"))
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, ServerStopping) for result in results)


async def test_who_stops_waiting_leaves_no_question_behind() -> None:
    questions = Questions()
    task = await ask(questions, "a")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert questions.open_count == 0
