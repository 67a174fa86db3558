"""The whole step loop over a scripted model: every run ends once, and neighbours never matter."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from engine_history import Guesses, Said
from fake_files import FakeFiles
from fake_model import CRASH, EOG, N_VOCAB, NAN, PLAIN, POISON, FakeModel, greedy
from hypothesis import given, settings
from hypothesis import strategies as st

from hobnob.server.engine.cells import Cells
from hobnob.server.engine.constraint import Constraints
from hobnob.server.engine.memory import Memory
from hobnob.server.engine.model import Chunk, Decoded, State
from hobnob.server.engine.news import SILENCE_SECONDS
from hobnob.server.engine.pacing import Pace
from hobnob.server.engine.protocol import WARMED, Sampling, Stepped, Submit
from hobnob.server.engine.snapshots import Snapshots
from hobnob.server.engine.speculation import Drafter, Speculation
from hobnob.server.engine.steps import Limits, Steps, Words
from hobnob.server.engine.threads import Threads

LETTERS = {id: bytes([96 + id % 26 + 1]) for id in PLAIN}
ASCII = {id: bytes([32 + id]) for id in PLAIN}  # digits, capitals, the quotation mark


def guessing(seed: int) -> Guesses:
    """Drafts of any quality, with the end token or without."""
    chance = random.Random(seed)

    def foretell(drafter: Drafter, n: int) -> list[int]:
        return greedy(drafter.tokens, n, eog=chance.random() < 0.5)

    return Guesses(Pace(32, 1.0), [EOG], foretell, PLAIN, chance)


class Bench(Said):
    """A step loop with a scripted model, a clock that ticks once a look, and what it said."""

    def __init__(
        self,
        *,
        cells: int = 400,
        running: int = 4,
        ids: int = 10,
        n_ctx: int = 100,
        rows: int = 32,
        exact_rows: int = 0,
        can_cut: bool = True,
        ordered: bool = False,
        saved_bytes_max: int = 10**6,
        cached_max: int = 200,
        outputs: int = 32,
        speculation: Speculation | None = None,
        snapshots: Snapshots | None = None,
        letters: Mapping[int, bytes] = LETTERS,
    ) -> None:
        super().__init__()
        self.model = FakeModel(cells, ids, rows=rows, can_cut=can_cut, ordered=ordered)
        accounting = Cells(cells, ids, can_cut=can_cut)
        self.memory = Memory(
            self.model,
            accounting,
            cached_max=cached_max,
            saved_bytes_max=saved_bytes_max,
            snapshots=snapshots,
        )
        numbers = {letter[0]: id for id, letter in letters.items()}
        self.now = 0.0
        self.frames: list[Stepped] = []
        self.steps = Steps(
            self.model,
            self.memory,
            Words(
                N_VOCAB,
                [EOG],
                lambda id: letters.get(id, b"?"),
                lambda id: b"<%d>" % id,
                lambda texts: frozenset((ord(text),) for text in texts if ord(text) < N_VOCAB),
                Constraints(
                    N_VOCAB,
                    [EOG],
                    lambda id: letters.get(id, b""),
                    lambda id: id == EOG,
                    lambda text: [numbers[byte] for byte in text.encode()],
                ).of,
            ),
            Limits(n_ctx, running, rows, exact_rows, outputs),
            pace=Pace(rows, 1.0),
            threads=Threads(1),
            clock=self._clock,
            emit=self.frames.append,
            speculation=speculation,
        )
        self._read = 0

    def _clock(self) -> float:
        self.now += 0.001
        return self.now

    def submit(self, run: str, prompt: list[int], **options: Any) -> None:
        names = ("emitted", "owner", "interactive", "exact", "warm", "group")
        other = {name: options.pop(name) for name in names if name in options}
        sampling = Sampling(**{"seed": 1, "temperature": 0.0, "max_tokens": 8, **options})
        self.steps.submit(Submit(run, prompt, sampling, **other))

    def step(self) -> None:
        self.steps.step()
        self.steps.check_integrity()
        self.model.check_order()
        self.take(self.frames[self._read :])
        self._read = len(self.frames)

    def finish(self, steps: int = 2000) -> None:
        """Steps until nothing is left to do."""
        for _ in range(steps):
            if self.steps.idle:
                return
            self.step()
        raise AssertionError(f"still busy after {steps} steps")

    def rest(self) -> None:
        """What is done with nothing else to do, until nothing more can be."""
        for _ in range(50):
            self.steps.tidy()
        self.steps.check_integrity()
        self.model.check_order()
        assert self.memory.snapshots._bound_bytes == 0 or self.memory.snapshots.on_disk

    def reason(self, run: str) -> str:
        (finish,) = self.finishes[run]
        return finish.reason


def prompt(seed: int, n: int) -> list[int]:
    return [1 + (seed * 7919 + i * i * 31 + i * seed) % 60 for i in range(n)]


def long_prompt(n: int, at_least: int = 12) -> list[int]:
    """A prompt of n tokens that the model answers with at least so many tokens."""
    return next(p for s in range(1000) if len(greedy(p := prompt(s, n), at_least)) == at_least)


# ---- one run -----------------------------------------------------------------------------------


def test_a_run_says_what_the_model_says_and_ends_at_max_tokens() -> None:
    bench, ask = Bench(), long_prompt(5)
    bench.submit("a", ask, max_tokens=8)
    bench.finish()
    assert bench.tokens["a"] == greedy(ask, 8)
    assert bench.text["a"] == b"".join(LETTERS[t] for t in greedy(ask, 8)).decode()
    assert bench.reason("a") == "max_tokens"


def test_the_end_token_ends_the_turn_and_is_not_part_of_the_reply() -> None:
    ask = next(p for s in range(1000) if 0 < len(greedy(p := prompt(s, 5), 50)) < 50)
    bench = Bench()
    bench.submit("a", ask, max_tokens=50)
    bench.finish()
    assert bench.reason("a") == "end_turn"
    assert bench.tokens["a"] == greedy(ask, 50)
    assert bench.finishes["a"][0].completion_tokens == len(bench.tokens["a"])


def test_with_ignore_eos_the_end_token_is_never_drawn() -> None:
    ask = next(p for s in range(1000) if len(greedy(p := prompt(s, 5), 50)) < 20)
    bench = Bench()
    bench.submit("a", ask, max_tokens=30, ignore_eos=True)
    bench.finish()
    assert bench.tokens["a"] == greedy(ask, 30, eog=False)
    assert bench.reason("a") == "max_tokens"


def held_to(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"schema": schema}}


NAME = held_to({"type": "string", "pattern": "^[A-Z]{3,9}$"})


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_a_reply_is_held_to_its_form_and_ends_when_that_is_filled(temperature: float) -> None:
    for seed in range(20):
        bench = Bench(letters=ASCII)
        bench.submit(
            "a",
            long_prompt(5 + seed),
            max_tokens=40,
            response_format=NAME,
            temperature=temperature,
            seed=seed,
            ignore_eos=seed % 2 == 1,
        )
        bench.submit("free", long_prompt(6 + seed), max_tokens=12)
        bench.finish()
        assert bench.reason("a") == "end_turn"
        assert re.fullmatch('"[A-Z]{3,9}"', bench.text["a"])
        assert bench.tokens["free"] == greedy(long_prompt(6 + seed), 12)


def test_a_held_reply_goes_on_from_where_it_was_and_says_the_same() -> None:
    whole = Bench(letters=ASCII)
    whole.submit("a", long_prompt(5), max_tokens=40, response_format=NAME, temperature=1.0)
    whole.finish()
    said = whole.tokens["a"]
    for cut in range(1, len(said) + 1):
        bench = Bench(letters=ASCII)
        options = {"response_format": NAME, "temperature": 1.0, "max_tokens": 40}
        bench.submit("a", long_prompt(5), emitted=said[:cut], **options)
        bench.finish()
        assert [*said[:cut], *bench.tokens["a"]] == said
        assert bench.reason("a") == "end_turn"


@pytest.mark.parametrize("seed", range(6))
def test_drafts_change_nothing_in_a_held_reply(seed: int) -> None:
    said = []
    for speculation in (None, guessing(seed)):
        bench = Bench(letters=ASCII, speculation=speculation)
        bench.submit("a", long_prompt(5), max_tokens=40, response_format=NAME, temperature=1.0)
        bench.finish()
        said.append((bench.tokens["a"], bench.reason("a")))
    assert said[0] == said[1]


def test_a_held_reply_that_meets_its_limit_says_that_it_was_cut() -> None:
    bench = Bench(letters=ASCII)
    bench.submit("a", long_prompt(5), max_tokens=2, response_format=NAME)
    bench.finish()
    assert (bench.reason("a"), bench.text["a"][0], len(bench.text["a"])) == ("max_tokens", '"', 2)


def test_a_form_that_cannot_be_compiled_costs_its_own_run_alone() -> None:
    bench = Bench(letters=ASCII)
    bench.submit("bad", long_prompt(5), response_format=held_to({"type": "nonsense"}))
    bench.submit("good", long_prompt(6), max_tokens=8)
    bench.finish()
    finish = bench.finishes["bad"][0]
    assert (finish.reason, finish.error_code) == ("error", "invalid_request")
    assert "schema" in (finish.error or "")
    assert bench.tokens["good"] == greedy(long_prompt(6), 8)


def test_a_warm_up_of_a_held_conversation_reads_its_prompt() -> None:
    bench = Bench(letters=ASCII)
    bench.submit("warm", long_prompt(5), warm=True, response_format=NAME)
    bench.finish()
    assert bench.reason("warm") == "warmed"


def test_a_stop_string_ends_the_reply_before_it() -> None:
    ask = long_prompt(5)
    said = b"".join(LETTERS[t] for t in greedy(ask, 12)).decode()
    bench = Bench()
    bench.submit("a", ask, max_tokens=12, stop=[said[5:7]])
    bench.finish()
    assert bench.reason("a") == "stop_string"
    assert bench.finishes["a"][0].stop_string == said[5:7]
    assert bench.text["a"] == said[: said.index(said[5:7])]


def test_a_full_window_ends_the_reply() -> None:
    ask = long_prompt(15)
    bench = Bench(n_ctx=20)
    bench.submit("a", ask, max_tokens=0)
    bench.finish()
    assert bench.reason("a") == "context"
    assert len(bench.tokens["a"]) == 5


def test_a_prompt_as_large_as_the_window_is_refused_with_both_numbers() -> None:
    bench = Bench(n_ctx=20)
    bench.submit("a", prompt(1, 20))
    bench.finish()
    (finish,) = bench.finishes["a"]
    assert (finish.reason, finish.error_code) == ("error", "context_length_exceeded")
    assert finish.error is not None and finish.error.count("20") == 2


@pytest.mark.parametrize(
    ("ask", "options", "code"),
    [
        ([], {}, "empty_prompt"),
        ([1, N_VOCAB], {}, "invalid_request"),
        ([1, -1], {}, "invalid_request"),
        ([1], {"logit_bias": {N_VOCAB: 1.0}}, "invalid_request"),
        ([1], {"emitted": [N_VOCAB]}, "invalid_request"),
    ],
)
def test_a_run_that_cannot_be_begun_ends_at_once(
    ask: list[int], options: dict[str, Any], code: str
) -> None:
    bench = Bench()
    bench.submit("a", ask, **options)
    bench.finish()
    assert bench.finishes["a"][0].error_code == code
    assert bench.model.steps == []


def test_an_id_that_there_is_not_costs_one_run_wherever_it_stands() -> None:
    bench = Bench()

    def piece(token: int) -> bytes:
        if not 0 <= token < N_VOCAB:  # as the real vocabulary does
            raise ValueError(f"There is no token {token}.")
        return b"a"

    bench.steps._words = dataclasses.replace(bench.steps._words, piece=piece)
    for n, bad in enumerate((-1, N_VOCAB, 10**6)):
        bench.submit(f"prompt{n}", [5, bad])
        bench.submit(f"emitted{n}", [5], emitted=[7, bad])
        bench.submit(f"bias{n}", [5], logit_bias={bad: 1.0})
    bench.submit("warm", [5, -1], warm=True)
    bench.finish()
    for run, (finish,) in bench.finishes.items():
        wanted = (WARMED, None) if run == "warm" else ("error", "invalid_request")
        assert (finish.reason, finish.error_code) == wanted, run
    assert len(bench.finishes) == 10 and bench.model.steps == []


def test_a_run_submitted_twice_is_generated_once() -> None:
    bench, ask = Bench(), long_prompt(5)
    bench.submit("a", ask)
    bench.submit("a", ask)
    bench.finish()
    assert bench.tokens["a"] == greedy(ask, 8)
    assert len(bench.finishes["a"]) == 1


def test_logprobs_come_with_their_tokens() -> None:
    bench, ask = Bench(), long_prompt(5)
    bench.submit("a", ask, logprobs=2)
    bench.finish()
    given = [one for frame in bench.frames for o in frame.outputs for one in o.logprobs]
    assert [one.token for one in given] == bench.tokens["a"]
    for one in given:
        assert len(one.top) == 2 and one.top[0][0] == one.token and one.logprob < 0
    assert given[0].piece == b"<%d>" % given[0].token


def test_the_timings_of_a_run_add_up() -> None:
    bench = Bench(running=1)
    bench.submit("a", prompt(1, 40))
    bench.submit("b", prompt(2, 40))
    bench.finish()
    (finish,) = bench.finishes["b"]
    assert finish.queued_s > 0 and finish.prefill_s > 0 and finish.first_decode_s > 0
    assert finish.decode_s >= finish.token_max_s >= finish.token_p99_s >= finish.token_p50_s > 0
    assert finish.prompt_tokens == 40


def test_a_run_admitted_and_put_aside_in_one_plan_waited_until_then() -> None:
    bench = Bench(cells=100, running=6, ids=12, n_ctx=90)
    for n in range(10):
        bench.submit(f"r{n}", long_prompt(10 + n, 30), max_tokens=30)
    bench.finish()
    for n in range(10):
        (finish,) = bench.finishes[f"r{n}"]
        assert finish.queued_s > 0


# ---- continuation ------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"temperature": 1.0, "seed": 5, "repeat_penalty": 1.2}])
@pytest.mark.parametrize("cut", [1, 4, 7])
def test_a_run_that_goes_on_ends_with_the_text_of_an_undisturbed_one(
    options: dict[str, Any], cut: int
) -> None:
    ask = long_prompt(6)
    whole = Bench()
    whole.submit("a", ask, ignore_eos=True, **options)
    whole.finish()
    later = Bench()
    later.submit("a", ask, ignore_eos=True, emitted=whole.tokens["a"][:cut], **options)
    later.finish()
    assert whole.tokens["a"][:cut] + later.tokens["a"] == whole.tokens["a"]
    assert later.replayed["a"] + later.text["a"] == whole.text["a"]
    end = later.finishes["a"][0]
    assert (end.completion_tokens, end.decoded) == (8, 8 - cut)


def test_a_run_that_had_already_ended_ends_without_a_step() -> None:
    bench, ask = Bench(n_ctx=10), long_prompt(5)
    reply = greedy(ask, 8)
    said = b"".join(LETTERS[t] for t in reply).decode()
    bench.submit("max", ask, max_tokens=3, emitted=reply[:3])
    bench.submit("stop", ask, max_tokens=8, emitted=reply[:3], stop=[said[1:3]])
    bench.submit("context", ask, max_tokens=8, emitted=reply[:5])
    bench.finish()
    assert [bench.reason(run) for run in ("max", "stop", "context")] == [
        "max_tokens",
        "stop_string",
        "context",
    ]
    assert bench.replayed["stop"] + bench.text["stop"] == said[:1]
    assert bench.model.steps == []


# ---- cancel ------------------------------------------------------------------------------------


def test_cancel_acts_in_the_queue_in_prefill_and_in_decode() -> None:
    bench = Bench(running=2, rows=8)
    bench.submit("decoding", long_prompt(3), max_tokens=50)
    bench.step()
    bench.submit("prefilling", prompt(2, 60))
    bench.submit("waiting", prompt(3, 10))
    bench.step()
    assert bench.tokens["decoding"] and not bench.tokens["prefilling"]
    for run in ("decoding", "prefilling", "waiting"):
        bench.steps.cancel(run)
    bench.finish()
    steps = len(bench.model.steps)
    bench.step()
    assert len(bench.model.steps) == steps == 2
    for run in ("decoding", "prefilling", "waiting"):
        assert bench.reason(run) == "cancelled"


def test_cancelling_what_is_over_or_unknown_does_nothing() -> None:
    bench = Bench()
    bench.submit("a", long_prompt(3))
    bench.finish()
    frames = len(bench.frames)
    bench.steps.cancel("a")
    bench.steps.cancel("never")
    bench.step()
    assert len(bench.frames) == frames


# ---- several -----------------------------------------------------------------------------------


def test_decodes_go_on_while_a_long_prompt_is_read() -> None:
    bench = Bench(rows=16, n_ctx=300, cells=600)
    bench.submit("talker", long_prompt(3, 20), max_tokens=20)
    bench.step()
    bench.submit("reader", prompt(2, 200))
    for _ in range(10):
        before = len(bench.tokens["talker"])
        bench.step()
        assert len(bench.tokens["talker"]) == before + 1
        assert sum(len(c.tokens) for c in bench.model.steps[-1]) <= 16
    assert len(bench.model.steps[-1]) == 2


def test_a_shared_prompt_is_computed_once_even_when_all_arrive_together() -> None:
    bench, shared = Bench(n_ctx=300, cells=600), prompt(1, 150)
    for n in range(4):
        bench.submit(f"r{n}", [*shared, *prompt(50 + n, 3)])
    bench.finish()
    computed = sum(len(c.tokens) for step in bench.model.steps for c in step)
    assert computed < 150 + 4 * (3 + 8) + 5
    for n in range(4):
        assert bench.tokens[f"r{n}"] == greedy([*shared, *prompt(50 + n, 3)], 8)
    assert sorted(bench.finishes[f"r{n}"][0].cached_tokens for n in range(4))[0] == 0
    assert sorted(bench.finishes[f"r{n}"][0].cached_tokens for n in range(4))[1] == 150


def test_the_next_turn_starts_from_the_cells_of_the_one_before() -> None:
    bench, ask = Bench(), long_prompt(20)
    bench.submit("a", ask)
    bench.finish()
    following = [*ask, *bench.tokens["a"], 5, 6, 7]
    bench.submit("b", following)
    bench.finish()
    assert bench.finishes["b"][0].cached_tokens == 27  # all but the last token drawn
    assert bench.tokens["b"] == greedy(following, 8)


def test_no_prefix_is_shared_between_owners() -> None:
    bench, ask = Bench(), long_prompt(20)
    bench.submit("a", ask, owner="ann")
    bench.finish()
    bench.submit("b", ask, owner="bob")
    bench.finish()
    assert bench.finishes["b"][0].cached_tokens == 0


def test_exact_runs_never_share_a_step_larger_than_the_bound() -> None:
    bench = Bench(rows=32, exact_rows=7, n_ctx=200, cells=600)
    bench.submit("big", prompt(1, 60))
    bench.step()
    assert sum(len(c.tokens) for c in bench.model.steps[-1]) == 32
    bench.submit("exact", prompt(2, 30), exact=True)
    bench.finish()
    for step in bench.model.steps[1:]:
        if any(c.tokens[0] in prompt(2, 30) and len(c.tokens) > 1 for c in step):
            assert sum(len(c.tokens) for c in step) <= 7


def test_prompts_are_read_while_an_exact_run_keeps_steps_as_small_as_its_neighbours() -> None:
    bench = Bench(cells=4000, running=10, ids=20, n_ctx=1000, exact_rows=7)
    for n in range(8):  # more than an exact step has rows
        ask = [PLAIN[0], PLAIN[1], PLAIN[n]]
        bench.submit(f"d{n}", ask, max_tokens=300, exact=n == 0, ignore_eos=True)
    for _ in range(20):
        bench.step()
    assert all(bench.tokens[f"d{n}"] for n in range(8))
    before = [len(bench.tokens[f"d{n}"]) for n in range(8)]
    bench.submit("late", prompt(2, 50), max_tokens=4)
    for _ in range(80):
        bench.step()
    assert bench.reason("late") == "max_tokens"
    said = [len(bench.tokens[f"d{n}"]) - before[n] for n in range(8)]
    assert max(said) - min(said) <= 2, "decodes take turns"


def test_an_exact_run_does_not_start_from_cells_of_large_steps() -> None:
    bench, ask = Bench(rows=32, exact_rows=7), long_prompt(20)
    bench.submit("a", ask)
    bench.finish()
    bench.submit("b", ask, exact=True)
    bench.submit("c", ask)
    bench.finish()
    assert bench.finishes["b"][0].cached_tokens == 0
    assert bench.finishes["c"][0].cached_tokens == 19


def test_waiting_runs_are_told_their_places() -> None:
    bench = Bench(running=1)
    for n in range(3):
        bench.submit(f"r{n}", long_prompt(3))
    bench.step()
    assert [(p.run, p.position) for p in bench.frames[0].places] == [("r1", 1), ("r2", 2)]
    bench.finish()
    later = [(p.run, p.position) for f in bench.frames[1:] for p in f.places]
    assert later == [("r2", 1)]


def test_interactive_runs_go_before_batch_ones() -> None:
    bench = Bench(running=1)
    bench.submit("first", long_prompt(3))
    bench.submit("batch", long_prompt(3), interactive=False)
    bench.submit("chat", long_prompt(3))
    bench.step()
    assert [p.run for p in bench.frames[0].places] == ["chat", "batch"]


# ---- too few cells -----------------------------------------------------------------------------


@pytest.mark.parametrize("saves", [True, False])
@pytest.mark.parametrize(
    "layout", [{}, {"ordered": True}, {"can_cut": False}], ids=["any", "ordered", "uncuttable"]
)
def test_runs_that_need_three_times_the_cells_all_complete(
    saves: bool, layout: dict[str, bool]
) -> None:
    bench = Bench(cells=100, running=6, ids=12, n_ctx=90, **layout)
    bench.model.saves = saves
    asks = [long_prompt(10 + n, 30) for n in range(10)]
    for n, ask in enumerate(asks):
        bench.submit(f"r{n}", ask, max_tokens=30)
    bench.finish()
    for n, ask in enumerate(asks):
        assert bench.reason(f"r{n}") == "max_tokens"
        assert bench.tokens[f"r{n}"] == greedy(ask, 30)
    assert bench.memory.saved_bytes == 0


def test_a_run_that_was_put_aside_comes_back_from_its_saved_state() -> None:
    bench = Bench(cells=700, running=2, n_ctx=600, rows=300)
    old, new = long_prompt(300, 100), long_prompt(200, 60)
    bench.submit("old", old, max_tokens=100)
    bench.submit("new", new, max_tokens=60)
    bench.model.hidden_cells = 0
    bench.finish()
    assert bench.memory.counts.saved == bench.memory.counts.restored
    assert bench.tokens["old"] == greedy(old, 100)
    assert bench.tokens["new"] == greedy(new, 60)


def test_cells_lost_between_others_are_won_back_by_moving_all_together() -> None:
    bench = Bench(cells=200, running=2, n_ctx=90, ordered=True, cached_max=100)
    for n in range(12):
        bench.submit(f"r{n}", long_prompt(20 + n, 30), max_tokens=30)
        bench.step()
    bench.finish()
    for n in range(12):
        assert bench.tokens[f"r{n}"] == greedy(long_prompt(20 + n, 30), 30)
    assert bench.memory.counts.moved_cells > 0


def test_only_the_run_that_does_not_fit_alone_ends() -> None:
    bench = Bench(cells=60, running=3, n_ctx=60)
    bench.model.hidden_cells = 30  # the model has fewer cells than it said
    bench.submit("small", long_prompt(5), max_tokens=8)
    bench.submit("large", long_prompt(20, 30), max_tokens=30)
    bench.finish()
    assert bench.reason("small") == "max_tokens"
    assert bench.reason("large") == "context"
    assert bench.tokens["large"] == greedy(long_prompt(20, 30), 30)[: len(bench.tokens["large"])]


def test_a_model_with_fewer_cells_than_counted_ends_no_run_that_fits_alone() -> None:
    bench = Bench(cells=300, running=4, n_ctx=200, ordered=True)
    bench.model.hidden_cells = 100
    asks = [long_prompt(40 + n, 30) for n in range(4)]
    for n, ask in enumerate(asks):
        bench.submit(f"r{n}", ask, max_tokens=30)
    bench.finish()
    for n, ask in enumerate(asks):
        assert bench.reason(f"r{n}") == "max_tokens"
        assert bench.tokens[f"r{n}"] == greedy(ask, 30)


def test_a_reply_goes_on_where_the_model_lacks_a_cell_and_others_are_lost() -> None:
    bench = Bench(cells=300, n_ctx=290, exact_rows=32, ordered=True, cached_max=150)
    decode = bench.model.decode

    def padded(chunks: Sequence[Chunk], threads: int, *, exact: bool = False) -> Decoded:
        alone = sum(len(chunk.tokens) for chunk in chunks) == 1
        bench.model.hidden_cells = int(exact and alone)  # a row more
        return decode(chunks, threads, exact=exact)

    bench.model.decode = padded  # type: ignore[method-assign]
    bench.submit("first", prompt(1, 140), max_tokens=8, ignore_eos=True, owner="x")
    bench.finish()
    bench.submit("exact", prompt(2, 100), max_tokens=120, ignore_eos=True, exact=True)
    bench.finish()
    assert bench.reason("exact") == "max_tokens"
    assert bench.tokens["exact"] == greedy(prompt(2, 100), 120, eog=False)


def test_time_for_moving_cells_is_not_taken_for_what_rows_cost() -> None:
    bench = Bench(cells=200, running=2, n_ctx=90, ordered=True, cached_max=100)
    save = bench.model.save

    def slow(seq: int, start: int, end: int | None = None) -> State | None:
        bench.now += 100.0
        return save(seq, start, end)

    bench.model.save = slow  # type: ignore[method-assign]
    for n in range(12):
        bench.submit(f"r{n}", long_prompt(20 + n, 30), max_tokens=30)
        bench.step()
    bench.finish()
    assert bench.memory.counts.moved_cells > 0
    pace = bench.steps._pace
    assert 0 < (pace.decode_seconds(1) or 0) < 1 and 0 < (pace.seconds_per_prefill_row or 0) < 1


# ---- one bad request costs one request ---------------------------------------------------------


@pytest.mark.parametrize("bad", [POISON, CRASH, NAN])
@pytest.mark.parametrize("can_cut", [True, False])
def test_a_fault_is_pinned_on_the_run_that_caused_it(bad: int, can_cut: bool) -> None:
    bench = Bench(running=4, can_cut=can_cut)
    good = [long_prompt(4 + n) for n in range(3)]
    bench.submit("a", good[0])
    bench.submit("bad", [5, 6, bad])
    bench.submit("b", good[1])
    bench.submit("c", good[2])
    bench.finish()
    (finish,) = bench.finishes["bad"]
    assert (finish.reason, finish.error_code) == ("error", "engine_failed")
    for run, ask in zip("abc", good, strict=True):
        assert bench.tokens[run] == greedy(ask, 8)
        assert bench.reason(run) == "max_tokens"


def test_a_fault_in_mid_reply_leaves_the_others_alone() -> None:
    bench, ask = Bench(), long_prompt(6, 20)
    bench.submit("a", ask, max_tokens=20)
    bench.step()
    bench.submit("bad", [5, CRASH])
    bench.finish()
    assert bench.tokens["a"] == greedy(ask, 20)
    assert bench.reason("bad") == "error"


def test_who_lost_cells_to_a_neighbour_s_fault_computes_with_others_again() -> None:
    bench, ask = Bench(cells=2000, n_ctx=300, rows=64), long_prompt(6, 40)
    other = long_prompt(7, 40)
    bench.submit("a", ask, max_tokens=40)
    bench.submit("b", other, max_tokens=40)
    bench.step()
    bench.submit("bad", [*prompt(3, 90), CRASH])
    bench.finish()
    assert bench.reason("bad") == "error"
    assert (bench.tokens["a"], bench.tokens["b"]) == (greedy(ask, 40), greedy(other, 40))
    assert [len(step) for step in bench.model.steps[-20:]] == [2] * 20


# ---- drafts ------------------------------------------------------------------------------------

OPTIONS = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.8]),
        "seed": st.integers(0, 3),
        "max_tokens": st.integers(0, 40),
        "ignore_eos": st.booleans(),
        "repeat_penalty": st.sampled_from([1.0, 1.3]),
        "presence_penalty": st.sampled_from([0.0, 0.5]),
        "logit_bias": st.sampled_from([{}, {7: 3.0, 9: -5.0}]),
        "logprobs": st.sampled_from([-1, 0, 2]),
        "stop": st.lists(st.text("abcdefghij", min_size=1, max_size=2), max_size=2),
        "exact": st.booleans(),
        "emitted": st.lists(st.sampled_from(PLAIN), max_size=3),
    }
)


@settings(max_examples=80)
@given(
    asks=st.lists(
        st.tuples(st.integers(0, 5), st.integers(1, 30), OPTIONS), min_size=1, max_size=4
    ),
    guesses=st.integers(0, 10**6),
    ordered=st.booleans(),
    outputs=st.sampled_from([4, 9, 32]),
    cells=st.integers(120, 300),
)
def test_drafts_change_nothing_that_a_run_says(
    asks: list[tuple[int, int, dict[str, Any]]],
    guesses: int,
    ordered: bool,
    outputs: int,
    cells: int,
) -> None:
    layout: dict[str, Any] = {"n_ctx": 60, "exact_rows": 7, "ordered": ordered, "cells": cells}
    plain = Bench(**layout)
    drafted = Bench(**layout, outputs=outputs, speculation=guessing(guesses))
    for bench in (plain, drafted):
        for n, (seed, length, options) in enumerate(asks):
            bench.submit(f"r{n}", prompt(seed, length), **options)
        bench.finish()
        assert bench.memory.cells.used == bench.memory.cells.cached == bench.model.used
    for step in drafted.model.steps:
        assert sum(chunk.outputs for chunk in step) <= outputs
    for n in range(len(asks)):
        run = f"r{n}"
        assert drafted.tokens[run] == plain.tokens[run]
        assert drafted.text[run] == plain.text[run]
        assert drafted.replayed.get(run) == plain.replayed.get(run)
        assert drafted.logprobs[run] == plain.logprobs[run]
        ends = [bench.finishes[run][0] for bench in (plain, drafted)]
        assert len({(e.reason, e.stop_string, e.completion_tokens) for e in ends}) == 1


def test_accepted_drafts_save_steps_and_are_counted() -> None:
    bench, ask = Bench(speculation=(guesses := guessing(1))), long_prompt(5, 40)
    guesses.propose = lambda drafter, _decodes, _rows, most: greedy(drafter.tokens, min(3, most))  # type: ignore[method-assign]
    bench.submit("a", ask, max_tokens=40)
    bench.finish()
    assert bench.tokens["a"] == greedy(ask, 40)
    assert len(bench.model.steps) <= 12
    stats, finish = bench.frames[-1].stats, bench.finishes["a"][0]
    assert stats.drafted == stats.accepted == sum(r.drafted for r in bench.steps.records) > 25
    assert (finish.drafted, finish.accepted) == (stats.drafted, stats.accepted)
    assert sum(r.decodes + r.accepted for r in bench.steps.records) == 40 - 1


# ---- warming up ---------------------------------------------------------------------------------


def test_a_warm_up_makes_a_prompt_resident_and_says_nothing() -> None:
    bench, history = Bench(), long_prompt(50)
    bench.submit("warm", history, warm=True)
    bench.finish()
    assert bench.reason("warm") == WARMED
    assert bench.tokens["warm"] == [] and bench.text["warm"] == ""
    assert all(not frame.prefills for frame in bench.frames)
    bench.submit("a", [*history, 7, 8, 9])
    bench.finish()
    assert bench.finishes["a"][0].cached_tokens == 50
    assert bench.tokens["a"] == greedy([*history, 7, 8, 9], 8)


def test_a_warm_up_repeated_costs_one_row() -> None:
    bench, history = Bench(), long_prompt(50)
    for _ in range(2):
        bench.submit("warm-a", history, warm=True)
        bench.submit("warm-a", history, warm=True)
        bench.finish()
        bench.finishes.clear()
    assert sum(len(chunk.tokens) for chunk in bench.model.steps[-1]) == 1


def test_whoever_comes_ends_a_warm_up_and_keeps_what_it_has_read() -> None:
    bench, history = Bench(), long_prompt(90)
    bench.submit("warm", history, warm=True)
    bench.step()
    read = sum(len(chunk.tokens) for chunk in bench.model.steps[-1])
    assert 0 < read < 90
    bench.submit("a", [*history[:80], 3])
    bench.finish()
    assert bench.reason("warm") == WARMED
    assert bench.finishes["a"][0].cached_tokens == read
    assert sum(record.running > 1 for record in bench.steps.records) == 0


def test_nobody_s_step_holds_a_warm_up() -> None:
    bench = Bench()
    bench.submit("a", long_prompt(5), max_tokens=8)
    bench.step()
    bench.submit("warm", long_prompt(50), warm=True)
    bench.finish()
    assert (bench.reason("warm"), bench.reason("a")) == (WARMED, "max_tokens")
    assert sum(len(chunk.tokens) for step in bench.model.steps for chunk in step) < 5 + 8


def test_a_warm_up_is_not_drafted_for_nor_counted_as_running() -> None:
    bench, history = Bench(speculation=guessing(1)), long_prompt(50)
    for _ in range(2):
        bench.submit("warm", history, warm=True)
        bench.finish()
        bench.finishes.clear()
    assert {frame.stats.running for frame in bench.frames} == {0}
    assert bench.frames[-1].stats.drafted == 0


def test_a_warm_up_that_breaks_the_model_or_does_not_fit_ends_quietly() -> None:
    bench = Bench()
    for bad in ([1, 2, POISON], [1] * 200, [N_VOCAB], []):
        bench.submit("warm", bad, warm=True)
        bench.finish()
        assert bench.reason("warm") == WARMED
        bench.finishes.clear()


def test_a_long_warm_up_gives_a_sign_of_life_every_second() -> None:
    bench = Bench(rows=8)
    bench.submit("warm", prompt(1, 90), warm=True)
    began = bench.now
    while not bench.steps.idle:
        bench.now += 0.4  # that a step takes
        bench.step()
    took = bench.now - began
    assert took > 3 * SILENCE_SECONDS
    assert len(bench.frames) >= took / (SILENCE_SECONDS + 0.5)


# ---- records ------------------------------------------------------------------------------------


def test_what_follows_a_step_is_its_overhead_and_a_rest_is_not() -> None:
    bench, told = Bench(), 0

    def slow(frame: Stepped) -> None:
        nonlocal told
        told += 1
        bench.now += 0.5
        bench.frames.append(frame)

    bench.steps._news._emit = slow
    for run in ("a", "b"):
        bench.submit(run, long_prompt(5), max_tokens=5)
        bench.step()
        bench.now += 0.25  # commands
        bench.finish()
        bench.steps.tidy()
        bench.now += 100.0
    records = list(bench.steps.records)
    assert len(records) == bench.steps.stats().steps == told == 10
    for n, record in enumerate(records):
        whole = 0.5 if n % 5 < 4 else 0.0  # nobody knows how long the last one's frame will take
        commands = 0.25 if n % 5 == 0 else 0.0
        assert whole + commands <= record.overhead_s < whole + commands + 0.1
    assert bench.frames[-1].records[-1] == records[-1]


def test_records_leave_at_a_bounded_rate_and_each_once_the_last_before_a_rest() -> None:
    bench = Bench()
    for n in range(3):
        bench.submit(f"r{n}", long_prompt(5 + n, 60), max_tokens=60)
    bench.finish()
    told = [frame for frame in bench.frames if frame.records]
    assert [r for frame in told for r in frame.records] == list(bench.steps.records)
    assert 1 < len(told) < len(bench.frames) / 5
    bench.submit("last", [1, 2, 3], max_tokens=1)
    bench.finish()
    assert bench.frames[-1].records[-1] == bench.steps.records[-1]


def test_a_draft_that_cannot_be_computed_costs_the_run_nothing() -> None:
    for bad in (POISON, CRASH):
        bench, ask = Bench(speculation=(guesses := guessing(1))), long_prompt(5, 12)
        guesses.propose = lambda *_, bad=bad: [1, bad]  # type: ignore[method-assign, misc]
        bench.submit("a", ask, max_tokens=12)
        bench.submit("b", ask, max_tokens=12)
        bench.finish()
        assert bench.tokens["a"] == bench.tokens["b"] == greedy(ask, 12)


# ---- snapshots ---------------------------------------------------------------------------------


def test_a_run_that_waits_for_the_disk_does_not_hold_up_the_others() -> None:
    disk, said = FakeFiles(), prompt(1, 400)
    ask = next(p for n in range(60) if len(greedy(p := [*said, n + 1], 8)) == 8)
    snapshots = Snapshots(b"", ram_max=0, disk_max=10**6, files=disk)
    bench = Bench(cells=1000, n_ctx=600, snapshots=snapshots)
    bench.submit("first", said, group="g")
    bench.finish()
    bench.rest()
    bench.memory.evict_all()
    disk.held = True
    bench.submit("second", ask, group="g")
    bench.step()
    assert bench.steps.fetching and not bench.steps.idle
    bench.submit("other", long_prompt(5))
    for _ in range(12):
        bench.step()
    assert bench.reason("other") == "max_tokens" and bench.tokens["second"] == []
    disk.held = False
    bench.finish()
    assert bench.tokens["second"] == greedy(ask, 8)
    assert bench.finishes["second"][0].cached_tokens >= 384
    assert bench.frames[-1].stats.restored_tokens >= 384
    assert bench.frames[-1].stats.snapshot_disk_bytes == snapshots.disk_bytes > 0


@pytest.mark.parametrize("when", ["over", "live"])
def test_what_a_deleted_conversation_said_is_not_drafted_for_others(when: str) -> None:
    speculation, ask = Speculation(Pace(32, 1.0), [EOG]), long_prompt(8, 30)
    bench = Bench(speculation=speculation)
    bench.submit("a", ask, max_tokens=20, group="gone")
    bench.submit("b", [3, *ask], max_tokens=20, group="stays")
    while not bench.tokens["a"] or (when == "over" and not bench.steps.idle):
        bench.step()
    bench.steps.forget("gone")
    bench.finish()
    for _ in range(20):
        speculation.observe([], 1, 0.01)  # all is taken in
    words = speculation._lookup._recall.of("local")
    assert words is not None
    kept = [token for token in words._young.tokens if token >= 0]
    assert kept == [3, *ask, *bench.tokens["b"]]


def test_what_runs_when_the_process_ends_is_kept_for_the_next_one() -> None:
    disk, ask = FakeFiles(), long_prompt(60, 30)
    snapshots = Snapshots(b"", ram_max=0, disk_max=10**6, files=disk)
    bench = Bench(snapshots=snapshots)
    bench.submit("a", ask, max_tokens=30, group="g")
    for _ in range(8):
        bench.step()
    bench.steps.close()
    assert sum(len(entry.tokens) // 4 for entry in disk.folder) >= 60


# ---- all of it at once -------------------------------------------------------------------------

RUN = st.fixed_dictionaries(
    {
        "bad": st.sampled_from([None] * 8 + [POISON, CRASH, NAN]),
        "seed": st.integers(0, 5),  # few seeds: many prompts begin alike
        "n": st.integers(1, 70),
        "max_tokens": st.integers(1, 40),
        "owner": st.sampled_from(["ann", "bob"]),
        "interactive": st.booleans(),
        "exact": st.booleans(),
        "steps": st.integers(0, 6),  # before the next one arrives
        "cancel": st.sampled_from([None, None, None, 0, 2, 9]),
        "group": st.sampled_from(["", "g", "h"]),
        "forget": st.sampled_from([None] * 8 + ["g"]),  # before it arrives
        "idle": st.booleans(),  # everything comes to rest before it arrives
    }
)


@settings(max_examples=120)
@given(
    runs=st.lists(RUN, min_size=1, max_size=10),
    cells=st.integers(120, 300),
    running=st.integers(1, 5),
    rows=st.integers(5, 40),
    exact_rows=st.sampled_from([0, 7]),
    layout=st.sampled_from(["ordered", "any", "uncuttable"]),
    saved_bytes_max=st.sampled_from([0, 500, 10**6]),
    drafts=st.none() | st.integers(0, 99),
    kept=st.none() | st.tuples(st.integers(0, 99), st.sampled_from([0, 900, 10**6])),
)
def test_every_run_ends_once_with_its_own_text_whatever_happens_around_it(
    runs: list[dict[str, Any]],
    cells: int,
    running: int,
    rows: int,
    exact_rows: int,
    layout: str,
    saved_bytes_max: int,
    drafts: int | None,
    kept: tuple[int, int] | None,
) -> None:
    snapshots = None
    if kept is not None and layout != "uncuttable":
        chance, disk_max = kept
        snapshots = Snapshots(
            b"", ram_max=saved_bytes_max, disk_max=disk_max, files=FakeFiles(seed=chance)
        )
    bench = Bench(
        cells=cells,
        running=running,
        ids=running + 3,
        rows=rows,
        exact_rows=exact_rows,
        can_cut=layout != "uncuttable",
        ordered=layout == "ordered",
        saved_bytes_max=saved_bytes_max,
        cached_max=cells // 2,
        speculation=None if drafts is None or layout == "uncuttable" else guessing(drafts),
        snapshots=snapshots,
    )
    cancels: list[tuple[int, str]] = []
    step = 0
    for i, run in enumerate(runs):
        ask = prompt(run["seed"], run["n"])
        if run["bad"] is not None:
            ask[-1] = run["bad"]
        if run["idle"]:
            bench.finish()
            bench.rest()
        if run["forget"] is not None:
            bench.steps.forget(run["forget"])
        bench.submit(
            f"r{i}",
            ask,
            group=run["group"],
            max_tokens=run["max_tokens"],
            owner=run["owner"],
            interactive=run["interactive"],
            exact=run["exact"],
        )
        if run["cancel"] is not None:
            cancels.append((step + run["cancel"], f"r{i}"))
        for _ in range(run["steps"]):
            bench.step()
            step += 1
            for _, id in [c for c in cancels if c[0] == step]:
                bench.steps.cancel(id)
    bench.finish()
    bench.rest()
    for i, run in enumerate(runs):
        expected = greedy(prompt(run["seed"], run["n"]), min(run["max_tokens"], 100 - run["n"]))
        reason = bench.reason(f"r{i}")
        if run["bad"] is not None:
            assert reason in ("error", "cancelled")
        else:
            assert reason in ("end_turn", "max_tokens", "context", "cancelled")
            said = bench.tokens[f"r{i}"]
            assert said == (expected if reason != "cancelled" else expected[: len(said)])
    assert bench.memory.saved_bytes == 0
    assert bench.memory.cells.used == bench.memory.cells.cached == bench.model.used
