"""An owner's late replies are known again, within a bound, and to nobody else."""

from __future__ import annotations

import random
import time

from hypothesis import given
from hypothesis import strategies as st

from hobnob.server.engine import recall
from hobnob.server.engine.drafter import Drafter
from hobnob.server.engine.pacing import Pace
from hobnob.server.engine.recall import HALF_TOKENS, KEY_TOKENS, OWNERS, Recall, Recalled, Words
from hobnob.server.engine.speculation import Speculation

ASK = [3, 1, 4, 1, 5]
REPLY = [20, 21, 22, 23, 24, 25, 26, 27, 28, 29]


def knowing(*replies: list[int], prompt: list[int] = ASK, owner: str = "ann") -> Recall:
    made = Recall()
    for reply in replies:
        made.ended(owner, [*prompt, *reply], len(prompt))
    made.learn(10**6)
    return made


def recalled(made: Recall, tokens: list[int], owner: str = "ann") -> Recalled:
    words = made.of(owner)
    assert words is not None
    match = Recalled()
    match.read(tokens, len(tokens), words)
    return match


def test_the_same_question_is_known_from_the_first_token_of_its_reply() -> None:
    assert recalled(knowing(REPLY), ASK).draft(3) == REPLY[:3]


def test_what_followed_most_often_is_drafted() -> None:
    often, once = [20, 21, 22, 23, 30, 31], [20, 21, 22, 23, 40, 41]
    assert recalled(knowing(often, often, once), [9, 20, 21, 22, 23]).draft(2) == [30, 31]


def test_of_equally_frequent_ones_the_latest_is_drafted() -> None:
    first, last = [20, 21, 22, 23, 30], [20, 21, 22, 23, 40]
    assert recalled(knowing(first, last), [9, 20, 21, 22, 23]).draft(1) == [40]


def test_the_longest_match_counts_before_the_most_frequent() -> None:
    long, short = [7, 20, 21, 22, 23, 30], [8, 20, 21, 22, 23, 40]
    assert recalled(knowing(short, long, short), [7, 20, 21, 22, 23]).draft(1) == [30]


def test_a_draft_does_not_run_into_the_next_reply() -> None:
    assert recalled(knowing(REPLY, REPLY), REPLY[:6]).draft(99) == REPLY[6:]
    assert recalled(knowing(REPLY), REPLY).draft(99) == []


def test_a_match_is_followed_and_given_up_where_another_token_comes() -> None:
    words = knowing(REPLY).of("ann")
    assert words is not None
    match, tokens = Recalled(), [*ASK]
    assert match.read(tokens, len(tokens), words) is None
    tokens.append(REPLY[0])
    assert match.read(tokens, len(tokens), words) is True
    assert match.draft(2) == REPLY[1:3]
    tokens.append(99)
    assert match.read(tokens, len(tokens), words) is False
    assert match.length == 0 and match.draft(2) == []


def test_nobody_is_told_what_another_wrote() -> None:
    speculation = Speculation(_pace(), [0])
    ask = list(range(1000, 1080))
    said = Drafter([*ask, *REPLY], len(ask), "ann")
    speculation.ended(said)
    for _ in range(3):
        speculation.observe([], 1, 0.01)
    for owner, expected in (("ann", True), ("bob", False)):
        drafter = Drafter([*ask], len(ask), owner)
        drafter.gained_s = 100.0
        draft = speculation.propose(drafter, 1, 1, 8)
        assert bool(draft) is expected
        assert draft == REPLY[: len(draft)]


def test_a_reply_is_taken_in_by_small_parts() -> None:
    made = Recall()
    made.ended("ann", list(range(1000)), 500)
    made.learn()
    words = made.of("ann")
    assert words is not None and len(words) == recall.LEARNT_TOKENS
    for _ in range(20):
        made.learn()
    assert len(words) == 500 + recall.COMPARED_TOKENS + 1


