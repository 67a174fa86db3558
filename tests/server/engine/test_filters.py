"""Every filter leaves what llama.cpp's sampler of the same name leaves."""

from __future__ import annotations

import ctypes
import math
import random
from collections.abc import Iterator, Sequence

import llama_cpp as C
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_samplers import survivors
from support_model import starter

from hobnob.server.engine import filters
from hobnob.server.engine.breakers import NONE, REST_MAX, BreakerFinder, Breakers, Rest
from hobnob.server.engine.dry import Dry, _of_much_the_same, _suffix_matches
from hobnob.server.engine.feedback import AdaptiveP, Mirostat
from hobnob.server.engine.llama import Vocab
from hobnob.server.engine.protocol import Sampling
from hobnob.server.engine.ranking import all_of
from hobnob.server.engine.sampling import Sampler, uniform

SEEDS = range(4)


def row(seed: int, n: int = 3000) -> np.ndarray:
    made = np.random.default_rng(seed)
    return made.normal(0, 0.5 + 3 * made.random(), n).astype(np.float32)


def ours(logits: np.ndarray, **options: float) -> dict[int, float]:
    """The candidates of our chain before XTC and temperature."""
    off = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
    p = Sampling(seed=1, **{**off, **options})
    ids, values = Sampler(p, [])._candidates(logits)
    values = filters.min_p(values, p.min_p)
    return {int(id): float(v) for id, v in zip(ids, values, strict=False) if v > -np.inf}


def same(mine: dict[int, float], theirs: dict[int, float]) -> None:
    assert set(mine) == set(theirs)
    ids = list(theirs)
    np.testing.assert_allclose([mine[id] for id in ids], [theirs[id] for id in ids], atol=1e-4)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9, 0.99, 1.0])
def test_typical_p(seed: int, p: float) -> None:
    same(ours(row(seed), typical_p=p), survivors(row(seed), [C.llama_sampler_init_typical(p, 0)]))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("n", [-1.0, 0.0, 0.5, 1.0, 2.5])
def test_top_n_sigma(seed: int, n: float) -> None:
    theirs = survivors(row(seed), [C.llama_sampler_init_top_n_sigma(n)])
    same(ours(row(seed), top_n_sigma=n), theirs)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("probability", "threshold"), [(1.0, 0.02), (1.0, 0.1), (1.0, 0.6)])
def test_xtc(seed: int, probability: float, threshold: float) -> None:
    logits = row(seed)
    theirs = survivors(logits, [C.llama_sampler_init_xtc(probability, threshold, 0, 1)])
    ids = all_of(logits)
    first = filters.excluded_top(logits[ids].astype(np.float64), threshold)
    assert set(ids[first:].tolist()) == set(theirs)


def test_xtc_s_chance_is_the_documented_number_of_its_own() -> None:
    logits = np.zeros(50, np.float32)
    logits[:2] = 5.0, 4.9  # both over the threshold: the first is left out when the chance says so
    p = Sampling(seed=4, temperature=0, top_k=0, xtc_probability=0.5, xtc_threshold=0.2)
    drawn = [Sampler(p, []).draw(logits, i).token for i in range(200)]
    assert drawn == [1 if uniform(4, i, 1) <= 0.5 else 0 for i in range(200)]
    assert 60 < sum(drawn) < 140


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("sigma", "typical", "top_k"),
    [
        # Where sigma leaves fewer than top-k takes, llama.cpp's entropy for typical-p is not a
        # number, so the two together are compared only with a small k.
        *[(sigma, 1.0, top_k) for sigma in (-1.0, 1.5) for top_k in (0, 40, 700)],
        *[(-1.0, 0.6, top_k) for top_k in (0, 40, 700)],
        (1.5, 0.6, 10),
    ],
)
@pytest.mark.parametrize(("top_p", "min_p"), [(1.0, 0.0), (0.8, 0.0), (0.95, 0.05), (1.0, 0.1)])
def test_the_chain_has_llama_cpp_s_order(
    seed: int, sigma: float, typical: float, top_k: int, top_p: float, min_p: float
) -> None:
    mine = ours(
        row(seed), top_n_sigma=sigma, typical_p=typical, top_k=top_k, top_p=top_p, min_p=min_p
    )
    theirs = survivors(
        row(seed),
        [
            C.llama_sampler_init_top_n_sigma(sigma),
            C.llama_sampler_init_top_k(top_k),
            C.llama_sampler_init_typical(typical, 0),
            C.llama_sampler_init_top_p(top_p, 0),
            C.llama_sampler_init_min_p(min_p, 0),
        ],
    )
    same(mine, theirs)


