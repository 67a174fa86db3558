"""Titles from first messages of every kind."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hobnob.server.title import MAX_TITLE_CHARACTERS, title_from, title_of_reply

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


@pytest.mark.parametrize(
    ("reply", "title"),
    [
        ("Tying a bowline", "Tying a bowline"),
        ('"Tying a Bowline."', "Tying a Bowline"),
        ("**Title:** Tying a bowline", "Tying a bowline"),
        ("**Title: Tying a bowline**", "Tying a bowline"),
        ("**Title**: Tying a bowline", "Tying a bowline"),
        ("# Title: `Knots`\n\nIt says it all.", "Knots"),
        ("\n\n- Knots\n- Ropes", "Knots"),
        ("1. Knots", "Knots"),
        ("Titel: „Seemannsknoten“", "Seemannsknoten"),
        ("标题：《航海绳结》", "航海绳结"),
        ('"Yes" and "no"', '"Yes" and "no"'),
        ("Learning C#", "Learning C#"),
        ("What `__init__` does", "What `__init__` does"),
        ("1984 by Orwell", "1984 by Orwell"),
        ("And so on...", "And so on..."),
        ("<think>\nA title.\n</think>\n\nKnots", "Knots"),
        ("the user wants a title\n</think>\nKnots", "Knots"),
        ("<think>\nthe user wants", ""),
        ("", ""),
        ("\n \n", ""),
        ("Title:", ""),
        ('"""', ""),
        ("🪢", ""),
        ("\x1b]0;owned\x07\u202eKnots\u2066\x00", "]0;owned Knots"),
        ("Knots\u2028and more", "Knots"),
        ("word " * 13, ""),
        ("longwordlongword " * 6, "longwordlongword longwordlongword longwordlongword…"),
    ],
)
def test_titles_of_what_a_model_writes(reply: str, title: str) -> None:
    assert title_of_reply(reply) == title


@given(st.text(max_size=300))
def test_what_a_model_writes_becomes_one_short_line_or_nothing(text: str) -> None:
    title = title_of_reply(text)
    assert len(title) <= MAX_TITLE_CHARACTERS
    assert not any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in title)
    assert title == title.strip()
