from __future__ import annotations

import codecs
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hobnob.server.engine.detokenize import Detokenizer


def run(pieces: Sequence[str | bytes], stop: Sequence[str] = ()) -> tuple[list[str], str | None]:
    """The texts of all pushes and the flush, and the stop string met."""
    table = [p.encode() if isinstance(p, str) else p for p in pieces]
    detokenizer = Detokenizer(table.__getitem__, stop)
    texts = []
    for token in range(len(table)):
        texts.append(detokenizer.push(token))
        if detokenizer.finished is not None:
            break
    texts.append(detokenizer.flush())
    return texts, detokenizer.finished


def joined(pieces: Sequence[str | bytes], stop: Sequence[str] = ()) -> str:
    return "".join(run(pieces, stop)[0])


@pytest.mark.parametrize(
    ("stop", "pieces", "text", "finished"),
    [
        (["###END"], ["Hi #", "##E", "ND tail"], "Hi ", "###END"),
        (["###END"], ["Hi ##", "#EN"], "Hi ###EN", None),
        (["###END"], ["a ###"], "a ###", None),
        (["ab", "abc"], ["xa", "bc"], "x", "ab"),
        (["\n\n"], ["\n", "\nX"], "", "\n\n"),
        (["aab"], ["a", "a", "a", "b"], "a", "aab"),
        (["家"], ["吉".encode() + "家".encode()[:1], "家".encode()[1:], "x"], "吉", "家"),
        (["👩"], [b"a\xf0\x9f", b"\x91\xa9b"], "a", "👩"),
        (["👩"], [b"a\xf0\x9f", b"\x91\xa8b"], "a👨b", None),
    ],
)
def test_a_stop_string_cuts_exactly_where_it_begins(
    stop: list[str], pieces: list[str | bytes], text: str, finished: str | None
) -> None:
    texts, met = run(pieces, stop)
    assert ("".join(texts), met) == (text, finished)


def test_text_that_may_begin_a_stop_string_is_held_until_it_cannot() -> None:
    assert run(["Hi #", "##E", "X"], ["###END"])[0] == ["Hi ", "", "###EX", ""]


def test_no_more_is_held_back_than_the_longest_possible_beginning() -> None:
    assert run(["aaaa"], ["aab"])[0] == ["aa", "aa"]


@pytest.mark.parametrize("pieces", [["abcd"], ["abc", "d"], ["a", "b", "c", "d"]])
def test_the_stop_string_that_is_complete_first_wins_however_the_text_is_split(
    pieces: list[str | bytes],
) -> None:
    texts, finished = run(pieces, ["abcd", "bc"])
    assert ("".join(texts), finished) == ("a", "bc")


def test_of_two_stop_strings_complete_at_once_the_longer_is_named() -> None:
    assert run(["xabc"], ["bc", "abc"]) == (["x", ""], "abc")


def test_a_longer_beginning_held_back_does_not_hide_a_stop_string_inside_it() -> None:
    assert run(["za", "b", "c"], ["abcx", "c"]) == (["z", "", "ab", ""], "c")


def test_characters_split_over_tokens_are_shown_whole() -> None:
    text = "👩‍👩‍👧‍👦 नमस्ते 𠮷野家 한국어"
    pieces = [bytes([b]) for b in text.encode()]
    texts, _ = run(pieces)
    assert "".join(texts) == text
    assert not any("\ufffd" in t for t in texts)


@pytest.mark.parametrize("length", range(1, 26))
def test_a_character_cut_by_the_end_is_one_replacement_character(length: int) -> None:
    whole = "👩‍👩 न".encode()
    assert joined([bytes([b]) for b in whole[:length]]) == whole[:length].decode(errors="replace")


def test_an_invalid_byte_is_replaced_as_soon_as_it_is_known_to_be_invalid() -> None:
    assert run([b"\xff", b"a\xf0\x9f", b"b"])[0] == ["\ufffd", "a", "\ufffdb", ""]


def test_leading_spaces_and_newlines_are_kept() -> None:
    assert joined(["\n", " def", "  x", " "]) == "\n def  x "


def test_nul_passes_through() -> None:
    assert joined(["abc\0", "def"]) == "abc\0def"


def test_a_token_without_bytes_shows_nothing() -> None:
    assert run([b"", "a"], ["b"])[0] == ["", "a", ""]


def test_a_stop_string_found_by_the_flush_counts() -> None:
    assert run([b"a\xf0\x9f"], ["\ufffd"]) == (["a", ""], "\ufffd")


def test_nothing_comes_out_twice() -> None:
    detokenizer = Detokenizer(lambda _: b"ab", ["abc"])
    assert detokenizer.push(0) == ""
    assert detokenizer.flush() == "ab"
    assert detokenizer.flush() == ""
    with pytest.raises(AssertionError, match="after the end"):
        detokenizer.push(0)


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        Detokenizer(lambda _: b"", ["a", ""])


def reference(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    """The definition, written plainly: the smallest end, then the smallest start."""
    ends = [(at + len(s), at, s) for s in stops if (at := text.find(s)) >= 0]
    if not ends:
        return text, None
    _, start, stop = min(ends)
    return text[:start], stop


def split(data: bytes, cuts: list[int]) -> list[str | bytes]:
    places = sorted({c % (len(data) + 1) for c in cuts})
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=20))
def test_any_split_of_any_bytes_gives_the_text_of_the_whole(data: bytes, cuts: list[int]) -> None:
    assert joined(split(data, cuts)) == data.decode("utf-8", "replace")


@given(st.lists(st.binary(max_size=4), max_size=20))
def test_every_text_is_what_the_incremental_decoder_gives_for_the_piece(
    pieces: list[bytes],
) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    texts = [decoder.decode(p) for p in pieces] + [decoder.decode(b"", final=True)]
    assert run(list(pieces))[0] == texts


@given(
    st.text("abé", max_size=40),
    st.lists(st.text("abé", min_size=1, max_size=4), max_size=4),
    st.lists(st.integers(0, 80), max_size=20),
)
def test_any_split_meets_the_same_stop_string_at_the_same_place(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    texts, finished = run(split(text.encode(), cuts), stops)
    assert ("".join(texts), finished) == reference(text, stops)


@given(
    st.lists(st.text("ab", max_size=4), max_size=12),
    st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=3),
)
def test_what_is_shown_never_ends_with_the_beginning_of_a_stop_string(
    pieces: list[str], stops: list[str]
) -> None:
    table = [p.encode() for p in pieces]
    detokenizer = Detokenizer(table.__getitem__, stops)
    shown = taken = ""
    for token, piece in enumerate(pieces):
        shown, taken = shown + detokenizer.push(token), taken + piece
        if detokenizer.finished is not None:
            break
        beginnings = {s[:n] for s in stops for n in range(1, len(s))}
        longest = max((len(b) for b in beginnings if taken.endswith(b)), default=0)
        assert shown == taken[: len(taken) - longest]


def lines_run(n_tokens: int, stops: Sequence[str]) -> int:
    """Lines of the module that n tokens of one letter execute."""
    detokenizer = Detokenizer(lambda _: b"a", stops)
    lines = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        if not frame.f_code.co_filename.endswith("detokenize.py"):
            return None
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for token in range(n_tokens):
            detokenizer.push(token)
    finally:
        sys.settrace(before)
    return lines


def test_the_work_grows_with_the_text_alone_however_long_the_stop_strings_are() -> None:
    stops = ["a" * 400 + "b", "a" * 300 + "c"]
    assert lines_run(4000, stops) < 2.2 * lines_run(2000, stops)
    assert lines_run(2000, stops) < 1.5 * lines_run(2000, ["ab"])