@pytest.mark.parametrize("typical", [0.3, 0.9])
def test_impossible_tokens_are_neither_typical_nor_counted(typical: float) -> None:
    logits = row(3)
    fewer = logits.copy()
    fewer[::2] = -np.inf
    mine = ours(fewer, typical_p=typical, top_n_sigma=3.0)
    alone = ours(logits[1::2].copy(), typical_p=typical, top_n_sigma=3.0)
    assert mine == {2 * id + 1: value for id, value in alone.items()}


# ---- dry ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def vocab() -> Iterator[Vocab]:
    opened = Vocab.open(starter())
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def finder(vocab: Vocab) -> BreakerFinder:
    return BreakerFinder(lambda id: vocab.piece(id, special=True), vocab.tokenize)


def their_dry(vocab: Vocab, p: Sampling) -> object:
    texts = [text.encode() for text in p.dry_sequence_breakers]
    return C.llama_sampler_init_dry(
        vocab._vocab,
        p.dry_multiplier,
        p.dry_base,
        p.dry_allowed_length,
        p.dry_penalty_last_n,
        (ctypes.c_char_p * len(texts))(*texts),
        len(texts),
    )


def repetitive(seed: int, vocab: Vocab) -> list[int]:
    words = ["one", " two", " three", "\n", " be", " it:", ' "so"', "*", " user", "\nUser:", " end"]
    made = random.Random(seed)
    phrase = made.choices(words, k=9)
    text = "".join(made.choices(words, k=20) + phrase + made.choices(words, k=made.randrange(9)))
    return vocab.tokenize(text + "".join(phrase[: made.randrange(2, 9)]))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dry_sequence_breakers": []},
        {"dry_sequence_breakers": ["\nUser:", "three be", "x"]},
        {"dry_allowed_length": 0},
        {"dry_allowed_length": 4, "dry_base": 1.0},
        {"dry_penalty_last_n": 12, "dry_base": 3.0, "dry_sequence_breakers": ["\n"]},
    ],
)
def test_dry_lowers_the_same_tokens_as_much(
    seed: int, options: dict[str, object], vocab: Vocab, finder: BreakerFinder
) -> None:
    p = Sampling(seed=1, dry_multiplier=0.8, **options)  # type: ignore[arg-type]
    before, logits = repetitive(seed, vocab), row(seed, vocab.n_vocab)
    theirs = survivors(logits, [their_dry(vocab, p)], before)
    breakers = finder.find(p.dry_sequence_breakers)
    whole, grown = Dry(p, before, breakers), Dry(p, [], breakers)
    for token in before:
        grown.accept(token)
    for dry in (whole, grown, Dry(p, before[:10], breakers)):
        if dry is not whole and dry is not grown:
            for token in before[10:]:
                dry.accept(token)
        mine = logits.copy()
        dry.penalise(mine)
        assert list(theirs) == list(range(logits.size))
        assert np.allclose(mine, list(theirs.values()), rtol=0, atol=1e-4)


def test_dry_does_lower_something(vocab: Vocab, finder: BreakerFinder) -> None:
    p = Sampling(seed=1, dry_multiplier=0.8, dry_sequence_breakers=[])
    before = vocab.tokenize("the cat sat on the mat and the cat sat on")
    lowered = np.zeros(vocab.n_vocab, np.float32)
    Dry(p, before, NONE).penalise(lowered)
    (id,) = np.flatnonzero(lowered).tolist()
    assert vocab.piece(id) == b" the"
    assert lowered[id] == pytest.approx(-0.8 * 1.75 ** (3 - 2), abs=1e-5)


@pytest.mark.parametrize(
    "texts",
    [["\n", ":", '"', "*"], ["\nUser:", "three be", "x"], [" " * 40, "aAaAaA", "é" * 20], ["𝔘!"]],
)
def test_a_breaker_is_a_token_that_holds_it_or_one_that_begins_it_with_the_rest(
    texts: list[str], vocab: Vocab, finder: BreakerFinder
) -> None:
    breakers = finder.find(texts)
    for id in range(0, vocab.n_vocab, 7):
        piece, expected = vocab.piece(id, special=True), set[Rest]()
        for text in map(str.encode, texts):
            if text in piece:
                expected.add(())
                continue
            for n in range(1, len(text)):
                if piece.endswith(text[:n]):
                    rest = vocab.tokenize(text[n:].decode("utf-8", "replace"))
                    expected.add(tuple(rest[:REST_MAX]))
        found = breakers.after(id)
        assert (len(found), set(found)) == (len(expected), expected)
        assert [len(rest) for rest in found] == sorted(map(len, found), reverse=True)


