"""An owner's late replies are known again, within a bound, and to nobody else."""

from __future__ import annotations

import random
import time

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
