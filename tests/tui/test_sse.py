"""The event-stream parser: every way of writing an event, cut anywhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hobnob.tui.sse import EventTooLarge, Parser, RawEvent


def parse(data: bytes, *cuts: int) -> list[RawEvent]:
    parser = Parser()
    edges = [0, *sorted(cuts), len(data)]
    pieces = (data[a:b] for a, b in zip(edges, edges[1:], strict=False))
    return [event for piece in pieces for event in parser.feed(piece)]


STREAM = (
    'id: 1\r\nevent: a\r\ndata: {"t":"é\u2028😀"}\r\n\r\n: ping\n\nevent: b\rdata:x\r\rdata\n\n'
).encode()


@pytest.mark.parametrize("cut", range(len(STREAM) + 1))
def test_an_event_is_the_same_wherever_its_bytes_are_cut(cut: int) -> None:
    assert parse(STREAM, cut) == [
        RawEvent("a", '{"t":"é\u2028😀"}', "1"),
        RawEvent("b", "x", None),
    ]


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_any_number_of_cuts_changes_nothing(cuts: list[int]) -> None:
    assert parse(STREAM, *cuts) == parse(STREAM)


def test_an_id_belongs_to_its_own_event_only() -> None:
    first, second = parse(b"id: 4\ndata: x\n\nevent: queued\ndata: y\n\n")
    assert (first.id, second.id) == ("4", None)


def test_a_comment_between_events_makes_no_event() -> None:
    assert len(parse(b"id: 1\ndata: x\n\n: ping\n\n: ping\nid: 2\ndata: y\n\n")) == 2


def test_an_event_without_data_is_skipped() -> None:
    assert parse(b"retry: 3\n\nid: 1\n\nevent: x\n\ndata:\n\n") == []


def test_lines_of_data_are_joined() -> None:
    assert parse(b"data: a\ndata:b\ndata:  c\n\n")[0].data == "a\nb\n c"


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    assert parse(b"\xef\xbb\xbfdata: x\n\n", 1, 2) == [RawEvent("message", "x", None)]


def test_what_the_end_cuts_off_is_not_an_event() -> None:
    assert parse(b"data: x\n\nid: 2\ndata: half") == [RawEvent("message", "x", None)]


@pytest.mark.parametrize("data", [b"data: " + b"x" * 2000, b"data: x\n" * 300, b":" + b"x" * 2000])
def test_an_event_over_the_bound_is_refused(data: bytes) -> None:
    with pytest.raises(EventTooLarge):
        Parser(limit=1000).feed(data)


def test_a_long_stream_of_short_events_is_within_the_bound() -> None:
    parser = Parser(limit=1000)
    assert sum(len(parser.feed(b"data: 0123456789\n\n")) for _ in range(1000)) == 1000
