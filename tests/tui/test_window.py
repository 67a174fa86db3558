"""The window over a conversation's messages."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hobnob.tui.window import FIRST_MESSAGES, MOST_MESSAGES, Window


def test_the_last_messages_come_first() -> None:
    window = Window.last(5000)
    assert (window.high, window.earlier, window.later) == (5000, 5000 - FIRST_MESSAGES, 0)


@given(st.integers(0, 600), st.lists(st.sampled_from(["up", "down", "grown"]), max_size=60))
def test_it_never_leaves_the_messages_nor_grows_without_bound(count: int, moves: list[str]) -> None:
    window = Window.last(count)
    for move in moves:
        window = getattr(window, move)()
        assert 0 <= window.low <= window.high <= window.count
        assert window.high - window.low <= MOST_MESSAGES


@given(st.integers(1, 600), st.data())
def test_a_message_asked_for_is_inside(count: int, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, count - 1))
    window = Window.around(at, count)
    assert window.low <= at < window.high


def test_going_up_reaches_the_first_message() -> None:
    window = Window.last(5000)
    for _ in range(300):
        window = window.up()
    assert window.low == 0


def test_a_new_message_is_in_sight_only_where_the_end_was() -> None:
    assert Window.last(30).grown().later == 0
    assert Window.around(0, 100).grown().later == 81
