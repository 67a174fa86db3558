"""What of a message is given to the scrollback, and when: each row once, never to be changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support_documents import DOCUMENTS, MARKDOWN

from hobnob.server import wire
from hobnob.server.wire import Event
from hobnob.tui.records import Message
from hobnob.tui.scrollback import Scrolled
from hobnob.tui.transcript import ASSISTANT, USER, Entry, Phase, draft_entry, entry

WIDTH = 60


def loaded(text: str) -> list[str]:
    stored = Message("r", role=ASSISTANT, text=text, status="completed", model="M")
    return [row.text for row in Scrolled(entry(stored)).take(WIDTH)]


def streamed(text: str, size: int) -> list[str]:
    reply = Entry("r", ASSISTANT, phase=Phase.WAITING, model="M")
    scrolled = Scrolled(reply)
    rows = []
    payloads = [wire.BlockStart(0)]
    payloads += [wire.BlockDelta(0, text[n : n + size]) for n in range(0, len(text), size)]
    payloads += [wire.BlockStop(0), wire.MessageStop("completed", "end_turn")]
    for number, payload in enumerate(payloads, 1):
        reply.apply(Event(number, payload))
        rows += scrolled.take(WIDTH)
        scrolled.rest(WIDTH)
    assert scrolled.done
    assert scrolled.take(WIDTH) == scrolled.rest(WIDTH) == []
    return [row.text for row in rows]


@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_what_a_stream_printed_is_what_a_fresh_load_prints(name: str, size: int) -> None:
    assert streamed(DOCUMENTS[name], size) == loaded(DOCUMENTS[name])


@given(MARKDOWN, st.integers(1, 9))
def test_no_way_of_cutting_changes_what_is_printed(text: str, size: int) -> None:
    assert streamed(text, size) == loaded(text)


def test_printed_and_open_rows_together_are_the_whole_message() -> None:
    reply = Entry("r", ASSISTANT, phase=Phase.WAITING, model="M")
    scrolled = Scrolled(reply)
    assert [row.text for row in scrolled.rest(WIDTH)][0] == "M"
    reply.apply(Event(1, wire.BlockStart(0)))
    reply.apply(Event(2, wire.BlockDelta(0, "One.\n\nTwo and")))
    assert [row.text for row in scrolled.take(WIDTH)] == ["M", "One."]
    assert [row.text for row in scrolled.rest(WIDTH)][:2] == ["", "Two and"]


def test_a_message_of_the_user_is_printed_when_it_is_accepted_and_as_typed() -> None:
    mine = draft_entry("a\n   b *c*")
    scrolled = Scrolled(mine)
    assert scrolled.take(WIDTH) == []
    assert [row.text for row in scrolled.rest(WIDTH)] == ["You", "a", "   b *c*"]
    mine.phase = Phase.ENDED
    assert [row.text for row in scrolled.take(WIDTH)] == ["You", "a", "   b *c*", ""]
    assert mine.role == USER


def test_thoughts_are_one_row_when_they_are_over() -> None:
    reply = Entry("r", ASSISTANT, phase=Phase.WAITING, model="M")
    scrolled = Scrolled(reply)
    reply.apply(Event(1, wire.BlockStart(0, "reasoning")))
    reply.apply(Event(2, wire.BlockDelta(0, "let me think\n\nmore")))
    assert scrolled.take(WIDTH) == []
    assert "let me think" in [row.text for row in scrolled.rest(WIDTH)]
    reply.apply(Event(3, wire.BlockStop(0)))
    reply.apply(Event(4, wire.BlockStart(1)))
    reply.apply(Event(5, wire.BlockDelta(1, "Four.")))
    reply.apply(Event(6, wire.MessageStop("completed", "end_turn")))
    printed = [row.text for row in scrolled.take(WIDTH)]
    assert printed == ["M", "▸ thoughts, 4 words", "", "Four.", ""]
