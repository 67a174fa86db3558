"""The search for the run that kills the engine, as pure bookkeeping."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hobnob.server.quarantine import DEATHS, Quarantine


def test_a_lone_run_is_the_culprit_after_three_deaths_without_a_token() -> None:
    quarantine = Quarantine()
    assert [quarantine.died(["a"]) for _ in range(DEATHS)] == [None, None, "a"]


def test_a_death_that_may_have_had_another_cause_is_held_against_nobody() -> None:
    quarantine = Quarantine()
    assert [quarantine.died(["a"], excused=True) for _ in range(2 * DEATHS)] == [None] * 2 * DEATHS
    assert [quarantine.died(["a"]) for _ in range(DEATHS)] == [None, None, "a"]


def test_a_token_in_between_starts_the_count_anew() -> None:
    quarantine = Quarantine()
    for _ in range(10):
        quarantine.moved("a")
        assert quarantine.died(["a"]) is None
        assert quarantine.died(["a"]) is None


def test_whoever_was_there_longer_is_not_blamed_for_a_newcomer() -> None:
    quarantine = Quarantine()
    quarantine.died(["old"])
    quarantine.died(["old"])
    assert quarantine.died(["old", "new"]) is None
    assert quarantine.may_run("old") and not quarantine.may_run("new")
    assert quarantine.moved("old")
    assert quarantine.may_run("old") and quarantine.may_run("new")
    assert quarantine.died(["old", "new"]) == "new"
    assert not quarantine.searching


def test_newcomers_wait_while_it_searches() -> None:
    quarantine = Quarantine()
    for _ in range(DEATHS):
        quarantine.died(["a", "b"])
    assert quarantine.searching
    assert not quarantine.may_run("c")
    quarantine.ended("a")
    quarantine.ended("b")
    assert quarantine.may_run("c") and not quarantine.searching


def test_a_death_with_nobody_in_it_accuses_nobody() -> None:
    quarantine = Quarantine()
    assert all(quarantine.died([]) is None for _ in range(5))


@given(st.integers(1, 12), st.data())
def test_one_poison_run_among_many_is_found_and_nobody_else(runs: int, data: st.DataObject) -> None:
    """Whoever steps first kills or gets a token; every run needs two tokens to end."""
    names = [f"r{n}" for n in range(runs)]
    poison = data.draw(st.sampled_from(names))
    quarantine = Quarantine()
    left = {name: 2 for name in names}
    culprits = []
    for _ in range(100):
        inside = [name for name in left if quarantine.may_run(name)]
        assert inside, "somebody may always run"
        if poison in inside:
            if (culprit := quarantine.died(inside)) is not None:
                culprits.append(culprit)
                del left[culprit]
                quarantine.ended(culprit)
        else:
            for name in inside:
                quarantine.moved(name)
                left[name] -= 1
                if left[name] == 0:
                    del left[name]
                    quarantine.ended(name)
        if not left:
            break
    assert culprits == [poison]
    assert not left and not quarantine.searching
