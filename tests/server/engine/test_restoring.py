"""Putting back saved cells is measured, and weighed against computing them."""

from __future__ import annotations

import pytest
from fake_model import FakeModel

from hobnob.server.engine.model import Chunk, State
from hobnob.server.engine.pacing import Pace
from hobnob.server.engine.restoring import Restoring, measure

STRETCH_S, TOKEN_S = 0.002, 0.0001


class Slow(FakeModel):
    """Takes its time to put something back, and more the first time."""

    now = 0.0
    done = 0

    def restore(self, seq: int, state: State) -> bool:
        before = self.length(seq)
        restored = super().restore(seq, state)
        self.done += 1
        self.now += STRETCH_S + TOKEN_S * (self.length(seq) - before) + (self.done == 1)
        return restored


def test_a_stretch_and_its_tokens_are_measured_apart() -> None:
    model = Slow(300, 2, rows=64)
    model.decode([Chunk(1, 0, list(range(5, 45)))], 1)
    assert measure(model, 1, lambda: model.now) == pytest.approx((STRETCH_S + TOKEN_S, TOKEN_S))
    assert model.length(1) == 40


def test_nothing_is_measured_on_an_empty_sequence() -> None:
    assert measure(FakeModel(100, 2), 0, lambda: 0.0) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("per_row", "tokens", "read_s", "wins"),
    [
        (0.005, 1, 0.0, True),  # a CPU: one token takes longer than a stretch
        (0.0002, 9, 0.0, False),  # a GPU: a handful is sooner computed
        (0.0002, 40, 0.0, True),
        (0.0002, 40, 0.1, False),  # from a slow disk
        (0.00005, 10_000, 0.0, False),  # more than computing, however many there are
    ],
)
def test_what_takes_less_time_wins(per_row: float, tokens: int, read_s: float, wins: bool) -> None:
    pace = Pace(512)
    pace.observe(0, 100, 100 * per_row)
    won = Restoring(pace, STRETCH_S, TOKEN_S).won(tokens, tokens, read_s)
    assert (won > 0) is wins
    assert won == pytest.approx(tokens * per_row - STRETCH_S - tokens * TOKEN_S - read_s)
