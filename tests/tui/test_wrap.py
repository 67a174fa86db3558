"""Wrapping by terminal cells."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from hobnob.tui.wrap import fold_text, shorten, wrap

TEXT = st.text(st.sampled_from("abcd  efg\n你好，👩\u200d👧é"), max_size=120)


def rows(text: str, width: int) -> list[str]:
    return ["".join(part for part, _ in spans) for spans, _ in wrap([(text, "")], width)]


def test_rows_break_between_words() -> None:
    assert rows("the quick brown fox", 10) == ["the quick", "brown fox"]


def test_typed_spaces_are_kept() -> None:
    assert rows("    indented  twice", 40) == ["    indented  twice"]


def test_a_long_word_is_folded() -> None:
    assert rows("see abcdefghij", 4) == ["see", "abcd", "efgh", "ij"]


def test_wide_characters_break_anywhere_but_not_before_a_comma() -> None:
    assert rows("你好，世界", 6) == ["你好，", "世界"]
    assert rows("你好吗，世", 6) == ["你好", "吗，世"]


def test_styles_stay_with_their_characters() -> None:
    out = wrap([("aa ", ""), ("bb cc", "strong")], 5)
    assert [spans for spans, _ in out] == [[("aa ", ""), ("bb", "strong")], [("cc", "strong")]]


def test_rows_know_how_they_join() -> None:
    assert [join for _, join in wrap([("aa bb\ncccccc", "")], 3)] == [None, " ", None, ""]


@example("\u200d\u200d👧a", 2)
@given(TEXT, st.integers(2, 12))
def test_no_row_is_wider_than_the_screen(text: str, width: int) -> None:
    # Spaces at the end of the text may hang over: more text may come after them.
    assert all(cell_len(row.rstrip(" ")) <= width for row in rows(text, width))


@given(TEXT, st.integers(1, 12))
def test_no_character_but_spaces_is_lost(text: str, width: int) -> None:
    joined = "".join(rows(text, width))
    assert joined.replace(" ", "") == text.replace(" ", "").replace("\n", "")


@given(TEXT, st.integers(2, 12), st.integers(0, 120))
def test_more_text_only_changes_the_last_row(text: str, width: int, at: int) -> None:
    if "\u200d" in text:  # a joiner at the cut joins what comes after it
        return
    before = rows(text[:at], width)
    assert rows(text, width)[: len(before) - 1] == before[:-1]


def test_code_is_folded_at_the_last_cell() -> None:
    assert fold_text("abcdef", 4) == ["abcd", "ef"]
    assert fold_text("你好世", 4) == ["你好", "世"]


@pytest.mark.parametrize("width", range(0, 9))
def test_a_shortened_text_fits_and_is_never_cut_inside_a_character(width: int) -> None:
    text = shorten("ab👩‍👩‍👧‍👦cd你好", width)
    assert cell_len(text) <= width
    assert "\ufffd" not in text


def test_a_width_of_nothing_does_not_hang() -> None:
    assert rows("你好 abc", 0)
    assert rows("你好 abc", 1)
