"""Prefill chunks fit the step that the decodes allow, on any machine with steady costs."""

from __future__ import annotations

import random

import pytest

from hobnob.server.engine.pacing import FIRST_ROWS, FLOOR_ROWS, IDLE_STEP_SECONDS, Pace


class Machine:
    """Costs a step as measured machines do: some at all, some per row, and noise."""

    def __init__(
        self, base_s: float, decode_s: float, prefill_s: float, noise: float = 0.1
    ) -> None:
        self.costs = base_s, decode_s, prefill_s
        self.noise = random.Random(1), noise

    def step(self, decodes: int, prefill_rows: int) -> float:
        base, decode, prefill = self.costs
        chance, noise = self.noise
        return (base + decode * decodes + prefill * prefill_rows) * chance.uniform(1, 1 + noise)


SMALL_CPU = (0.015, 0.007, 0.005)
LARGE_CPU = (0.25, 0.03, 0.05)
GPU = (0.008, 0.0002, 0.0001)


def run(pace: Pace, machine: Machine, decodes: int, steps: int) -> list[tuple[int, float]]:
    """Steps with as much prefill as allowed: rows and cost of each."""
    found = []
    for _ in range(steps):
        rows = pace.prefill_rows(decodes)
        cost = machine.step(decodes, rows)
        pace.observe(decodes, rows, cost)
        found.append((rows, cost))
    return found


@pytest.mark.parametrize("costs", [SMALL_CPU, LARGE_CPU])
@pytest.mark.parametrize("decodes", [1, 4, 16])
def test_without_a_target_no_step_takes_four_times_a_decode_step(
    costs: tuple[float, float, float], decodes: int
) -> None:
    pace, machine = Pace(512), Machine(*costs)
    alone = [machine.step(decodes, 0) for _ in range(20)]
    for cost in alone:
        pace.observe(decodes, 0, cost)
    steps = run(pace, machine, decodes, 60)
    median = sorted(alone)[10]
    assert max(cost for _, cost in steps) <= 4 * median
    assert sum(cost for _, cost in steps[10:]) / 50 >= 2 * median  # and the room is used


def test_with_a_target_steps_come_close_to_it_and_stay_below() -> None:
    pace, machine = Pace(512, target_s=0.060), Machine(*GPU, noise=0.02)
    for _ in range(20):
        pace.observe(8, 0, machine.step(8, 0))
    costs = [cost for _, cost in run(pace, machine, 8, 60)][10:]
    assert 0.05 < max(costs) < 0.065


def test_prefill_always_moves() -> None:
    pace = Pace(512, target_s=0.001)
    machine = Machine(*LARGE_CPU)
    for _ in range(5):
        pace.observe(4, 0, machine.step(4, 0))
    assert all(rows == FLOOR_ROWS for rows, _ in run(pace, machine, 4, 20)[1:])


def test_a_long_prompt_whose_rows_become_dear_does_not_make_steps_longer() -> None:
    """As measured: a row costs 6 ms at the beginning of 1,900 tokens, and 22 ms at their end."""
    pace, decode = Pace(512), 0.041
    pace.observe(0, 128, 128 * 0.006)
    for _ in range(10):
        pace.observe(4, 0, decode)
    read, costs = 0, []
    while read < 1900:
        rows = pace.prefill_rows(4)
        costs.append(decode + rows * (0.006 + 0.016 * read / 1900))
        pace.observe(4, rows, costs[-1])
        read += rows
    assert max(costs) <= 3.5 * decode


def test_the_first_step_of_a_prompt_beside_others_is_not_the_longest() -> None:
    """As measured: a row costs 5 ms among 128 of a prompt alone, and 9 ms among 11 of a step."""
    pace, decode = Pace(512), 0.030
    pace.observe(0, 128, 128 * 0.005)
    for _ in range(10):
        pace.observe(4, 0, decode)
    costs = []
    for _ in range(10):
        rows = pace.prefill_rows(4)
        costs.append(decode + rows * 0.009)
        pace.observe(4, rows, costs[-1])
    assert max(costs) <= 3 * decode


def test_one_slow_decode_step_before_a_long_prompt_does_not_make_all_its_steps_long() -> None:
    pace, machine = Pace(512), Machine(*SMALL_CPU)
    alone = [machine.step(4, 0) for _ in range(20)]
    for cost in [*alone, 4 * alone[-1]]:
        pace.observe(4, 0, cost)
    steps = run(pace, machine, 4, 60)
    assert max(cost for _, cost in steps[5:]) <= 3.2 * max(alone)


