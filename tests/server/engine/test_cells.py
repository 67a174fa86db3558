"""Cells in = cells out, whatever is shared, cut, kept or evicted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hobnob.server.engine.cells import TRIM_CELLS, Cells, Cut, Holding, Match, common_length


def ids(*tokens: int) -> np.ndarray:
    return np.array(tokens, np.int32)


def test_a_shared_prefix_counts_once() -> None:
    cells = Cells(100, 4)
    a = cells.open("ann")
    cells.append(a, range(10))
    b = cells.fork(a, 6)
    cells.append(b, [50, 51])
    assert cells.used == 12
    assert cells.tokens(b).tolist() == [0, 1, 2, 3, 4, 5, 50, 51]
    cells.close(a)
    assert cells.used == 8
    cells.check_integrity()


def test_the_longest_prefix_is_found_and_leaves_one_token_to_compute() -> None:
    cells = Cells(100, 4)
    a, b = cells.open("ann"), cells.open("ann")
    cells.append(a, [1, 2, 3])
    cells.append(b, [1, 2, 3, 4, 5])
    assert cells.match("ann", ids(1, 2, 3, 4, 9)) == Match(b, 4)
    assert cells.match("ann", ids(1, 2, 3, 4, 5)) == Match(b, 4)
    assert cells.match("ann", ids(7, 8)) is None


def test_nobody_finds_the_prefix_of_another_owner() -> None:
    cells = Cells(100, 4)
    cells.append(cells.open("ann"), [1, 2, 3])
    assert cells.match("bob", ids(1, 2, 3, 4)) is None


def test_an_exact_run_only_starts_from_cells_computed_in_exact_steps() -> None:
    cells = Cells(100, 4)
    a = cells.open("ann")
    cells.append(a, [1, 2], exact=True)
    cells.append(a, [3], exact=False)
    cells.append(a, [4], exact=True)  # it builds on a token that is not
    assert cells.exact(a) == 2
    assert cells.match("ann", ids(1, 2, 3, 4, 5), exact=True) == Match(a, 2)
    assert cells.exact(cells.fork(a, 3)) == 2


def test_sequences_that_cannot_be_cut_are_only_found_whole() -> None:
    cells = Cells(100, 4, can_cut=False)
    a = cells.open("ann")
    cells.append(a, [1, 2, 3])
    assert cells.match("ann", ids(1, 2, 9, 9)) is None
    assert cells.match("ann", ids(1, 2, 3, 9)) == Match(a, 3)


def test_eviction_takes_the_longest_unused_first_and_tails_before_heads() -> None:
    cells = Cells(1000, 4)
    old, new = cells.open("ann"), cells.open("ann")
    cells.append(old, range(300))
    cells.append(new, range(500, 800))
    cells.hold(old, Holding.CACHED)
    cells.hold(new, Holding.CACHED)
    assert cells.evict(10) == [Cut(old, 300 - TRIM_CELLS)]
    assert cells.evict(400) == [Cut(old, 0), Cut(new, 300 - 192)]
    cells.check_integrity()


def test_live_and_parked_sequences_are_never_evicted() -> None:
    cells = Cells(100, 4)
    a, b = cells.open("ann"), cells.open("ann")
    cells.append(a, range(10))
    cells.append(b, range(20, 30))
    cells.hold(b, Holding.PARKED)
    assert cells.cached == 0
    assert cells.evict(100) == []
    assert cells.used == 20


def test_cells_that_a_live_run_shares_are_not_counted_as_evictable() -> None:
    cells = Cells(100, 4)
    a = cells.open("ann")
    cells.append(a, range(10))
    cells.hold(a, Holding.CACHED)
    assert cells.cached == 10
    match = Match(a, 4)
    assert cells.pinned_by(match) == 4
    cells.fork(a, 4)
    assert cells.cached == 6
    assert cells.pinned_by(match) == 0


def test_private_cells_are_those_at_the_end_that_nobody_else_holds() -> None:
    cells = Cells(100, 4)
    a = cells.open("ann")
    cells.append(a, range(10))
    assert cells.private(a) == 10
    b = cells.fork(a, 10)
    assert (cells.private(a), cells.private(b)) == (0, 0)
    cells.append(b, [1, 2])
    assert cells.private(b) == 2
    cells.cut(b, 7)
    assert (cells.private(a), cells.private(b)) == (3, 0)


@pytest.mark.parametrize(
    ("a", "b", "n"),
    [([], [1], 0), ([1], [2], 0), ([1, 2], [1, 2, 3], 2), ([1, 2, 3], [1, 5, 3], 1)],
)
def test_common_length(a: list[int], b: list[int], n: int) -> None:
    assert common_length(ids(*a), ids(*b)) == n


class Pool(RuleBasedStateMachine):
    """Random operations, against a model that stores which physical cell is where."""

    TOTAL = 300

    def __init__(self) -> None:
        super().__init__()
        self.cells = Cells(self.TOTAL, 6)
        self.paths: dict[int, list[int]] = {}
        self.live: dict[int, Holding] = {}
        self.next = 0

    def _new_cells(self, n: int) -> list[int]:
        self.next += n
        return list(range(self.next - n, self.next))

    def _seq(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.paths)))

    @precondition(lambda self: self.cells.ids_free)
    @rule()
    def open(self) -> None:
        seq = self.cells.open("ann")
        self.paths[seq], self.live[seq] = [], Holding.LIVE

    @precondition(lambda self: self.paths)
    @rule(data=st.data(), n=st.integers(1, 40))
    def append(self, data: st.DataObject, n: int) -> None:
        seq, n = self._seq(data), min(n, self.cells.free)
        if n:
            fresh = self._new_cells(n)
            self.cells.append(seq, fresh)
            self.paths[seq] += fresh

    @precondition(lambda self: self.cells.ids_free and any(self.paths.values()))
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        source = data.draw(st.sampled_from(sorted(s for s, path in self.paths.items() if path)))
        n = data.draw(st.integers(1, len(self.paths[source])))
        seq = self.cells.fork(source, n)
        self.paths[seq], self.live[seq] = self.paths[source][:n], Holding.LIVE

    @precondition(lambda self: self.paths)
    @rule(data=st.data())
    def cut(self, data: st.DataObject) -> None:
        seq = self._seq(data)
        n = data.draw(st.integers(0, len(self.paths[seq])))
        self.cells.cut(seq, n)
        del self.paths[seq][n:]

    @precondition(lambda self: self.paths)
    @rule(data=st.data(), holding=st.sampled_from(Holding))
    def hold(self, data: st.DataObject, holding: Holding) -> None:
        seq = self._seq(data)
        self.cells.hold(seq, holding)
        self.live[seq] = holding

    @rule(n=st.integers(1, 200))
    def evict(self, n: int) -> None:
        could, before = self.cells.cached, self.cells.used
        for cut in self.cells.evict(n):
            assert self.live[cut.seq] is Holding.CACHED
            del self.paths[cut.seq][cut.length :]
            if not cut.length:
                del self.paths[cut.seq], self.live[cut.seq]
        assert before - self.cells.used >= min(n, could)

    @invariant()
    def counts_agree(self) -> None:
        self.cells.check_integrity()
        held = {cell for path in self.paths.values() for cell in path}
        kept = {
            cell
            for seq, path in self.paths.items()
            for cell in path
            if self.live[seq] is not Holding.CACHED
        }
        assert self.cells.used == len(held)
        assert self.cells.cached == len(held - kept)
        for seq, path in self.paths.items():
            assert self.cells.tokens(seq).tolist() == path


TestPool = Pool.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=30)
