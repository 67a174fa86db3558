"""Who goes first, who waits, who gives way; and nobody for ever."""

from __future__ import annotations

from typing import Any

from fake_model import FakeModel
from hypothesis import given, settings
from hypothesis import strategies as st

from hobnob.server.engine.cells import Cells
from hobnob.server.engine.memory import Memory
from hobnob.server.engine.run import Run
from hobnob.server.engine.scheduler import PATIENCE_SECONDS, Budget, Plan, Scheduler


class Desk:
    """A scheduler whose plans are carried out at once; each run ends after some drawn tokens."""

    def __init__(
        self, *, cells: int = 1000, running: int = 4, rows: int = 32, ids: int = 12
    ) -> None:
        self.model = FakeModel(cells, ids, rows=rows)
        self.memory = Memory(
            self.model, Cells(cells, ids), cached_max=cells // 2, saved_bytes_max=10**6
        )
        self.scheduler = Scheduler(self.memory, n_running_max=running)
        self.rows = rows
        self.left: dict[str, int] = {}
        self.over: list[str] = []
        self.fresh = 0

    def add(self, id: str, n: int, *, draws: int = 3, now: float = 0.0, **options: Any) -> Run:
        """A prompt of n tokens that begins like no other."""
        self.fresh += 1
        tokens = [1 + (self.fresh * 37 + i * self.fresh) % 60 for i in range(n)]
        run = Run(id, tokens, n, arrived=now, **options)
        self.left[id] = draws
        self.scheduler.add(run)
        return run

    def step(self, now: float = 0.0, *, prefill_rows: int | None = None) -> Plan:
        budget = Budget(self.rows, prefill_rows or self.rows)
        plan = self.scheduler.plan(now, budget)
        assert plan.rows <= self.rows
        assert plan.rows <= self.memory.cells.free
        self.over += [run.id for run in plan.full]
        if plan.chunks:
            self.model.decode(plan.chunks, 1)
        for run, chunk in zip(plan.runs, plan.chunks, strict=True):
            self.scheduler.commit(plan, run, exact=False)
            if chunk.outputs:
                run.take([1 + len(run.tokens) % 60])
                self.left[run.id] -= 1
                if not self.left[run.id]:
                    self.scheduler.end(run)
                    self.over.append(run.id)
        self.scheduler.check_integrity()
        return plan

    def finish(self) -> int:
        """The number of steps until all are over."""
        for n in range(3000):
            if self.scheduler.idle:
                return n
            self.step(now=float(n))
        raise AssertionError("somebody waits for ever")


def test_decodes_come_before_prefills_and_share_the_step() -> None:
    desk = Desk(rows=16)
    desk.add("a", 4, draws=9)
    desk.step()
    desk.add("b", 50)
    plan = desk.step(prefill_rows=10)
    assert [
        (run.id, len(chunk.tokens)) for run, chunk in zip(plan.runs, plan.chunks, strict=True)
    ] == [
        ("a", 1),
        ("b", 10),
    ]


def test_with_nobody_decoding_a_prefill_takes_the_whole_step() -> None:
    desk = Desk(rows=16)
    desk.add("a", 50)
    assert desk.step(prefill_rows=4).rows == 16


def test_a_finished_run_frees_its_row_for_the_next_step() -> None:
    desk = Desk(running=1)
    desk.add("a", 4, draws=1)
    desk.add("b", 4)
    assert [run.id for run in desk.step().runs] == ["a"]
    assert [run.id for run in desk.step().runs] == ["b"]


def test_an_owner_with_many_runs_does_not_crowd_out_another() -> None:
    desk = Desk(running=2)
    for n in range(6):
        desk.add(f"ann{n}", 20, owner="ann", now=n / 10)
    desk.step()
    desk.add("bob", 20, owner="bob", now=1.0)
    desk.finish()
    assert desk.over.index("bob") <= 2


def test_an_owner_who_was_away_has_no_credit() -> None:
    desk = Desk(running=1)
    for n in range(5):
        desk.add(f"ann{n}", 20, owner="ann", now=n / 10)
    for _ in range(8):
        desk.step()
    desk.add("bob0", 20, owner="bob", now=2.0)
    desk.add("bob1", 20, owner="bob", now=2.1)
    desk.finish()
    assert desk.over.index("bob1") > desk.over.index("ann3")


def test_whoever_comes_new_does_not_make_old_owners_wait_for_all_they_were_served() -> None:
    desk = Desk(running=2, ids=30)
    for n in range(20):
        desk.add(f"done{n}", 100, owner="old")
        desk.finish()
    desk.over.clear()
    for n in range(6):
        desk.add(f"new{n}", 20, owner="new")
    desk.add("old", 20, owner="old")
    desk.finish()
    assert desk.over.index("old") <= 2