def test_before_anything_is_known_the_first_mixed_step_is_small() -> None:
    assert Pace(512).prefill_rows(4) == FIRST_ROWS


def test_with_nobody_decoding_the_whole_step_is_used_as_far_as_a_cancel_may_wait() -> None:
    pace = Pace(512)
    assert pace.prefill_rows(0) == 512
    for _ in range(10):
        pace.observe(0, 512, 0.5)
    assert pace.prefill_rows(0) == 512
    for _ in range(30):
        pace.observe(0, 512, 10.0)
    assert pace.prefill_rows(0) == pytest.approx(512 * IDLE_STEP_SECONDS / 10, abs=2)


def test_beside_a_long_reply_a_step_is_no_longer_than_four_times_what_was_usual() -> None:
    """Its own decode steps are longer than the others were, and 2.8 times one is too much."""
    pace, usual = Pace(512), Machine(*SMALL_CPU, noise=0.02)
    for _ in range(100):
        pace.observe(1, 0, usual.step(1, 0))
    late = Machine(0.025, 0.007, 0.007, noise=0.02)
    for _ in range(20):
        pace.observe(1, 0, late.step(1, 0))
    steps = run(pace, late, 1, 40)
    assert max(cost for _, cost in steps[1:]) <= 4 * 0.022
    assert min(rows for rows, _ in steps) > FLOOR_ROWS


def test_where_decodes_became_many_prompts_are_not_read_in_crumbs() -> None:
    pace, machine = Pace(512), Machine(*SMALL_CPU, noise=0.02)
    for decodes, steps in ((1, 100), (16, 5)):
        for _ in range(steps):
            pace.observe(decodes, 0, machine.step(decodes, 0))
    alone = machine.step(16, 0)
    assert max(cost for _, cost in run(pace, machine, 16, 20)) > 1.8 * alone


def test_a_machine_that_becomes_slower_gets_smaller_chunks() -> None:
    pace, fast, slow = Pace(512, target_s=0.3), Machine(*SMALL_CPU), Machine(0.03, 0.014, 0.015)
    for machine in (fast, slow):
        for _ in range(20):
            pace.observe(2, 0, machine.step(2, 0))
        rows = run(pace, machine, 2, 40)[-1][0]
        if machine is fast:
            before = rows
    assert rows < before / 2


def test_after_a_burst_of_arrivals_prompts_are_read_by_the_steps_that_are_to_come() -> None:
    pace, machine = Pace(512), Machine(*SMALL_CPU, noise=0.0)
    for decodes in (1, 4, 8):
        pace.observe(decodes, 0, machine.step(decodes, 0))
    pace.observe(0, 100, machine.step(0, 100))
    assert pace.prefill_rows(1, soon=1) == pace.prefill_rows(1)
    burst = pace.prefill_rows(1, soon=7)
    assert burst > 2 * pace.prefill_rows(1)
    assert machine.step(1, burst) <= 4 * machine.step(8, 0)
    # one prompt more does not make the others wait longer than before
    assert pace.prefill_rows(4, soon=1) == pace.prefill_rows(4)


def test_an_absolute_target_holds_in_a_burst_too() -> None:
    pace, machine = Pace(512, target_s=0.060), Machine(*GPU, noise=0.0)
    pace.observe(1, 0, machine.step(1, 0))
    pace.observe(0, 100, machine.step(0, 100))
    assert pace.prefill_rows(1, soon=16) == pace.prefill_rows(1)


def test_short_prompts_do_not_teach_that_rows_are_dear() -> None:
    """Most of a short step is what any step costs."""
    pace, machine = Pace(512), Machine(0.020, 0.001, 0.001, noise=0.0)
    pace.observe(0, 63, machine.step(0, 63))
    for decodes in (1, 4):
        pace.observe(decodes, 0, machine.step(decodes, 0))
    for _ in range(10):
        pace.observe(4, 60, machine.step(4, 60))
    before = pace.prefill_rows(4)
    for _ in range(50):
        pace.observe(0, 10, machine.step(0, 10))
    assert pace.prefill_rows(4) >= 0.95 * before
    assert pace.seconds_per_prefill_row == pytest.approx(0.001, rel=0.1)


def test_short_steps_before_anything_else_is_known_say_little() -> None:
    pace, machine = Pace(512), Machine(0.020, 0.001, 0.001, noise=0.0)
    pace.observe(0, 63, machine.step(0, 63))
    for _ in range(10):
        pace.observe(0, 8, machine.step(0, 8))
    assert pace.seconds_per_prefill_row == pytest.approx(0.0015, rel=0.25)
