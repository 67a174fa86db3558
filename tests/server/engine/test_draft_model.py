"""A draft model keeps in step with its runs within its cells, and changes no reply."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from fake_model import CRASH, EOG, FakeModel, greedy
from support_gguf import CONTROL, bpe_vocab, write

from hobnob.server.engine import loading
from hobnob.server.engine.draft_model import NEAR_TOKENS, READ_TOKENS_MIN, DraftModel
from hobnob.server.engine.drafter import Drafter
from hobnob.server.engine.llama import Vocab
from hobnob.server.engine.pacing import Pace
from hobnob.server.engine.protocol import Configure, Sampling, Stepped, Submit
from hobnob.server.engine.speculation import Speculation
from hobnob.server.engine.threads import Threads

PROMPT = [n % 50 + 5 for n in range(40)]
OTHER = [n % 30 + 9 for n in range(40)]


def made(n_cells: int = 400, n_seqs: int = 3) -> tuple[FakeModel, DraftModel]:
    ticks: Iterator[int] = count()
    fake = FakeModel(n_cells, n_seqs, rows=64)
    draft = DraftModel(
        fake,
        n_seqs=n_seqs,
        n_cells=n_cells,
        window=200,
        rows=64,
        eog=[EOG],
        threads=Threads(1),
        clock=lambda: next(ticks) * 0.001,
    )
    draft.measure()
    fake.steps.clear()
    return fake, draft


def caught_up(draft: DraftModel, drafter: Drafter) -> None:
    for _ in range(20):
        if draft.follow(drafter, 1.0):
            return
    raise AssertionError("it does not catch up")


def held(fake: FakeModel) -> list[list[int]]:
    return [fake.tokens(seq) for seq in range(3) if fake.length(seq)]


def test_a_prompt_is_read_in_chunks_that_the_allowed_time_is_enough_for() -> None:
    fake, draft = made()
    drafter = Drafter(list(PROMPT), len(PROMPT))
    assert not draft.follow(drafter, 0.0) and not fake.steps
    per_row = draft._pace.seconds_per_prefill_row
    assert per_row is not None
    assert not draft.follow(drafter, per_row * (READ_TOKENS_MIN + 1.5))
    assert [len(chunk.tokens) for step in fake.steps for chunk in step] == [READ_TOKENS_MIN + 1]
    caught_up(draft, drafter)
    assert len(PROMPT) - NEAR_TOKENS <= sum(len(one) for one in held(fake)) < len(PROMPT)


def test_runs_are_drafted_for_together_and_each_gets_what_the_model_says() -> None:
    fake, draft = made()
    drafters = [Drafter(list(tokens), len(tokens)) for tokens in (PROMPT, OTHER)]
    for drafter in drafters:
        caught_up(draft, drafter)
    fake.steps.clear()
    found = draft.draft(drafters, 4)
    for tokens, draft_ in zip((PROMPT, OTHER), found, strict=True):
        said = greedy(tokens, 4)
        assert draft_[: len(said)] == said and draft_[len(said) :] in ([], [EOG])
    assert len(fake.steps) <= 4 and len(fake.steps[0]) == 2


def test_what_was_rejected_is_cut_and_the_next_draft_follows_what_was_said() -> None:
    fake, draft = made()
    tokens = list(PROMPT)
    drafter = Drafter(tokens, len(tokens))
    for _ in range(5):
        caught_up(draft, drafter)
        guessed = draft.draft([drafter], 4)[0]
        tokens += [*guessed[:2], guessed[0] % 50 + 7]  # two are right, then something else
        assert draft.follow(drafter, 0.0)
        assert held(fake) == [tokens[: len(held(fake)[0])]]
    said = greedy(tokens, 1)
    assert draft.draft([drafter], 1)[0] == (said or [EOG])


def test_when_cells_run_out_the_longest_unused_sequence_is_given_up() -> None:
    fake, draft = made(n_cells=100)
    first, second, third = (
        Drafter([n, *PROMPT], len(PROMPT) + 1, f"owner {n}") for n in (51, 52, 53)
    )
    for drafter in (first, second):
        caught_up(draft, drafter)
    draft.follow(first, 0.0)
    caught_up(draft, third)
    assert sorted(one[0] for one in held(fake)) == [51, 53]
    assert draft.draft([second], 2) == [[]]
    assert len(draft.draft([third], 2)[0]) > 0
    assert fake.used <= 100


def test_what_an_ended_run_left_is_gone_on_with_by_its_owner_alone() -> None:
    fake, draft = made()
    first = Drafter(list(PROMPT), len(PROMPT), "ann")
    caught_up(draft, first)
    draft.left(first)
    fake.steps.clear()
    caught_up(draft, Drafter([*PROMPT, 7], len(PROMPT) + 1, "ann"))
    assert sum(len(c.tokens) for step in fake.steps for c in step) <= NEAR_TOKENS + 1
    fake.steps.clear()
    caught_up(draft, Drafter([*PROMPT, 7], len(PROMPT) + 1, "bob"))
    assert sum(len(c.tokens) for step in fake.steps for c in step) > len(PROMPT) // 2


def test_nothing_of_a_deleted_conversation_stays_in_its_cells() -> None:
    fake, draft = made()
    over, live = Drafter(PROMPT, len(PROMPT), "ann", "gone"), Drafter(OTHER, 40, "ann", "gone")
    stays = Drafter([9, *PROMPT], len(PROMPT) + 1, "ann", "stays")
    for drafter in (over, live, stays):
        caught_up(draft, drafter)
    draft.left(over)
    draft.forget("gone")
    assert [one[0] for one in held(fake)] == [9] and fake.used == len(held(fake)[0])
    caught_up(draft, live)  # it was not over yet
    assert len(draft.draft([live], 2)[0]) > 0
    draft.left(live)
    draft.forget("gone")
    assert [one[0] for one in held(fake)] == [9]


def test_a_model_that_breaks_drafts_nothing_more() -> None:
    _, draft = made()
    drafter = Drafter([*PROMPT, CRASH, 5, 6, 7, 8, 9], 46)
    assert draft.chance(drafter) > 0
    for _ in range(4):
        assert not draft.follow(drafter, 1.0)
    assert draft.chance(drafter) == 0.0


@pytest.mark.parametrize(("row", "drafts"), [(0.001, True), (0.09, False)])
def test_it_drafts_where_all_that_it_costs_is_less_than_what_it_gains(
    row: float, drafts: bool
) -> None:
    _, draft = made()
    draft._pace = Pace(64)
    draft._pace.observe(1, 0, row)
    draft._pace.observe(0, 64, row)
    pace = Pace(64)
    pace.observe(1, 0, 0.1)
    speculation = Speculation(pace, [EOG], draft)
    tokens = [*PROMPT, 3]
    drafter = Drafter(tokens, len(PROMPT))
    drafter.gained_s = drafter.lent_s = 10.0
    speculation._costs._all = 0.1  # rows are nearly free
    looked, follow = [0], speculation._lookup.follow

    def counted(drafter: Drafter, seconds: float) -> bool:
        looked[-1] += 1
        return follow(drafter, seconds)

    speculation._lookup.follow = counted  # type: ignore[method-assign]
    for _ in range(10):
        found = speculation.drafts([(drafter, 9)], 1, 9)[0]
        if found:
            break
        looked.append(0)
    assert bool(found) is drafts
    assert found == greedy(tokens, len(found))
    assert set(looked[:10]) == {1}, "what can be looked up was planned more than once a step"


def test_a_model_drafts_for_itself_and_says_the_same(tiny: Path) -> None:
    vocab = Vocab.open(tiny)
    ask = vocab.tokenize(
        "<|im_start|>user\nName three uses of a paper clip.<|im_end|>\n<|im_start|>assistant\n",
        special=True,
    )
    frames: list[Stepped] = []
    asked = Configure(
        str(tiny),
        n_ctx=512,
        n_seq_max=2,
        n_threads=1,
        speculation="auto",
        draft_model=str(tiny),
    )
    steps, ready = loading.load(asked, frames.append, lambda _: None, lambda: None)
    assert any("drafts by" in line for line in ready.explain)
    speculation = steps._speculation
    assert speculation is not None and isinstance(speculation._model, DraftModel)
    draft = speculation._model

    def eager(asks: list[tuple[Drafter, int]], _decodes: int, most: int) -> list[list[int]]:
        drafter, own = asks[0]
        if not draft.follow(drafter, 1e6) or min(own, most) < 1:
            return [[]]
        return [speculation._cut(draft.draft([drafter], min(4, own, most))[0])]

    replies = []
    for drafts in (lambda asks, *_: [[] for _ in asks], eager):
        speculation.drafts = drafts  # type: ignore[method-assign, assignment]
        frames.clear()
        steps.submit(Submit("r", ask, Sampling(7, temperature=0.0, max_tokens=24), exact=True))
        while not steps.idle:
            steps.step()
            steps.check_integrity()
        replies.append([t for frame in frames for out in frame.outputs for t in out.tokens])
    assert replies[0] == replies[1]
    assert speculation.accepted > 10
    assert speculation.accepted >= 0.9 * speculation.drafted


def test_a_model_of_another_vocabulary_is_not_used_and_that_is_said(
    tmp_path: Path, tiny: Path
) -> None:
    other = write(tmp_path / "other.gguf", bpe_vocab({"<|end|>": CONTROL}, eos="<|end|>"))
    asked = Configure(
        str(tiny),
        n_ctx=512,
        n_seq_max=1,
        n_threads=1,
        speculation="auto",
        draft_model=str(other),
    )
    steps, ready = loading.load(asked, lambda _: None, lambda _: None, lambda: None)
    assert "no draft model: other.gguf has another vocabulary" in ready.explain
    assert steps._speculation is not None and steps._speculation._model is None
