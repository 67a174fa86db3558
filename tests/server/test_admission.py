"""Who may enter, and what the others are told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hobnob.server.admission import (
    MAX_RETRY_AFTER_SECONDS,
    Admit,
    Limits,
    Load,
    Refuse,
    decide,
)

LIMITS = Limits(max_running=2, max_waiting=3, max_waiting_tokens=1000)


@pytest.mark.parametrize(
    ("running", "waiting", "admitted"),
    [(0, 0, True), (0, 1, True), (2, 0, True), (2, 2, True), (2, 3, False), (0, 5, False)],
)
def test_as_many_as_can_run_and_may_wait_enter(running: int, waiting: int, admitted: bool) -> None:
    assert isinstance(decide(LIMITS, Load(running, waiting, 0), 10), Admit) == admitted


def test_prompt_tokens_of_those_that_wait_are_bounded() -> None:
    assert isinstance(decide(LIMITS, Load(2, 1, 900), 100), Admit)
    answer = decide(LIMITS, Load(2, 1, 900), 101)
    assert isinstance(answer, Refuse) and "900 prompt tokens" in answer.error.message


def test_a_prompt_of_any_size_enters_where_a_sequence_is_free() -> None:
    assert isinstance(decide(LIMITS, Load(1, 0, 0), 10**6), Admit)


def test_without_a_queue_only_those_enter_that_run_at_once() -> None:
    limits = Limits(2, 0, 1000)
    assert isinstance(decide(limits, Load(1, 0, 0), 1), Admit)
    assert isinstance(decide(limits, Load(2, 0, 0), 1), Refuse)


@given(st.integers(0, 50), st.floats(0, 1e6))
def test_a_refusal_says_when_to_try_again(waiting: int, run_s: float) -> None:
    answer = decide(Limits(1, 0, 0), Load(1, waiting, 0, run_s), 1)
    assert isinstance(answer, Refuse)
    assert answer.error.retry_after_s is not None
    assert 1 <= answer.error.retry_after_s <= MAX_RETRY_AFTER_SECONDS


def test_the_longer_runs_take_the_later_the_retry() -> None:
    short, long = (decide(LIMITS, Load(2, 3, 0, run_s), 1) for run_s in (1.0, 10.0))
    assert isinstance(short, Refuse) and isinstance(long, Refuse)
    assert (short.error.retry_after_s, long.error.retry_after_s) == (2, 20)


@pytest.mark.parametrize(
    ("running", "waiting", "said"),
    [
        (0, 5, "full: 5 replies wait. Try"),
        (2, 3, "full: 2 replies are being written and 3 more wait. Try"),
        (1, 0, "full: 1 reply is being written. Try"),
    ],
)
def test_a_refusal_says_what_there_is(running: int, waiting: int, said: str) -> None:
    answer = decide(Limits(running, waiting, 10**6), Load(running, waiting, 0), 1)
    assert isinstance(answer, Refuse) and said in answer.error.message
