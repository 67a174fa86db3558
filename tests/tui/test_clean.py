"""What reaches a terminal of a text from elsewhere."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hobnob.tui.clean import Cleaner, clean, one_line

ANY = st.text(st.characters(exclude_categories=()), max_size=40)


@given(ANY)
def test_no_control_but_line_end_and_tab_is_left(text: str) -> None:
    left = {char for char in clean(text) if unicodedata.category(char) in ("Cc", "Cs")}
    assert left <= {"\n", "\t"}
    assert "\n" not in one_line(text) and "\t" not in one_line(text)


@given(st.text(st.characters(exclude_categories=("Cc", "Cs", "Cf", "Zl", "Zp"))))
def test_text_without_controls_is_left_alone(text: str) -> None:
    assert clean(text) == text


@given(ANY, st.lists(st.integers(0, 40), max_size=5))
def test_pieces_are_cleaned_as_the_whole_is(text: str, cuts: list[int]) -> None:
    cleaner, edges = Cleaner(), [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = (text[a:b] for a, b in zip(edges, edges[1:], strict=False))
    assert "".join(cleaner.push(piece) for piece in pieces) + cleaner.flush() == clean(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\u202ea\u2028", "�a�"),
        ("\x1b[2J", "␛[2J"),
        ("a\r\nb\rc", "a\nb␍c"),
        ("\x7f\x9b\ud83d", "␡��"),
        ("\x00\x08", "␀␈"),
    ],
)
def test_controls_are_shown_as_stand_ins(text: str, shown: str) -> None:
    assert clean(text) == shown
