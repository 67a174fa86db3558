"""A run's draft is what followed where its last words occurred before."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hobnob.server.engine.drafter import READ_TOKENS, Drafter, Suffixes
from hobnob.server.engine.recall import KEY_TOKENS


def indexed(tokens: Sequence[int]) -> Suffixes:
    suffixes = Suffixes(tokens)
    while suffixes.behind:
        suffixes.read()
        suffixes.search()
    return suffixes


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(0, 9))
def test_a_draft_is_what_followed_where_the_end_occurred_before(
    tokens: list[int], most: int
) -> None:
    suffixes = indexed(tokens)
    draft = suffixes.draft(most)
    repeated = [tokens[at : at + KEY_TOKENS] for at in range(len(tokens) - KEY_TOKENS)]
    assert bool(suffixes.length) == (tokens[-KEY_TOKENS:] in repeated)
    if not suffixes.length:
        assert draft == []
        return
    assert len(draft) == most
    said = [*tokens, *draft]
    end = tokens[-suffixes.length :]
    places = [at for at in range(len(tokens)) if said[at : at + len(end)] == end]
    follow = [said[at + len(end) :][: len(draft)] for at in places if at + len(end) < len(tokens)]
    assert draft in follow


def test_the_longest_match_is_followed_and_the_latest_of_equals() -> None:
    short, long = [5, 6, 7, 8], [4, 5, 6, 7, 8]
    assert indexed([*long, 1, 2, 3, *short, 9, 9, *long]).draft(2) == [1, 2]
    assert indexed([*long, 1, 2, 3, *long, 9, 2, *long]).draft(2) == [9, 2]


def test_a_repetition_goes_on_beyond_the_end() -> None:
    assert indexed([1, 2, 3] * 4).draft(7) == [1, 2, 3, 1, 2, 3, 1]


TEXT = list(range(100, 160))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (TEXT[:20] + TEXT[21:22], TEXT[22:26]),  # one is left out
        (TEXT[:20] + TEXT[24:25], TEXT[25:29]),  # several are
        ([*TEXT[:20], 7, TEXT[20]], TEXT[21:25]),  # one is put in
        ([*TEXT[:20], 7, 8, 9, TEXT[20]], TEXT[21:25]),  # several are
        ([*TEXT[:20], 7, TEXT[21]], TEXT[22:26]),  # one is exchanged
        ([*TEXT[:20], 7, 8, TEXT[22]], TEXT[23:27]),  # two are
        ([*TEXT[:20], 7, *TEXT[20:22], 8, TEXT[22]], TEXT[23:27]),  # again and again
        ([*TEXT[:20], 7], []),
        ([*TEXT[:20], 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, TEXT[20]], []),
        (TEXT[:3] + TEXT[4:5], []),  # too short a match to be sure of its place
    ],
)
def test_a_copy_with_a_small_change_is_followed_on_after_it(
    said: list[int], expected: list[int]
) -> None:
    tokens = list(TEXT)
    drafter = Drafter(tokens, len(tokens))
    drafter.read()
    for token in said:
        tokens.append(token)
        drafter.read()
    assert drafter.draft(4) == expected
    assert bool(drafter.acceptance) == bool(expected)


def test_of_two_places_where_a_changed_copy_may_go_on_the_likelier_is_followed() -> None:
    text = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 50, 12, 50, 13]
    tokens = [*text, 900, *text[:10]]
    drafter = Drafter(tokens, len(text))
    drafter.read()
    for token in (99, 50):  # 11 is exchanged, rather than four tokens left out
        tokens.append(token)
        drafter.read()
    assert drafter.draft(2) == [12, 50]


def test_a_long_prompt_is_read_in_parts() -> None:
    tokens = list(range(READ_TOKENS + 10))
    drafter = Drafter(tokens, len(tokens))
    assert not drafter.read()
    assert drafter.read()
