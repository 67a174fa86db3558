"""What a terminal sends: keys and pastes come through in any pieces, all else is dropped whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual import events
from textual.message import Message

from hobnob.tui import incoming
from hobnob.tui.incoming import Incoming

ANSWERS = [
    b"\x1b]11;rgb:ffff/ffff/ffff\x07",
    b"\x1b]11;rgba:0000/0000/0000/ffff\x1b\\",
    b"\x1b]10;rgb:ffff/ffff/ffff\x07",
    b"\x1b]4;1;rgb:ffff/0/0\x07",
    b"\x1b]52;c;" + b"aGVsbG8=" * 2000 + b"\x07",
    b"\x1bP>|xterm(370)\x1b\\",
    b"\x1bP1$r0 q\x1b\\",
    b"\x1bP!|00000000\x1b\\",
    b"\x1b_Gi=31;OK\x1b\\",
    b"\x1b[?62;22c",
    b"\x1b[>0;276;0c",
    b"\x1b[12;40R",
    b"\x1b[?997;1n",
    b"\x1b[?2027;9$y",
    b"\x1b[8;30;100t",
    b"\x1b[M\xff\xff\xff",
    b"\x1b[1114112;5u",
    b"\x1b[99999999999999999999u",
    b"\x1b[55296u",
    b"\x1b[97;1;55296u",
    b"\x1b[48;9999;9999;1;1t",
    b"\x1b[48;99999;2;1;1t",
    b"\x1b[48;0;0;0;0t",
    b"\x1b[" + b"1;" * 5000 + b"m",
    b"\x1b[<99999999999999999999999999999999999;1;1M",
]
KEYS = [
    (b"\x1b[A", "up"),
    (b"\x1bOP", "f1"),
    (b"\x1b[[A", "f1"),
    (b"\x1b[3$", "shift+delete"),
    (b"\x1b[1;5C", "ctrl+right"),
    (b"\x1b[97;5u", "ctrl+a"),
    (b"\x07", "ctrl+g"),
    ("é".encode(), "é"),
]


def seen(messages: list[Message]) -> list[str]:
    """In short: keys by name, pastes by their text."""
    found = []
    for message in messages:
        if isinstance(message, events.Key):
            found.append(message.key)
        elif isinstance(message, events.Paste):
            found.append(f"paste {message.text}")
        else:
            found.append(type(message).__name__)
    return found


def read(*pieces: bytes) -> list[str]:
    reading = Incoming()
    found = [message for piece in pieces for message in reading.feed(piece)]
    return seen([*found, *reading.end()])


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: repr(answer[:20]))
def test_an_answer_nobody_waits_for_is_dropped_wherever_it_is_cut(answer: bytes) -> None:
    for at in [*range(1, min(len(answer), 40)), len(answer)]:
        assert read(b"a" + answer[:at], answer[at:] + b"b") == ["a", "b"]


@pytest.mark.parametrize(("sent", "key"), KEYS)
def test_a_key_is_known_wherever_it_is_cut(sent: bytes, key: str) -> None:
    for at in range(len(sent)):
        assert read(b"a" + sent[:at], sent[at:] + b"b") == ["a", key, "b"]


@pytest.mark.parametrize(
    ("sent", "shown"),
    [(b"\xff", "\ufffd"), (b"caf\xe9 x", "caf\ufffd x"), (b"\xe2\x9cx", "\ufffdx")],
)
def test_what_is_not_utf8_has_a_stand_in(sent: bytes, shown: str) -> None:
    found = Incoming().feed(sent)
    assert "".join(event.character or "" for event in found if isinstance(event, events.Key)) == (
        shown
    )


def test_a_broken_character_before_a_key_ends_there() -> None:
    assert read(b"\xe2\x9c", b"\x1b[A") == [
        "replacement_character",
        "up",
    ]


def test_all_that_is_between_the_marks_is_pasted() -> None:
    inside = b"caf\xe9 \x1b]11;rgb:0/0/0\x07\x1b[31mred\x1b[0m \x1b[201 end\x00"
    for at in range(len(inside)):
        sent = b"a\x1b[200~" + inside + b"\x1b[201~b"
        assert read(sent[:at], sent[at:]) == [
            "a",
            "paste caf\ufffd \x1b]11;rgb:0/0/0\x07\x1b[31mred\x1b[0m \x1b[201 end",
            "b",
        ]


def test_a_large_paste_comes_in_many_pieces() -> None:
    line = "a line ✓ of it\n".encode()
    sent = b"\x1b[200~" + line * 50_000 + b"\x1b[201~"
    pieces = [sent[at : at + 4096] for at in range(0, len(sent), 4096)]
    assert read(*pieces) == [f"paste {line.decode() * 50_000}"]


def test_escape_alone_is_a_key_after_the_usual_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(incoming.time, "monotonic", lambda: now)
    reading = Incoming()
    assert reading.feed(b"\x1b") == [] and reading.lapse() == []
    assert reading.wait(5.0) == pytest.approx(0.1)
    now += 0.1
    assert seen(reading.lapse()) == ["escape"]
    assert seen(reading.feed(b"]1")) == ["right_square_bracket", "1"]


def test_escape_twice_is_a_key_at_once() -> None:
    assert seen(Incoming().feed(b"\x1b\x1b")) == ["escape"]


def test_an_answer_that_never_ends_takes_no_key_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(incoming.time, "monotonic", lambda: now)
    reading = Incoming()
    assert reading.feed(b"\x1b]11;rgb:ff") == []
    assert seen(reading.feed(b"\x11")) == ["ctrl+q"]
    assert reading.feed(b"\x1b]11;rgb:ff") == []
    now += incoming.PATIENCE_SECONDS
    assert reading.lapse() == []
    assert seen(reading.feed(b"x")) == ["x"]


@pytest.mark.parametrize("letter", [b"]", b"P", b"_", b"["])
def test_alt_and_a_letter_that_begins_answers_is_a_key(letter: bytes) -> None:
    plain = Incoming().feed(letter)[0]
    assert isinstance(plain, events.Key)
    reading = Incoming()
    found = [*reading.feed(b"\x1b" + letter), *reading.end()]
    assert [event.character for event in found if isinstance(event, events.Key)] == [
        plain.character
    ]


def test_a_size_is_believed_also_from_a_terminal_without_pixels() -> None:
    reading = Incoming()
    (resized,) = reading.feed(b"\x1b[48;30;100;0;0t")
    assert isinstance(resized, events.Resize) and resized.size == (100, 30)
    (moved,) = reading.feed(b"\x1b[<35;7;3M")
    assert isinstance(moved, events.MouseMove) and (moved.x, moved.y) == (6, 2)


def test_a_key_that_does_not_exist_leaves_the_mouse_as_it_was() -> None:
    reading = Incoming()
    reading.feed(b"\x1b[48;30;100;300;1000t")
    (moved,) = reading.feed(b"\x1b[1114112;5u\x1b[<35;71;31M")
    assert isinstance(moved, events.MouseMove) and (moved.x, moved.y) == (7, 3)


@given(st.lists(st.one_of(st.binary(max_size=12), st.sampled_from(ANSWERS[:4])), max_size=20))
def test_no_bytes_are_an_error(pieces: list[bytes]) -> None:
    read(*pieces)
