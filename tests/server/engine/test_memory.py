"""Runs in and out of the cells, on the scripted model and once on the real one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_model import FakeModel

from hobnob.server.engine.cells import Cells
from hobnob.server.engine.llama import Model, Shape, Weights
from hobnob.server.engine.memory import PARKED_TRIM_CELLS, Memory
from hobnob.server.engine.model import Chunk
from hobnob.server.engine.model import Model as AnyModel
from hobnob.server.engine.run import Run


def memory(model: AnyModel, cells: int, ids: int, **options: Any) -> Memory:
    bounds: dict[str, Any] = {"cached_max": cells, "saved_bytes_max": 10**8, **options}
    return Memory(model, Cells(cells, ids), **bounds)


def compute(memory: Memory, model: AnyModel, run: Run) -> None:
    """All of the run's tokens but the last."""
    memory.attach(run)
    while (left := len(run.tokens) - 1 - memory.length(run)) > 0:
        memory.continue_saved(run, 0)
        left = min(len(run.tokens) - 1 - memory.length(run), 30)
        if left <= 0:
            break
        if run.saved:
            left = min(left, run.saved[-1].start - memory.length(run))
        assert memory.make_room(left) and run.seq is not None
        at = memory.length(run)
        model.decode([Chunk(run.seq, at, run.tokens[at : at + left])], 1)
        memory.computed(run, left, exact=True)


def tokens(seed: int, n: int) -> list[int]:
    return [1 + (seed * 31 + i * i * 7 + i * seed) % 60 for i in range(n)]


def test_a_put_aside_run_loses_its_tail_in_stretches_that_are_saved_and_come_back() -> None:
    model = FakeModel(1000, 4)
    held = memory(model, 1000, 4)
    run, other = Run("a", tokens(1, 800), 800), Run("b", tokens(2, 500), 500)
    compute(held, model, run)
    held.park(run)
    compute(held, model, other)
    assert run.seq is not None and held.length(run) == 799 - 2 * PARKED_TRIM_CELLS
    assert [(s.start, s.end) for s in run.saved] == [(543, 799), (287, 543)]
    held.keep(other)
    steps = len(model.steps)
    compute(held, model, run)
    assert held.length(run) == 799 and len(model.steps) == steps
    assert held.saved_bytes == 0 and held.counts.restored == 2
    assert model.tokens(run.seq) == run.tokens[:799]


def test_what_cannot_be_saved_is_computed_again() -> None:
    model = FakeModel(1000, 4)
    held = memory(model, 1000, 4, saved_bytes_max=1100)  # one stretch of the fake's bytes
    run, other = Run("a", tokens(1, 800), 800), Run("b", tokens(2, 500), 500)
    compute(held, model, run)
    held.park(run)
    compute(held, model, other)
    assert len(run.saved) == 1 and held.counts.recomputed_cells == PARKED_TRIM_CELLS
    held.keep(other)
    compute(held, model, run)
    assert run.seq is not None and model.tokens(run.seq) == run.tokens[:799]


def test_what_a_run_would_find_is_told_and_nothing_is_touched_by_asking() -> None:
    model = FakeModel(1000, 4)
    held = memory(model, 1000, 4)
    run = Run("a", tokens(1, 100), 100)
    compute(held, model, run)
    steps = len(model.steps)

    def resident(ids: list[int], owner: str = "local", exact: bool = True) -> int:
        return held.resident(owner, ids, exact=exact)

    assert resident([*run.tokens, 5, 6]) == 99  # of a live run
    held.keep(run)
    assert resident([*run.tokens, 5, 6]) == 99  # of a finished one
    assert resident(run.tokens[:40]) == 39, "the last token's logits are needed"
    assert resident([*run.tokens[:60], 999]) == 60
    assert resident(run.tokens, owner="another") == 0 and resident([7]) == 0
    assert (held.cells.used, len(model.steps)) == (99, steps)


