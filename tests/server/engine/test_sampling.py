"""The draw: reproducible from seed and place, and the same as the plain definition."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hobnob.server.engine import feedback, filters
from hobnob.server.engine.protocol import Sampling
from hobnob.server.engine.ranking import ByValue, top
from hobnob.server.engine.sampling import BadLogits, Sampler, uniform

N = 3000


def row(seed: int, n: int = N, scale: float = 3.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, scale, n).astype(np.float32)


def by_definition(logits: np.ndarray, p: Sampling, index: int, before: list[int]) -> int:
    """The chain written out without any short cut."""
    values = logits.astype(np.float32).copy()
    for token, bias in p.logit_bias.items():
        values[token] += np.float32(bias)
    recent = before[-p.repeat_last_n :] if p.repeat_last_n else []
    for token, count in Counter(recent).items():
        penalty = np.float32(p.repeat_penalty)
        values[token] = values[token] * penalty if values[token] <= 0 else values[token] / penalty
        values[token] -= np.float32(count) * np.float32(p.frequency_penalty) + np.float32(
            p.presence_penalty
        )
    order = sorted(range(values.size), key=lambda id: (-values[id], id))
    if p.temperature == 0:
        return order[0]
    if p.top_k:
        order = order[: p.top_k]
    weights = [math.exp(float(values[id]) - float(values[order[0]])) for id in order]
    if p.top_p < 1:
        reached, total = 0.0, sum(weights)
        for n, weight in enumerate(weights, 1):
            reached += weight
            if reached >= p.top_p * total:
                order = order[:n]
                break
    if p.min_p:
        least = float(values[order[0]]) + math.log(p.min_p)
        order = [id for id in order if float(values[id]) >= least] or order[:1]
    scaled = [math.exp((float(values[i]) - float(values[order[0]])) / p.temperature) for i in order]
    wanted, reached = uniform(p.seed, index) * sum(scaled), 0.0
    for id, weight in zip(order, scaled, strict=True):
        reached += weight
        if reached > wanted:
            return id
    return order[-1]


def test_the_random_number_is_the_documented_hash() -> None:
    import hashlib

    digest = hashlib.blake2b(
        (5).to_bytes(8, "little") + (7).to_bytes(8, "little") + bytes(8), digest_size=8
    ).digest()
    assert uniform(5, 7) == int("".join(f"{b:08b}" for b in digest)[:53], 2) / 2**53


def test_the_numbers_are_spread_evenly() -> None:
    numbers = [uniform(1, i) for i in range(4000)]
    counts, _ = np.histogram(numbers, bins=10, range=(0, 1))
    assert counts.min() > 330 and counts.max() < 470


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**64 - 1),
    temperature=st.sampled_from([0.0, 0.3, 0.8, 1.5]),
    top_k=st.sampled_from([0, 1, 5, 40, 500, 10_000]),
    top_p=st.sampled_from([0.1, 0.5, 0.95, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.5]),
    repeat_penalty=st.sampled_from([1.0, 1.3]),
    presence=st.sampled_from([0.0, 0.7]),
    frequency=st.sampled_from([0.0, 0.4]),
    scale=st.sampled_from([0.5, 3.0, 9.0]),
    index=st.integers(0, 1000),
)
def test_every_combination_draws_what_the_plain_definition_draws(
    seed: int,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    repeat_penalty: float,
    presence: float,
    frequency: float,
    scale: float,
    index: int,
) -> None:
    p = Sampling(
        seed=seed,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repeat_penalty=repeat_penalty,
        repeat_last_n=8,
        presence_penalty=presence,
        frequency_penalty=frequency,
        logit_bias={3: 2.5, 11: -100.0},
    )
    logits = row(seed % 1000, scale=scale)
    before = [3, 5, 5, 5, 9, 11, 3, 8, 7, 7]
    assert Sampler(p, before).draw(logits, index).token == by_definition(logits, p, index, before)


def by_full_sort(logits: np.ndarray, p: Sampling, index: int) -> int:
    """A draw without top-k from ids that were all sorted, with the same sums in the same order."""
    ids = np.lexsort((np.arange(logits.size), -logits))
    values = logits[ids].astype(np.float64)
    if p.top_p < 1:
        mass = np.cumsum(np.exp(values - values[0]))
        total = float(np.exp(logits - logits.max()).sum(dtype=np.float64))
        values = values[: int(np.searchsorted(mass, p.top_p * total)) + 1]
    values = filters.min_p(values, p.min_p)
    weights = np.exp((values - values[0]) / p.temperature)
    return int(ids[feedback.pick(weights, uniform(p.seed, index))])


@pytest.mark.parametrize("scale", [0.01, 0.5, 3.0])
@pytest.mark.parametrize("decimals", [1, 7])  # with one many are equal
@pytest.mark.parametrize("top_p", [0.5, 0.95, 1.0])
@pytest.mark.parametrize("min_p", [0.0, 0.05])
def test_without_top_k_the_draw_is_to_the_last_bit_that_of_a_full_sort(
    scale: float, decimals: int, top_p: float, min_p: float
) -> None:
    p = Sampling(seed=11, top_k=0, top_p=top_p, min_p=min_p)
    logits = np.round(row(4, 49_152, scale), decimals)
    logits[1000:1100] = -np.inf
    for index in range(12):
        assert Sampler(p, []).draw(logits, index).token == by_full_sort(logits, p, index)


@pytest.mark.parametrize("bound", [-math.inf, -0.5, 1.0])
def test_values_sorted_by_themselves_are_traced_to_their_ids(bound: float) -> None:
    logits = np.round(row(9, 400, 1.0), 1)
    expected = [int(i) for i in np.lexsort((np.arange(400), -logits)) if logits[i] >= bound]
    found = ByValue(logits, bound)
    assert [found[at] for at in range(found.values.size)] == expected
    assert found.values.tolist() == [float(logits[i]) for i in expected]
    some = found[np.array([3, 1, 7])][1:]
    assert [some[0], some[1]] == [expected[1], expected[7]]
    assert some.values.tolist() == [float(logits[expected[at]]) for at in (1, 7)]


def test_a_draw_changes_nothing() -> None:
    p = Sampling(seed=3, repeat_penalty=1.2, logit_bias={1: 5.0})
    sampler, logits = Sampler(p, [1, 2, 3]), row(0)
    before = logits.copy()
    assert [sampler.draw(logits, 4) for _ in range(3)] == [sampler.draw(logits, 4)] * 3
    assert np.array_equal(logits, before)


def test_penalties_forget_tokens_outside_their_window() -> None:
    p = Sampling(seed=1, temperature=0, presence_penalty=9.0, repeat_last_n=2)
    logits = np.zeros(10, np.float32)
    logits[4] = 5.0
    sampler = Sampler(p, [4])
    assert sampler.draw(logits, 0).token != 4
    sampler.accept(1)
    sampler.accept(2)
    assert sampler.draw(logits, 0).token == 4


def test_a_sampler_made_in_mid_reply_goes_on_like_the_first() -> None:
    p = Sampling(seed=9, repeat_penalty=1.3, presence_penalty=0.5, repeat_last_n=16)
    first, reply = Sampler(p, [1, 2]), []
    for i in range(30):
        token = first.draw(row(i), i).token
        first.accept(token)
        reply.append(token)
    second = Sampler(p, [1, 2, *reply[:17]])
    for i in range(17, 30):
        assert second.draw(row(i), i).token == reply[i]
        second.accept(reply[i])


def test_banned_tokens_are_never_drawn() -> None:
    logits = np.zeros(8, np.float32)
    logits[2] = 50.0
    for p in (Sampling(seed=1, temperature=0), Sampling(seed=1), Sampling(seed=1, top_k=0)):
        assert Sampler(p, [], banned=[2]).draw(logits, 0).token != 2


@pytest.mark.parametrize("n", [100, 2048, 49152])
@pytest.mark.parametrize("k", [1, 2, 40, 300])
def test_top_is_the_head_of_a_full_sort_with_equals_by_id(n: int, k: int) -> None:
    logits = np.round(row(n + k, n), 1)  # many are equal
    expected = np.lexsort((np.arange(n), -logits))[:k]
    assert top(logits, k).tolist() == expected.tolist()


def test_logprobs_are_those_of_the_model_before_any_sampler() -> None:
    logits = row(5)
    p = Sampling(seed=1, temperature=0.1, logit_bias={7: 100.0}, logprobs=3)
    drawn = Sampler(p, []).draw(logits, 0)
    softmax = logits.astype(np.float64) - np.log(np.exp(logits.astype(np.float64)).sum())
    assert drawn.token == 7
    assert drawn.logprob == pytest.approx(softmax[7])
    assert [id for id, _ in drawn.top] == np.argsort(-logits)[:3].tolist()
    assert [value for _, value in drawn.top] == pytest.approx(np.sort(softmax)[::-1][:3].tolist())


def test_no_alternatives_are_given_when_none_are_asked_for() -> None:
    drawn = Sampler(Sampling(seed=1, logprobs=0), []).draw(row(1), 0)
    assert drawn.logprob is not None and drawn.top == ()
    assert Sampler(Sampling(seed=1), []).draw(row(1), 0).logprob is None


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("at", [0, 1500, N - 1])
@pytest.mark.parametrize(
    "p",
    [
        Sampling(seed=1, temperature=0),
        Sampling(seed=1),
        Sampling(seed=1, top_k=0),
        Sampling(seed=1, top_k=0, top_p=1.0),
    ],
)
def test_logits_that_are_no_numbers_are_refused(p: Sampling, bad: float, at: int) -> None:
    logits = row(1)
    logits[at] = bad
    with pytest.raises(BadLogits):
        Sampler(p, []).draw(logits, 0)


def test_a_row_of_impossible_tokens_is_refused() -> None:
    logits = np.full(N, -np.inf, np.float32)
    for p in (Sampling(seed=1, temperature=0), Sampling(seed=1), Sampling(seed=1, top_k=0)):
        with pytest.raises(BadLogits):
            Sampler(p, []).draw(logits, 0)