def test_nobody_waits_for_texts_of_tokens_that_a_run_does_not_meet(vocab: Vocab) -> None:
    asked, cut = list[int](), list[str]()

    def spelled(id: int) -> bytes:
        asked.append(id)
        return vocab.piece(id, special=True)

    def tokenize(text: str) -> list[int]:
        cut.append(text)
        return vocab.tokenize(text)

    texts = [letter * 40 for letter in "abcdefghijklmnop"]
    p = Sampling(seed=1, dry_multiplier=0.8, dry_sequence_breakers=texts, dry_penalty_last_n=8000)
    words = vocab.tokenize("the quick brown fox jumps over the lazy dog and then the quick brown")
    dry = Dry(p, list(range(2000, 5000)) + words, BreakerFinder(spelled, tokenize).find(texts))
    assert not asked
    dry.penalise(np.zeros(vocab.n_vocab, np.float32))
    assert 0 < len(asked) <= len(words) + REST_MAX
    assert len(cut) <= 2 * len(asked)


def dry_by_definition(p: Sampling, tokens: Sequence[int], breakers: Breakers) -> dict[int, float]:
    """Token to what it loses, written out without any short cut."""
    window = list(tokens[-p.dry_penalty_last_n :])
    n = len(window)
    limit = n
    for first in range(n):  # the one that begins last counts
        wholes = [
            len(rest)
            for rest in breakers.after(window[first])
            if tuple(window[first + 1 : first + 1 + len(rest)]) == rest
        ]
        if wholes:
            limit = n - 1 - first - max(wholes)
    lost: dict[int, float] = {}
    for at in range(n - 1):
        same = 0
        while same <= at and window[at - same] == window[n - 1 - same]:
            same += 1
        length, follows = min(same, limit), window[at + 1]
        if n > p.dry_allowed_length <= length and () not in breakers.after(follows):
            exponent = length - p.dry_allowed_length
            if p.dry_base > 1:  # beyond this llama.cpp does not go
                exponent = min(exponent, int(88.7228391 / math.log(p.dry_base)))
            penalty = p.dry_multiplier * p.dry_base**exponent
            lost[follows] = max(lost.get(follows, 0.0), penalty)
    return lost


@pytest.mark.parametrize("seed", range(150))
def test_however_it_is_asked_dry_lowers_what_its_definition_says(seed: int) -> None:
    """Stretches said again and again, with breakers of one token and of two in some of them,
    looked at after some tokens and not after others."""
    made = random.Random(seed)
    stretch = [made.randrange(3, 40) for _ in range(made.randrange(1, 40))]
    for _ in range(made.randrange(3)):
        at = made.randrange(len(stretch))
        stretch[at:at] = made.choice([[0], [1, 2], [1], [2], [1, 2, 2]])
    head = [made.randrange(40) for _ in range(made.randrange(30))]
    ids = [*head, *stretch * 3, *stretch[: made.randrange(len(stretch) + 1)]]
    p = Sampling(
        seed=1,
        dry_multiplier=0.5,
        dry_base=made.choice([1.0, 1.5, 2.0**40]),
        dry_allowed_length=made.randrange(4),
        dry_penalty_last_n=made.randrange(1, 160),
    )
    spelled = {0: b"!", 1: b"-a", 2: b"b"}
    breakers = Breakers([b"!", b"ab"], lambda id: spelled.get(id, b"?"), lambda _: (2,))
    begun, often = made.randrange(len(ids) + 1), made.random()
    dry = Dry(p, ids[:begun], breakers)
    for at in range(begun, len(ids) + 1):
        if at == len(ids) or made.random() < often:
            lowered = np.zeros(40, np.float32)
            dry.penalise(lowered)
            lost = dry_by_definition(p, ids[:at], breakers)
            assert lowered.tolist() == pytest.approx([-lost.get(id, 0.0) for id in range(40)])
        if at < len(ids):
            dry.accept(ids[at])


@given(st.lists(st.integers(0, 2), max_size=60))
def test_suffix_matches_are_found_both_ways(tokens: list[int]) -> None:
    n = len(tokens)
    expected = [0] * n
    for at in range(n - 1):
        while expected[at] <= at and tokens[at - expected[at]] == tokens[n - 1 - expected[at]]:
            expected[at] += 1
    assert _of_much_the_same(tokens) == expected
    assert list(_suffix_matches(np.array(tokens, np.int64))) == expected


def test_a_long_run_of_one_token_stays_within_what_a_number_can_hold() -> None:
    p = Sampling(seed=1, dry_multiplier=100.0, dry_base=10.0, dry_penalty_last_n=5000)
    dry = Dry(p, [7] * 3000, NONE)
    for _ in range(9000):
        dry.accept(7)
    lowered = np.zeros(10, np.float32)
    dry.penalise(lowered)
    assert np.isfinite(lowered).all() and lowered[7] < -1e37


