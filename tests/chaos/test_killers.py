"""A death of the real program at named points; `make chaos` runs a hundred rounds of each kind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from killing import WAYS, Homes, Round


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Homes]:
    homes = Homes(tmp_path_factory.mktemp("homes"))
    yield homes
    homes.stop()


@pytest.mark.parametrize(
    ("victim", "way"),
    [
        ("engine", "in a snapshot"),
        ("server", "accepted, not answered"),
        ("server", "committed, not sent"),
        ("client", "SIGHUP"),
    ],
)
def test_a_reply_survives_a_death_of_the(homes: Homes, victim: str, way: str) -> None:
    seed = [name for name, _ in WAYS[victim]].index(way)
    outcome = Round(homes, victim, seed).run()
    assert outcome.good, outcome
    assert outcome.way == way


def test_a_reply_that_is_not_the_uninterrupted_one_is_found(
    homes: Homes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Homes, "expected", lambda *_: b"something else")
    outcome = Round(homes, "client", 0).run()
    assert (outcome.complete, outcome.kept, outcome.equal, outcome.good) == (
        True,
        True,
        False,
        False,
    )
