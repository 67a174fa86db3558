"""A reply told in lines: whole sentences, words for what is waited for, nothing twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support_documents import HOSTILE

from hobnob.server import wire
from hobnob.server.wire import Event
from hobnob.tui.clean import clean
from hobnob.tui.notice import Notice, NoticeKind
from hobnob.tui.records import Message
from hobnob.tui.telling import LONG_CHARS, Telling, whole
from hobnob.tui.transcript import ASSISTANT, Entry, Phase, entry


class Told:
    """A telling of a reply, and what it wrote."""

    def __init__(self, reply: Entry | None = None) -> None:
        self.reply = reply or Entry("r", ASSISTANT, phase=Phase.WAITING, model="M")
        self.pieces: list[str] = []
        self.telling = Telling(self.reply, self.pieces.append)
        self.now = 0.0
        self._seq = 0

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def hear(self, *items: wire.Payload | Notice, after_s: float = 0.0) -> None:
        for item in items:
            self.now += after_s
            if isinstance(item, Notice):
                self.reply.apply(item)
            else:
                self._seq += item.NUMBERED
                self.reply.apply(Event(self._seq if item.NUMBERED else None, item))
            self.telling.update(self.now)

    def says(self, text: str, size: int = 1) -> None:
        self.hear(wire.BlockStart(0))
        self.hear(*(wire.BlockDelta(0, text[n : n + size]) for n in range(0, len(text), size)))
        self.hear(wire.BlockStop(0), wire.MessageStop("completed", "end_turn"))
        self.telling.finish()


@pytest.mark.parametrize(
    ("text", "ready"),
    [
        ("Half a sen", ""),
        ("One. Tw", "One. "),
        ("Pi is 3.1", ""),
        ("Is it? “Yes.” No", "Is it? “Yes.” "),
        ("a line\nand mo", "a line\n"),
        ("你好。世", "你好。"),
        ("word " * 100, "word " * 100),
        ("x" * (LONG_CHARS + 1), "x" * (LONG_CHARS + 1)),
        ("", ""),
    ],
)
def test_text_is_told_when_it_makes_a_line_or_a_sentence(text: str, ready: str) -> None:
    assert text[: whole(text)] == ready


@given(st.text(alphabet="ab. \n\r?你。\x1b", max_size=80), st.integers(1, 7))
def test_the_pieces_are_the_whole_text_however_it_came(text: str, size: int) -> None:
    told = Told()
    told.says(text, size)
    shown = clean(text)
    end = "" if not shown or shown.endswith("\n") else "\n"
    assert told.text == (f"M: {shown}{end}" if shown else "")


def test_what_is_quickly_over_is_not_mentioned() -> None:
    told = Told()
    told.hear(wire.Queued(2, 9.0), wire.Prefill(1, 90, 0), wire.Prefill(80, 90, 0), after_s=0.3)
    told.says("Hi.")
    assert told.text == "M: Hi.\n"


def test_what_lasts_is_told_now_and_then() -> None:
    told = Told()
    told.hear(*(wire.Prefill(n * 10, 900, 0) for n in range(90)), after_s=0.125)
    lines = told.text.splitlines()
    assert lines == [
        "hobnob: reading the prompt… 80 of 900 tokens",
        "hobnob: reading the prompt… 480 of 900 tokens",
        "hobnob: reading the prompt… 880 of 900 tokens",
    ]


def test_words_of_ours_never_stand_inside_a_line_of_the_reply() -> None:
    told = Told()
    told.hear(wire.BlockStart(0), wire.BlockDelta(0, "One. "))
    told.hear(Notice(NoticeKind.RECONNECTING, "the connection was lost", 1.0))
    told.hear(Notice(NoticeKind.RECONNECTING, "the connection was lost", 2.0))
    told.hear(Notice(NoticeKind.RESTARTED), Notice(NoticeKind.CONNECTED))
    told.hear(wire.BlockDelta(0, "Two."), wire.MessageStop("length", "max_tokens"))
    told.telling.finish()
    assert told.text.splitlines() == [
        "M: One. ",
        "hobnob: the connection was lost · reconnecting…",
        "hobnob: the server was restarted; the reply goes on",
        "hobnob: connected again",
        "Two.",
        "hobnob: cut at the token limit",
        "hobnob: /continue goes on with it",
    ]


def test_what_was_told_before_the_cut_is_not_told_again() -> None:
    kept = Message("r", "c", role="assistant", text="One. T", status="running", model="M")
    told = Told(entry(kept))
    told.telling.pass_over()
    told.hear(wire.BlockStart(0), wire.BlockDelta(0, "One. T"), wire.BlockDelta(0, "wo."))
    told.hear(wire.BlockStop(0), wire.MessageStop("completed", "end_turn"))
    told.telling.finish()
    assert told.text == "M: wo.\n"


def test_what_was_left_out_and_what_is_not_saved_is_told_once() -> None:
    told = Told()
    told.hear(wire.Context(90, 100, 3, ["a", "b"]), wire.NotSaved("the disk is full"))
    told.says("Hi.")
    assert told.text.count("the oldest 2 messages had no room") == 1
    assert told.text.count("not being saved: the disk is full") == 1


def test_thoughts_are_counted_and_not_read_out() -> None:
    told = Told()
    told.hear(wire.BlockStart(0, "reasoning"), wire.BlockDelta(0, "let me think"))
    told.hear(wire.BlockDelta(0, " more"), after_s=2.0)
    told.hear(wire.BlockStop(0), wire.BlockStart(1), wire.BlockDelta(1, "Four."))
    told.hear(wire.MessageStop("completed", "end_turn"))
    told.telling.finish()
    assert told.text.splitlines() == [
        "hobnob: thinking…",
        "M: Four.",
        "hobnob: it thought for 4 words; /thoughts tells them",
    ]
    assert told.telling.thoughts == "let me think more"


def test_a_reply_that_was_opened_half_way_is_told_once() -> None:
    stored = Message("r", role=ASSISTANT, text="One. Two", status="running", run="x", model="M")
    told = Told(entry(stored))
    told.telling.update(0.0)
    told.says("One. Two. Three.", 3)
    assert told.text == "M: One. Two. Three.\n"


def test_a_failure_is_the_last_word() -> None:
    told = Told()
    told.reply.fail("unreachable", "The server cannot be reached.")
    told.telling.finish()
    assert told.text == "hobnob: The server cannot be reached.\n"


def test_nothing_told_can_drive_a_terminal() -> None:
    told = Told(Entry("r", ASSISTANT, phase=Phase.WAITING, model=HOSTILE))
    told.hear(wire.NotSaved(HOSTILE), Notice(NoticeKind.RECONNECTING, HOSTILE))
    told.says(HOSTILE)
    assert not [c for c in told.text if c != "\n" and (ord(c) < 32 or 0x7F <= ord(c) < 0xA0)]