def test_a_reply_goes_on_the_same_with_dry_and_xtc_when_its_sampler_is_made_anew() -> None:
    p = Sampling(seed=9, dry_multiplier=2.0, xtc_probability=0.5, xtc_threshold=0.05, top_k=30)
    breakers = Breakers([b"!", b"ab"], lambda id: {3: b"!", 4: b"a"}.get(id, b""), lambda _: (5,))
    first, reply = Sampler(p, [1, 2], breakers=breakers), []
    for i in range(150):
        token = first.draw(row(i % 3, 60), i).token
        first.accept(token)
        reply.append(token)
    for cut in (0, 1, 70, 149):
        again = Sampler(p, [1, 2, *reply[:cut]], breakers=breakers)
        for i in range(cut, 150):
            assert again.draw(row(i % 3, 60), i).token == reply[i]
            again.accept(reply[i])


# ---- samplers with a state ---------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("tau", [0.5, 3.0, 6.0])
@pytest.mark.parametrize("temperature", [0.7, 1.5])
def test_mirostat_draws_from_the_same_candidates(
    seed: int, version: int, tau: float, temperature: float
) -> None:
    logits = row(seed)
    if version == 1:
        theirs = C.llama_sampler_init_mirostat(logits.size, 1, tau, 0.1, 100)
    else:
        theirs = C.llama_sampler_init_mirostat_v2(1, tau, 0.1)
    wanted = survivors(logits, [C.llama_sampler_init_temp(temperature), theirs])
    mirostat = Mirostat(version, tau, 0.1)
    drawn = {mirostat.draw(logits, temperature, u) for u in np.linspace(0, 0.9999, 500)}
    assert drawn <= set(wanted)
    assert mirostat.draw(logits, temperature, 0.999999) == min(wanted, key=wanted.__getitem__)


@pytest.mark.parametrize("version", [1, 2])
def test_mirostat_keeps_the_mean_surprise_near_its_target(version: int) -> None:
    logits, tau = row(1), 3.0
    logp = logits.astype(np.float64) - np.log(np.exp(logits.astype(np.float64)).sum())
    mirostat, surprises = Mirostat(version, tau, 0.1), []
    for i in range(1500):
        token = mirostat.draw(logits, 1.0, uniform(3, i))
        mirostat.accept(token)
        surprises.append(-logp[token] / np.log(2))
    untouched = -(np.exp(logp) * logp).sum() / np.log(2)
    assert abs(np.mean(surprises[300:]) - tau) < abs(untouched - tau)


def test_mirostat_s_state_moves_only_by_what_became_part_of_the_reply() -> None:
    mirostat = Mirostat(2, 5.0, 0.1)
    token = mirostat.draw(row(0), 1.0, 0.5)
    assert mirostat.mu == 10.0
    mirostat.accept(token + 1)  # another one than was drawn
    assert mirostat.mu == 10.0
    mirostat.draw(row(0), 1.0, 0.5)
    mirostat.accept(token)
    assert mirostat.mu != 10.0


def test_mirostat_survives_certainty_for_ever() -> None:
    logits = np.full(100, -np.inf, np.float32)
    logits[5] = 1.0
    for version in (1, 2):
        mirostat = Mirostat(version, 100.0, 1.0)
        for _ in range(3000):
            assert mirostat.draw(logits, 0.8, 0.7) == 5
            mirostat.accept(5)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("target", [0.0, 0.3, 0.9])
def test_adaptive_p_weighs_candidates_as_llama_cpp_does(seed: int, target: float) -> None:
    logits = row(seed, 40)
    theirs = survivors(logits, [C.llama_sampler_init_adaptive_p(target, 0.9, 1)])
    changed = np.array([theirs[id] for id in range(40)])
    chance = np.exp(changed - changed.max())
    chance /= chance.sum()
    ids = all_of(logits)
    scaled = logits[ids].astype(np.float64) - float(logits.max())
    adaptive = AdaptiveP(target, 0.9)
    draws = [adaptive.draw(ids, scaled, u) for u in (np.arange(2000) + 0.5) / 2000]
    counts = np.bincount(draws, minlength=40) / 2000
    assert counts == pytest.approx(chance, abs=2e-3)


def test_adaptive_p_moves_its_aim_against_what_was_drawn() -> None:
    adaptive, ids = AdaptiveP(0.3, 0.5), np.arange(3)
    scaled = np.log(np.array([0.6, 0.3, 0.1]))
    assert adaptive.weighted_sum / adaptive.total_weight == pytest.approx(0.3)
    adaptive.accept(adaptive.draw(ids, scaled, 0.0))
    assert adaptive.weighted_sum == pytest.approx(0.6 + 0.5 * 0.6)
    assert adaptive.total_weight == pytest.approx(1 + 0.5 * 2.0)


def test_sampling_says_whether_it_is_reproducible() -> None:
    assert Sampling(seed=1, dry_multiplier=1.0, xtc_probability=0.5, typical_p=0.5).reproducible
    assert not Sampling(seed=1, mirostat=2).reproducible
    assert not Sampling(seed=1, adaptive_target=0.0).reproducible