def test_cached_prefixes_stay_within_their_cap() -> None:
    model = FakeModel(1000, 6)
    held = memory(model, 1000, 6, cached_max=150)
    for n in range(4):
        run = Run(str(n), tokens(n, 100), 100)
        compute(held, model, run)
        held.keep(run)
        assert held.cells.cached <= 150
    assert held.counts.evicted_cells > 0


def test_when_ids_run_out_a_cached_prefix_gives_its_own() -> None:
    model = FakeModel(1000, 3)
    held = memory(model, 1000, 3)
    for n in range(6):
        run = Run(str(n), tokens(n, 20), 20)
        compute(held, model, run)
        held.keep(run)
    assert held.cells.ids_free == 0
    held.cells.check_integrity()


def test_the_prefix_to_be_shared_does_not_lose_its_id_to_the_run_that_shares_it() -> None:
    model = FakeModel(1000, 3)
    held = memory(model, 1000, 3)
    live, older, cached = (Run(str(n), tokens(n, 40), 40) for n in (1, 2, 5))
    for run in (live, older, cached):
        compute(held, model, run)
    held.keep(cached)
    held.keep(older)
    following = Run("d", [*tokens(5, 30), 1, 2, 3], 33)
    compute(held, model, following)
    assert following.seq is not None and model.tokens(following.seq) == following.tokens[:32]
    held.cells.check_integrity()


def test_where_memory_is_short_cached_prefixes_are_given_up_when_all_cells_are_moved() -> None:
    model = FakeModel(700, 6, ordered=True)
    held = memory(model, 700, 6, spare_memory=lambda: 4 * 300)
    cached, live, fork, over = (Run(str(n), tokens(n, 200), 200) for n in range(4))
    fork.tokens[:] = [*live.tokens[:100], *fork.tokens[:50]]
    for run in (cached, over, live, fork):
        compute(held, model, run)
    held.keep(cached)
    held.drop(over)
    model.check_order()
    held.tidy()
    assert model.top == held.cells.used == 199 + 49, "the cached one is gone, and none else"
    for run in (live, fork):
        assert run.seq is not None and model.tokens(run.seq) == run.tokens[:-1]
    held.cells.check_integrity()


def test_cells_that_the_model_does_not_have_are_gained_by_moving_before_any_is_given_up() -> None:
    model = FakeModel(1000, 6, ordered=True)
    held = memory(model, 1000, 6)
    cached, over, parked = (Run(str(n), tokens(n, 200), 200) for n in range(3))
    for run in (cached, over, parked):
        compute(held, model, run)
    held.keep(cached)
    held.park(parked)
    held.drop(over)
    assert held.reclaim() and held.cells.used == 2 * 199
    assert held.reclaim() and (held.cells.used, len(parked.saved)) == (0, 1)
    assert not held.reclaim()


@pytest.fixture(scope="module")
def real(tiny: Path) -> Model:
    weights = Weights(tiny, 0, lambda done: None)
    return Model(weights, Shape(512, 6, 64, 8, 1, ordered=True))


def test_moving_all_cells_together_keeps_sharing_and_every_bit(real: Model) -> None:
    """What is over leaves gaps; what is moved gives the same logits as before."""
    held = memory(real, 512, 6)
    words = [(7 * i * i + 11 * i + 3) % 259 for i in range(120)]
    over = Run("over", (words + words)[::-1], 240)
    base, fork = Run("base", words[:80], 80), Run("fork", words[:60] + words[90:], 90)
    before = []
    for run in (over, base, fork):
        compute(held, real, run)
        assert run.seq is not None
        last = Chunk(run.seq, held.length(run), run.tokens[-1:], 1)
        before.append(real.decode([last], 1).logits[0].copy())
        real.cut(run.seq, held.length(run))
    held.drop(over)
    assert held.fillable < held.cells.free
    held.tidy()
    assert real.top == held.cells.used == 79 + 30 - 1
    for run, expected in zip((base, fork), before[1:], strict=True):
        assert run.seq is not None
        last = Chunk(run.seq, held.length(run), run.tokens[-1:], 1)
        assert np.array_equal(real.decode([last], 1).logits[0], expected)
