"""Entries: events to state, and the same end for a stream, a replay and a load."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support_documents import MARKDOWN

from hobnob.server import wire
from hobnob.server.wire import Event
from hobnob.tui import words
from hobnob.tui.notice import Notice, NoticeKind
from hobnob.tui.records import Message
from hobnob.tui.transcript import Entry, Phase, entry


def reply() -> Entry:
    return entry(Message("r", role="assistant", status="queued", run="run"))


def events(text: str, size: int = 4) -> list[Event]:
    payloads: list[wire.Payload] = [
        wire.Context(10, 2048, 1, ["old"]),
        wire.MessageStart("run", "c", "r", "Model", 1),
        wire.BlockStart(0),
        *(wire.BlockDelta(0, text[at : at + size]) for at in range(0, len(text), size)),
        wire.BlockStop(0),
        wire.MessageDelta("end_turn", None, wire.Usage(10, 5, 3), wire.Timings(decode_s=1.0)),
        wire.MessageStop("completed", "end_turn"),
    ]
    return [Event(number, payload) for number, payload in enumerate(payloads, 1)]


def test_a_stream_becomes_the_reply() -> None:
    made = reply()
    for event in events("Hello **you**"):
        made.apply(event)
    assert (made.text, made.phase, made.status) == ("Hello **you**", Phase.ENDED, "completed")
    assert made.usage == wire.Usage(10, 5, 3)
    assert made.context is not None and made.context.left_out == ["old"]


@given(MARKDOWN, st.integers(1, 7), st.lists(st.integers(0, 60), max_size=6))
def test_events_that_come_again_change_nothing(text: str, size: int, cuts: list[int]) -> None:
    made, all_events = reply(), events(text, size)
    at = 0
    for cut in [*cuts, 0]:
        for event in all_events[max(at - cut, 0) :]:
            made.apply(event)
        at = len(all_events)
    assert made.text == text


@given(MARKDOWN, st.integers(1, 7))
def test_a_streamed_reply_has_the_blocks_of_a_loaded_one(text: str, size: int) -> None:
    made = reply()
    for event in events(text, size):
        made.apply(event)
    loaded = entry(Message("r", role="assistant", status="completed", text=text))
    assert [b for p in made.parts for b in p.closed] == [b for p in loaded.parts for b in p.closed]


def test_a_reply_loaded_while_it_runs_is_not_shown_shorter_by_its_replay() -> None:
    made = entry(Message("r", role="assistant", status="running", text="Hello wor", run="run"))
    lengths = []
    for event in events("Hello world", 3):
        made.apply(event)
        lengths.append(len(made.text))
    assert lengths == sorted(lengths)
    assert made.text == "Hello world"


def test_a_running_reply_that_ends_empty_keeps_what_was_stored() -> None:
    made = entry(Message("r", role="assistant", status="running", text="so far", run="run"))
    made.apply(Event(1, wire.MessageStop("failed", "error", wire.Failure("x", "It broke."))))
    assert made.text == "so far"
    assert words.failure(made) == "It broke."


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (Event(None, wire.Queued(1)), "next in the queue"),
        (Event(None, wire.Queued(3, 12.4)), "number 3 in the queue · about 12 s"),
        (Event(None, wire.Prefill(512, 2000, 100)), "512 of 2000 tokens (100 cached)"),
        (Event(None, wire.Loading("M", 0.42)), "42%"),
        (Notice(NoticeKind.RECONNECTING, "the connection was cut", 1.0), "reconnecting…"),
        (Notice(NoticeKind.STARTING), "starting the server…"),
    ],
)  # fmt: skip
def test_what_a_reply_waits_for_is_said(item: Event | Notice, said: str) -> None:
    made = reply()
    made.apply(item)
    assert said in words.state(made)


def test_trouble_is_over_when_something_comes() -> None:
    made = reply()
    made.apply(Notice(NoticeKind.RECONNECTING, "cut", 1.0))
    made.apply(Event(1, wire.BlockStart(0)))
    assert words.state(made) == ""


def test_a_restart_is_noted_once() -> None:
    made = reply()
    for _ in range(3):
        made.apply(Event(None, wire.Restarted("killed by signal 9")))
    assert made.notes == ["the engine was restarted (killed by signal 9); the reply goes on"]


def test_reasoning_is_a_part_of_its_own() -> None:
    made = reply()
    for number, payload in enumerate(
        [wire.BlockStart(0, "reasoning"), wire.BlockDelta(0, "hm"), wire.BlockStop(0),
         wire.BlockStart(1), wire.BlockDelta(1, "Yes."), wire.BlockStop(1)], 1
    ):  # fmt: skip
        made.apply(Event(number, payload))
    assert [(p.kind, p.text, p.ended) for p in made.parts] == [
        ("reasoning", "hm", True),
        ("text", "Yes.", True),
    ]
    assert made.text == "Yes."


@pytest.mark.parametrize(
    "message",
    [
        Message("x", role="", text="a"),
        Message("x", role="tool", text=""),
        Message("x", role="assistant", blocks=[{"type": 3}, {}], text="kept"),
        Message("x", role="assistant", usage={"prompt_tokens": "many"}, timings={"decode_s": None}),
        Message("x", role="assistant", usage=[], timings="odd"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_an_odd_row_is_shown_and_hurts_nothing(message: Message) -> None:
    made = entry(message)
    assert made.text == message.text
    words.footer(made)


def test_the_footer_has_the_facts() -> None:
    made = entry(Message("r", role="assistant", status="length", stop_reason="max_tokens",
        usage={"prompt_tokens": 12040, "cached_tokens": 11000, "completion_tokens": 88},
        timings={"prefill_s": 0.3, "first_decode_s": 0.1, "decode_s": 2.8}))  # fmt: skip
    assert words.footer(made) == [
        "12\u202f040 prompt tokens (11\u202f000 cached)",
        "first after 0.4 s",
        "88 tokens at 31.1/s",
        "cut at the token limit",
    ]


def test_drafts_are_in_the_footer_when_there_were_any() -> None:
    made = entry(Message("r", role="assistant", usage={"completion_tokens": 88},
        timings={"decode_s": 2.0, "drafted": 40, "accepted": 31}))  # fmt: skip
    assert words.footer(made) == ["88 tokens at 43.5/s", "31 of 40 guesses right"]


@pytest.mark.parametrize(
    ("first", "last", "known"),
    [(None, True, True), (None, False, False), (True, None, True), (True, False, False)],
)
def test_whether_a_reply_was_exact_is_known_at_its_end(
    first: bool | None, last: bool | None, known: bool
) -> None:
    made = entry(Message("r", role="assistant", status="running"))
    made.apply(wire.Event(1, wire.MessageStart("run", "c", "r", "Model", 1, exact=first)))
    made.apply(wire.Event(2, wire.MessageDelta("end_turn", exact=last)))
    assert made.exact is known


def test_a_rate_over_a_moment_is_not_shown() -> None:
    made = entry(Message("r", role="assistant", usage={"completion_tokens": 5},
        timings={"decode_s": 0.00001}))  # fmt: skip
    assert words.footer(made) == ["5 tokens"]


def test_code_blocks_are_given_exactly() -> None:
    made = entry(
        Message("r", role="assistant", text="````md\n```py\nx\n```\n````\n~~~\ny\n  z\n~~~")
    )
    assert made.code_blocks() == ["```py\nx\n```", "y\n  z"]
