from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hobnob.server.capacity import Wishes, derive


def test_two_numbers_give_all_the_others() -> None:
    capacity = derive(Wishes(streams=8, reply_tokens=1000))
    assert (capacity.sequences, capacity.queue, capacity.kept_replies) == (8, 32, 64)
    assert capacity.queue_timeout_s == 400.0
    assert capacity.queue_tokens == 32 * 8 * 1000


def test_a_number_set_by_hand_stays_and_is_said_to_be_configured() -> None:
    capacity = derive(Wishes(streams=8, sequences=3, queue=0, queue_timeout_s=5.0))
    assert (capacity.sequences, capacity.queue, capacity.queue_timeout_s) == (3, 0, 5.0)
    assert "queue: 0 (as configured)" in capacity.explain


def test_each_number_is_explained_in_one_line() -> None:
    names = [line.split(":")[0] for line in derive(Wishes()).explain]
    assert names == ["sequences", "queue", "queue_tokens", "queue_timeout_s", "kept_replies"]


@given(st.integers(1, 128), st.integers(1, 1_000_000))
def test_more_streams_never_make_anything_smaller(streams: int, reply: int) -> None:
    less, more = derive(Wishes(streams, reply)), derive(Wishes(streams + 1, reply))
    assert more.sequences > less.sequences
    assert more.queue >= less.queue and more.queue_tokens >= less.queue_tokens
    assert more.kept_bytes >= less.kept_bytes
