"""A run's draft is what followed where its last words occurred before."""

from __future__ import annotations

from collections.abc import Sequence

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


def test_a_long_prompt_is_read_in_parts() -> None:
    tokens = list(range(READ_TOKENS + 10))
    drafter = Drafter(tokens, len(tokens))
    assert not drafter.read()
    assert drafter.read()
