"""Drafts are what followed before, and a run that they do not help pays next to nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import count

import numpy as np
import pytest
from support_model import starter

from hobnob.server.engine import loading
from hobnob.server.engine.drafter import Drafter
from hobnob.server.engine.llama import Vocab
from hobnob.server.engine.pacing import Pace
from hobnob.server.engine.protocol import Configure, Sampling, Stepped, Submit
from hobnob.server.engine.speculation import FORGET_STEPS, Speculation

END = 0


# ---- when to draft, on machines with steady costs ----------------------------------------------


def cpu(rows: int) -> float:
    """As measured with the starter model on two cores."""
    return float(np.interp(rows, [1, 4, 8, 9, 16, 64], [0.027, 0.08, 0.121, 0.159, 0.254, 0.744]))


def gpu(rows: int) -> float:
    return 0.012 + 0.0001 * rows


Cost = Callable[[int], float]


class Oracle(Drafter):
    """Knows the reply: what drafts could win at most."""

    def __init__(self, tokens: list[int], n_prompt: int, reply: list[int]) -> None:
        super().__init__(tokens, n_prompt)
        self._reply = reply

    @property
    def acceptance(self) -> float:
        return 1.0

    def draft(self, most: int) -> list[int]:
        return self._reply[self.drawn :][:most]


def seconds(
    cost: Cost,
    prompt: list[int],
    reply: list[int],
    *,
    decodes: int = 1,
    earlier: Sequence[list[int]] = (),
    oracle: bool = False,
) -> float:
    """Time of the reply beside others that decode, after earlier ones to the same prompt."""
    pace = Pace(512)
    pace.observe(decodes, 0, cost(decodes))
    speculation = Speculation(pace, [END])
    for one in earlier:
        speculation.ended(Drafter([*prompt, *one], len(prompt)))
    for _ in range(100 * len(earlier)):
        speculation.observe([], decodes, cost(decodes))
    tokens = list(prompt)
    drafter = Oracle(tokens, len(prompt), reply) if oracle else Drafter(tokens, len(prompt))
    took, at = 0.0, 0
    while at < len(reply):
        left = min(63, len(reply) - at - 1)
        draft = speculation.propose(drafter, decodes, decodes, left)
        right = next((n for n, t in enumerate(draft) if t != reply[at + n]), len(draft))
        step = cost(decodes + len(draft))
        took += step
        tokens += reply[at : at + right + 1]
        at += right + 1
        if draft:
            speculation.observe([(drafter, len(draft), right)], decodes, step)
        else:
            pace.observe(decodes, 0, step)
            speculation.observe([], decodes, step)
    return took


def words(seed: int, n: int, kinds: int = 10**6) -> list[int]:
    chance = random.Random(seed)
    return [chance.randrange(1, kinds) for _ in range(n)]


@pytest.mark.parametrize("cost", [cpu, gpu])
def test_copying_is_faster(cost: Cost) -> None:
    text = words(1, 400)
    assert len(text) * cost(1) / seconds(cost, text, text) > 1.4


def test_copying_with_a_change_in_every_line_is_faster() -> None:
    text, new = words(1, 400), count(10**7)
    reply = [next(new) if at % 12 == 11 else token for at, token in enumerate(text)]
    assert len(text) * cpu(1) / seconds(cpu, text, reply) > 1.15


@pytest.mark.parametrize("cost", [cpu, gpu])
@pytest.mark.parametrize("kinds", [2, 3, 10, 10**6])
@pytest.mark.parametrize("n", [20, 100, 400])
def test_other_replies_are_at_most_a_twentieth_slower(cost: Cost, kinds: int, n: int) -> None:
    for seed in range(5):
        took = seconds(cost, words(seed, 400, kinds), words(seed + 100, n, kinds))
        assert took <= 1.055 * n * cost(1)


@pytest.mark.parametrize("cost", [cpu, gpu])
def test_saying_again_what_an_earlier_reply_said_is_faster(cost: Cost) -> None:
    prompt, reply = words(1, 50), words(2, 400)
    took = seconds(cost, prompt, reply, earlier=[words(3, 400), reply])
    assert len(reply) * cost(1) / took > 1.4


@pytest.mark.parametrize("cost", [cpu, gpu])
@pytest.mark.parametrize("alike", [3, 10, 40])
def test_replies_that_soon_part_from_earlier_ones_are_at_most_a_twentieth_slower(
    cost: Cost, alike: int
) -> None:
    prompt = words(1, 50)
    earlier = [words(seed, 400, 50) for seed in range(2, 6)]
    reply = [*earlier[-1][:alike], *words(9, 200, 50)]
    took = seconds(cost, prompt, reply, earlier=earlier)
    assert took <= 1.055 * len(reply) * cost(1)


@pytest.mark.parametrize(("cost", "least"), [(cpu, 1.6), (gpu, 8.0)])
def test_who_knew_the_reply_would_reach_what_rows_cost(cost: Cost, least: float) -> None:
    reply = words(1, 400)
    assert len(reply) * cost(1) / seconds(cost, [1, 2], reply, oracle=True) > least


@pytest.mark.parametrize("stretch", [6, 12, 25, 50])
def test_stretches_that_break_off_are_at_most_a_twentieth_slower(stretch: int) -> None:
    text = words(1, 2000)
    new = count(10**7)
    reply = [
        token
        for at in range(0, 600, stretch)
        for token in (*text[(at * 7) % 1900 :][:stretch], next(new))
    ]
    assert seconds(cpu, text, reply) <= 1.055 * len(reply) * cpu(1)


def test_others_do_not_wait_for_drafts() -> None:
    text = words(1, 400)
    assert seconds(cpu, text, text, decodes=3) == pytest.approx(len(text) * cpu(3))


def test_a_step_that_something_else_slowed_down_keeps_drafts_out_only_for_a_while() -> None:
    pace = Pace(512)
    pace.observe(1, 0, 0.01)
    speculation = Speculation(pace, [END])
    text = words(1, 200)
    tokens = [*text, *text[:80]]
    drafter = Drafter(tokens, len(text))
    drafter.gained_s = 100.0
    for rows in range(1, 64):
        speculation.observe([(drafter, rows, 0)], 1, 30.0)
    drafter.gained_s = 100.0
    speculation.observe([], 1, 0.01)
    assert not speculation.propose(drafter, 1, 1, 63)
    for _ in range(12 * FORGET_STEPS):
        speculation.observe([], 1, 0.01)
    assert speculation.propose(drafter, 1, 1, 63)


def test_a_draft_stops_before_the_end_token() -> None:
    pace = Pace(512)
    pace.observe(1, 0, 0.01)
    text = [*words(1, 40), END, *words(2, 40)]
    tokens = list(text)
    drafter = Drafter(tokens, len(text))
    speculation = Speculation(pace, [END])
    drafter.gained_s = 100.0
    tokens += text[:30]
    found = speculation.propose(drafter, 1, 1, 63)
    assert 0 < len(found) <= 10
    assert found == text[30 : 30 + len(found)]


# ---- the real model ----------------------------------------------------------------------------

TEXT = (
    "The harbour master kept a ledger of every boat that came in before noon. On Monday there "
    "were four trawlers, two ferries and a yacht with a torn sail. On Tuesday fog closed the "
    "channel, and only the pilot's launch went out. By Friday the ledger showed thirty-one boats, "
    "nine of them foreign, and one that nobody could name."
)


class Engine:
    def __init__(self) -> None:
        self._frames: list[Stepped] = []
        asked = Configure(str(starter()), n_ctx=1024, n_seq_max=2, n_threads=1, speculation="auto")
        self.steps, self.ready = loading.load(
            asked, self._frames.append, lambda _: None, lambda: None
        )

    def reply(self, prompt: list[int], **options: float) -> list[int]:
        sampling = Sampling(**{"seed": 7, "temperature": 0.0, "max_tokens": 24, **options})  # type: ignore[arg-type]
        self.steps.submit(Submit("r", prompt, sampling, exact=True))
        self._frames.clear()
        while not self.steps.idle:
            self.steps.step()
        self.steps.check_integrity()
        return [t for frame in self._frames for output in frame.outputs for t in output.tokens]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine()


def test_in_exact_mode_the_real_model_says_the_same_with_drafts(engine: Engine) -> None:
    vocab = Vocab.open(starter())
    head, tail = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"
    asks = [
        vocab.tokenize(f"{head}{ask}{tail}{begun}", special=True)
        for ask, begun in (
            (f"Repeat this text: {TEXT}", TEXT[:90]),
            ("Name three uses of a paper clip.", ""),
        )
    ]
    assert engine.ready.exact_rows > 8
    speculation = engine.steps._speculation
    assert speculation is not None
    own = speculation.propose

    def eager(drafter: Drafter, decodes: int, rows: int, most: int) -> list[int]:
        drafter.read()
        return (drafter.draft(7) or [5, 6])[: max(0, most)]  # many are wrong

    for ask in asks:
        for options in ({}, {"temperature": 0.8, "repeat_penalty": 1.05}):
            speculation.propose = lambda *_: []  # type: ignore[method-assign]
            plain = engine.reply(ask, **options)
            speculation.propose = eager  # type: ignore[method-assign]
            assert engine.reply(ask, **options) == plain
    speculation.propose = own  # type: ignore[method-assign]
    assert 10 < speculation.accepted < speculation.drafted - 10


def test_an_oracles_drafts_are_all_accepted_and_change_nothing(engine: Engine) -> None:
    """What is drawn at a drafted position is what would have been drawn without the draft, at
    any temperature: so a draft of the very reply is accepted to its end, limits included."""
    vocab = Vocab.open(starter())
    ask = vocab.tokenize(
        "<|im_start|>user\nName three uses of a paper clip.<|im_end|>\n<|im_start|>assistant\n",
        special=True,
    )
    speculation = engine.steps._speculation
    assert speculation is not None
    own = speculation.propose
    for options in ({}, {"temperature": 0.8}):
        speculation.propose = lambda *_: []  # type: ignore[method-assign]
        reply = engine.reply(ask, **options)

        def oracle(
            drafter: Drafter, _decodes: int, _rows: int, most: int, reply: list[int] = reply
        ) -> list[int]:
            return reply[drafter.drawn :][: min(7, most)]

        speculation.propose = oracle  # type: ignore[method-assign]
        speculation.drafted = speculation.accepted = 0
        assert engine.reply(ask, **options) == reply
        assert speculation.drafted == speculation.accepted > len(reply) // 2
    speculation.propose = own  # type: ignore[method-assign]
    tokens = engine.reply(ask)  # now from what the owner was told before
    assert speculation.drafted > 0
    speculation.propose = lambda *_: []  # type: ignore[method-assign]
    assert engine.reply(ask) == tokens