def test_what_is_kept_is_bounded() -> None:
    words = Words()
    for token in range(5 * HALF_TOKENS):
        words.add(token)
        assert len(words) <= 2 * HALF_TOKENS
    assert words.find(list(range(100, 100 + KEY_TOKENS)), KEY_TOKENS) == (0, [])
    newest = list(range(5 * HALF_TOKENS - 9, 5 * HALF_TOKENS - 1))
    assert words.find(newest, len(newest))[0] == len(newest)
    made = Recall()
    for n in range(OWNERS + 3):
        made.ended(str(n), REPLY, 0)
        made.learn(10**6)
    assert sum(made.of(str(n)) is not None for n in range(OWNERS + 3)) == OWNERS
    for _ in range(10 * recall.WAITING_REPLIES):
        made.ended("late", REPLY, 0)
    made.learn(10**6)
    late = made.of("late")
    assert late is not None and len(late) == recall.WAITING_REPLIES * (len(REPLY) + 1)


def test_what_was_said_in_a_deleted_conversation_is_not_found_again_and_all_else_is() -> None:
    made, other = Recall(), [*REPLY[:5], 50, 51, 52, 53, 54]
    for tokens, group in ((REPLY, "gone"), (other, "stays"), ([*REPLY, 60], "gone")):
        made.ended("ann", [*ASK, *tokens], len(ASK), group)
        made.learn(10**6)
    assert recalled(made, REPLY[:8]).draft(2) == REPLY[8:10]
    made.forget("gone")
    assert recalled(made, REPLY[:8]).length == 0
    assert recalled(made, [9, *REPLY[:5]]).draft(3) == other[5:8]
    assert recalled(made, ASK).draft(5) == other[:5]
    words = made.of("ann")
    assert words is not None
    kept = [token for half in (words._young, words._old) for token in half.tokens if token >= 0]
    assert kept == [*ASK, *other]
    ends = [end for half in (words._young, words._old) for end in half._latest.values()]
    assert sorted(ends) == list(range(len(ASK) + len(REPLY) + 1 + KEY_TOKENS, max(ends) + 1))


def test_a_reply_that_is_being_taken_in_or_followed_can_be_forgotten() -> None:
    made = Recall()
    made.ended("ann", [*ASK, *REPLY], len(ASK), "gone")
    made.learn(len(ASK) + 8)
    match = recalled(made, ASK)
    assert match.draft(3) == REPLY[:3]
    made.forget("gone")
    assert match.draft(3) == []
    made.learn(10**6)
    words = made.of("ann")
    assert words is not None and set(words._young.tokens) == {-1}
    assert match.read([*ASK, REPLY[0]], len(ASK) + 1, words) is False


@given(
    replies=st.lists(
        st.tuples(st.sampled_from("abc"), st.lists(st.integers(0, 3), max_size=30)), max_size=12
    ),
    gone=st.sets(st.sampled_from("abc"), min_size=1),
    cut=st.integers(0, 400),
)
def test_after_a_deletion_everything_is_found_as_if_it_had_not_been_said(
    replies: list[tuple[str, list[int]]], gone: set[str], cut: int
) -> None:
    made, never = Recall(), Recall()
    for group, tokens in replies:
        made.ended("ann", tokens, 0, group)
        if group not in gone:
            never.ended("ann", tokens, 0, group)
    made.learn(cut)
    for group in gone:
        made.forget(group)
    made.learn(10**6)
    never.learn(10**6)
    words, others = made.of("ann"), never.of("ann")
    for _, tokens in replies:
        for end in range(KEY_TOKENS, len(tokens) + 1):
            found = words.find(tokens, end) if words else (0, [])
            expected = others.find(tokens, end) if others else (0, [])
            assert found[0] == expected[0] and len(found[1]) <= len(expected[1])
            for half, at in found[1]:
                assert half.tokens[at] >= 0


def test_a_step_of_sixteen_rows_spends_well_under_a_millisecond_on_it() -> None:
    """Not a time to be proud of, but a scan of everything that is kept would miss it by far."""
    chance = random.Random(1)
    made = Recall()
    for _ in range(40):
        made.ended("ann", [chance.randrange(3) for _ in range(2000)], 0)
        made.learn(10**6)
    words = made.of("ann")
    assert words is not None and len(words) > HALF_TOKENS
    tokens = [chance.randrange(3) for _ in range(2000)]
    match = Recalled()
    began = time.process_time()
    for end in range(1, len(tokens) + 1):
        match.read(tokens, end, words)
    assert (time.process_time() - began) / len(tokens) < 0.001


def _pace() -> Pace:
    pace = Pace(512)
    pace.observe(1, 0, 0.01)
    return pace
