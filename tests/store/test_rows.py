from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hobnob.store import rows


@given(st.lists(st.integers(0, 2**32)))
def test_token_ids_survive_packing(tokens: list[int]) -> None:
    assert rows.unpack(rows.pack(tokens)) == tokens


def test_small_ids_take_one_byte_and_no_ids_no_row() -> None:
    assert rows.pack([0, 127, 128]) == b"\x00\x7f\x80\x01"
    assert rows.pack_or_none([]) is None
    assert rows.unpack(None) == []


def test_a_cut_off_blob_gives_the_whole_ids_before_the_cut() -> None:
    assert rows.unpack(rows.pack([5, 300])[:-1]) == [5]


def test_negative_ids_are_a_programmers_error() -> None:
    with pytest.raises(AssertionError):
        rows.pack([-1])


@pytest.mark.parametrize("column", [None, "", "{", "[1]", "3", "null"])
def test_what_is_no_json_object_reads_as_none(column: str | None) -> None:
    assert rows.load_object(column) is None


@pytest.mark.parametrize("column", ["", "[", "{}", "[1]"])
def test_unreadable_blocks_read_as_the_searchable_text(column: str) -> None:
    assert rows.load_blocks(column, "words") == [{"type": "text", "text": "words"}]


def test_ids_do_not_repeat() -> None:
    assert len({rows.new_id() for _ in range(1000)}) == 1000