def test_a_short_prompt_overtakes_a_long_one_of_the_same_owner() -> None:
    desk = Desk(rows=16)
    desk.add("long", 300)
    desk.step()
    desk.add("short", 10, draws=1)
    desk.step()
    assert desk.over == ["short"]


def test_batch_runs_wait_for_interactive_ones_but_not_for_ever() -> None:
    desk = Desk(running=1)
    desk.add("busy", 4, draws=1)
    desk.step()
    desk.add("batch", 4, interactive=False)
    desk.add("chat", 4, now=0.5)
    queue = desk.scheduler.queue
    assert [run.id for run in queue(1.0)] == ["chat", "batch"]
    assert [run.id for run in queue(PATIENCE_SECONDS + 0.1)] == ["batch", "chat"]


def test_a_batch_run_ages_in_the_queue_and_not_while_it_is_served() -> None:
    desk = Desk(cells=200, running=2)
    desk.add("batch", 30, draws=100, interactive=False)
    desk.step(now=0.0)
    late = 2 * PATIENCE_SECONDS
    desk.add("chat", 30, draws=100, now=late)
    desk.step(now=late)
    assert desk.scheduler.running == 2
    while not desk.scheduler.waiting:
        desk.step(now=late)
    assert [run.id for run in desk.scheduler.queue(late)] == ["batch"], "served all along"
    assert [run.id for run in desk.scheduler.runs] == ["chat"]


def test_a_batch_run_that_has_waited_long_is_not_the_first_to_give_way() -> None:
    desk = Desk(cells=200, running=2)
    desk.add("batch", 30, draws=100, interactive=False)
    late = PATIENCE_SECONDS + 1
    desk.step(now=late)
    desk.add("chat", 30, draws=100, now=late)
    desk.step(now=late)
    assert desk.scheduler.running == 2
    while not desk.scheduler.waiting:
        desk.step(now=late)
    assert [run.id for run in desk.scheduler.queue(late)] == ["chat"], "the newest of one class"


def test_the_newest_run_of_the_lowest_class_gives_way() -> None:
    desk = Desk(cells=200, running=3)
    desk.add("chat", 30, draws=60)
    desk.add("old", 30, draws=60, now=1.0, interactive=False)
    desk.add("new", 30, draws=60, now=2.0, interactive=False)
    for _ in range(45):
        desk.step(now=3.0)
    assert [run.id for run in desk.scheduler.queue(3.0)] == ["new"]
    desk.finish()
    assert sorted(desk.over) == ["chat", "new", "old"]


def test_a_run_that_was_put_aside_comes_back_before_newcomers_of_its_class() -> None:
    desk = Desk(cells=200, running=3)
    desk.add("a", 60, draws=60)
    desk.add("b", 60, draws=60, now=1.0)
    for _ in range(30):
        desk.step(now=2.0)
    desk.step(now=2.0)
    while not desk.scheduler.waiting:
        desk.step(now=2.0)
    desk.add("c", 60, now=3.0)
    assert [run.id for run in desk.scheduler.queue(3.0)] == ["b", "c"]


def test_a_run_is_not_admitted_where_it_would_push_another_out_at_once() -> None:
    desk = Desk(cells=300, running=3)
    desk.add("a", 150, draws=80)
    for _ in range(6):
        desk.step()
    desk.add("b", 100)
    desk.step()
    assert (desk.scheduler.running, desk.scheduler.waiting) == (1, 1)
    desk.finish()
    assert desk.over == ["a", "b"]


RUN = st.tuples(
    st.integers(1, 90),  # prompt
    st.integers(1, 60),  # draws
    st.sampled_from(["ann", "bob", "cat"]),
    st.booleans(),
    st.integers(0, 4),  # steps before the next
)


@settings(max_examples=80)
@given(
    runs=st.lists(RUN, min_size=1, max_size=12),
    cells=st.integers(160, 400),
    running=st.integers(1, 6),
    rows=st.integers(6, 40),
)
def test_every_admitted_run_ends_and_no_plan_exceeds_the_step_or_the_cells(
    runs: list[tuple[int, int, str, bool, int]], cells: int, running: int, rows: int
) -> None:
    desk = Desk(cells=cells, running=running, rows=rows, ids=running + 3)
    for i, (n, draws, owner, interactive, steps) in enumerate(runs):
        desk.add(f"r{i}", n, draws=draws, owner=owner, interactive=interactive, now=i / 10)
        for _ in range(steps):
            desk.step(now=i / 10)
    desk.finish()
    assert sorted(desk.over) == sorted(f"r{i}" for i in range(len(runs)))
    assert desk.memory.cells.used == desk.memory.cells.cached
