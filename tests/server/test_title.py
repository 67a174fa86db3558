"""Titles from first messages of every kind."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hobnob.server.title import MAX_TITLE_CHARACTERS, title_from

FAMILY = "👨\u200d👩\u200d👧"
FLAG = "🇩🇪"


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Hello", "Hello"),
        ("  two\n\n words\t", "two words"),
        ("\x1b]0;owned\x07A\x9b2J", "]0;owned A 2J"),
        ("\u202eevil\u2066", "evil"),
        ("", ""),
        ("\x00\n", ""),
        (FAMILY, FAMILY),
        ("word " * 20, "word " * 11 + "word…"),
    ],
)
def test_titles(text: str, title: str) -> None:
    assert title_from(text) == title


@pytest.mark.parametrize("piece", [FAMILY, FLAG, "👍🏽", "e\u0301", "각"])
@pytest.mark.parametrize("shift", range(6))
def test_what_is_seen_as_one_character_is_not_split(piece: str, shift: int) -> None:
    title = title_from("x" * shift + piece * 60)
    kept = title.removesuffix("…")[shift:]
    assert kept and kept == piece * (len(kept) // len(piece))


@given(st.text(max_size=300))
def test_a_title_is_short_one_line_and_without_controls(text: str) -> None:
    title = title_from(text)
    assert len(title) <= MAX_TITLE_CHARACTERS
    assert not any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in title)
    assert title == title.strip()
