"""Who holds which KV cells: the accounting of a unified pool, and the search for shared prefixes.

Pure. A sequence is a path of spans; sequences that start alike share the spans of their common
part, and a cell counts once however many hold it. A sequence is live (a run computes in it),
parked (its run was put aside) or cached (its run is over; kept for whoever starts the same way).
Prefixes are only ever shared within one owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]

TRIM_CELLS = 64
"""Cached sequences lose their tails in steps of this size, so that room lasts for a while."""


class Holding(Enum):
    """What a sequence's cells are held for."""

    LIVE = auto()  # a running run
    PARKED = auto()  # a run that was put aside and comes back
    CACHED = auto()  # nobody yet


@dataclass(slots=True, eq=False)
class _Span:
    """Cells side by side in a path, all held by the same sequences."""

    start: int
    length: int
    seqs: set[int]

    @property
    def end(self) -> int:
        return self.start + self.length


@dataclass(slots=True, eq=False)
class _Sequence:
    owner: str
    holding: Holding
    touched: int
    ids: Ids = field(default_factory=lambda: np.empty(256, np.int32))
    length: int = 0
    exact: int = 0  # leading tokens that were computed in bit-equal steps only
    spans: list[_Span] = field(default_factory=list)

    @property
    def tokens(self) -> Ids:
        return self.ids[: self.length]

    def add(self, tokens: Sequence[int] | Ids) -> None:
        end = self.length + len(tokens)
        if end > self.ids.size:
            grown = np.empty(max(end, 2 * self.ids.size), np.int32)
            grown[: self.length] = self.tokens
            self.ids = grown
        self.ids[self.length : end] = tokens
        self.length = end


@dataclass(frozen=True, slots=True)
class Match:
    """The longest resident prefix: the first `length` tokens of `seq`."""

    seq: int
    length: int


@dataclass(frozen=True, slots=True)
class Cut:
    """The sequence now has `length` tokens; 0: it is gone and its id is free."""

    seq: int
    length: int


def common_length(a: Ids, b: Ids) -> int:
    """How many leading ids are equal."""
    n = min(a.size, b.size)
    if not n or a[0] != b[0]:
        return 0
    differ = a[:n] != b[:n]
    first = int(differ.argmax())
    return first if differ[first] else n


class Cells:
    """Accounting over `total` cells and `n_seqs` sequence ids."""

    def __init__(self, total: int, n_seqs: int, *, can_cut: bool = True) -> None:
        self.total = total
        self.can_cut = can_cut
        self._n_seqs = n_seqs
        self._ids = list(range(n_seqs - 1, -1, -1))
        self._open: dict[int, _Sequence] = {}
        self._used = 0
        self._cached: int | None = 0  # None: count again
        self._clock = 0

    # ---- reading ------------------------------------------------------------------------------

    @property
    def used(self) -> int:
        return self._used

    @property
    def free(self) -> int:
        return self.total - self._used

    @property
    def cached(self) -> int:
        """Cells that only cached sequences hold: what eviction can give back."""
        if self._cached is None:
            self._cached = sum(span.length for span in self._spans() if self._evictable(span))
        return self._cached

    @property
    def ids_free(self) -> int:
        return len(self._ids)

    def length(self, seq: int) -> int:
        return self._open[seq].length

    def exact(self, seq: int) -> int:
        return self._open[seq].exact

    def owner(self, seq: int) -> str:
        return self._open[seq].owner

    def holding(self, seq: int) -> Holding:
        return self._open[seq].holding

    def tokens(self, seq: int) -> Ids:
        return self._open[seq].tokens

    def lengths(self) -> dict[int, int]:
        """Of every sequence that there is."""
        return {seq: held.length for seq, held in self._open.items()}

    def held(self) -> list[int]:
        """The sequences of live and parked runs, in order."""
        return sorted(seq for seq, s in self._open.items() if s.holding is not Holding.CACHED)

    def private(self, seq: int) -> int:
        """Cells at the sequence's end that nobody else holds."""
        count = 0
        for span in reversed(self._open[seq].spans):
            if len(span.seqs) > 1:
                break
            count += span.length
        return count

    def pinned_by(self, match: Match) -> int:
        """How many evictable cells stop being so once a live sequence shares the match."""
        return sum(
            min(span.end, match.length) - span.start
            for span in self._open[match.seq].spans
            if span.start < match.length and self._evictable(span)
        )

    def sharing(self) -> list[tuple[int, int, int]]:
        """(sequence, base, n) for every sequence that has cells: it shares its first n with
        `base`, which comes earlier in the list; n is 0 where it shares none."""
        rank = {seq: n for n, seq in enumerate(self._open)}
        found = []
        for seq, held in self._open.items():
            base, shared = seq, 0
            for span in held.spans:
                first = min(span.seqs, key=rank.__getitem__)
                if first == seq:
                    break
                base, shared = first, span.end
            if held.length:
                found.append((seq, base, shared))
        return found

    def match(self, owner: str, tokens: Ids, *, exact: bool = False) -> Match | None:
        """The resident sequence that shares most with `tokens`, at most all but the last one
        (whose logits are needed). `exact`: only what was computed in bit-equal steps."""
        best: Match | None = None
        limit = tokens.size - 1
        for seq, held in self._open.items():
            if held.owner != owner:
                continue
            longest = min(limit, held.exact if exact else held.length)
            if longest <= (best.length if best else 0):
                continue
            shared = common_length(held.tokens[:longest], tokens)
            if not self.can_cut and shared < held.length:
                continue  # such a sequence can only be gone on with as a whole
            if shared > (best.length if best else 0):
                best = Match(seq, shared)
        return best

    # ---- changing -----------------------------------------------------------------------------

    def open(self, owner: str) -> int:
        """A new empty live sequence. There must be a free id."""
        assert self._ids, "no sequence id is free"
        seq = self._ids.pop()
        self._open[seq] = _Sequence(owner, Holding.LIVE, self._tick())
        return seq

    def fork(self, source: int, length: int) -> int:
        """A new live sequence with the first `length` tokens of another, sharing its cells."""
        origin = self._open[source]
        assert 0 < length <= origin.length, "a fork takes what is there"
        origin.touched = self._tick()
        seq = self.open(origin.owner)
        made = self._open[seq]
        made.add(origin.tokens[:length])
        made.exact = min(length, origin.exact)
        self._split(origin, length)
        for span in origin.spans:
            if span.start >= length:
                break
            span.seqs.add(seq)
            made.spans.append(span)
        self._cached = None
        return seq

    def hold(self, seq: int, holding: Holding) -> None:
        """Changes what the sequence is held for and marks it as just used."""
        held = self._open[seq]
        held.holding = holding
        held.touched = self._tick()
        self._cached = None

    def append(self, seq: int, tokens: Sequence[int] | Ids, *, exact: bool = False) -> None:
        """Tokens that were computed. There must be room for them."""
        held = self._open[seq]
        count = len(tokens)
        assert count <= self.free, "more cells than there are"
        if exact and held.exact == held.length:
            held.exact += count
        last = held.spans[-1] if held.spans else None
        if last is None or len(last.seqs) > 1:
            held.spans.append(_Span(held.length, count, {seq}))
        else:
            last.length += count
        held.add(tokens)
        self._used += count
        if held.holding is not Holding.LIVE:
            self._cached = None

    def cut(self, seq: int, length: int) -> None:
        """Shortens the sequence; its id stays taken even at 0."""
        held = self._open[seq]
        if length >= held.length:
            return
        self._split(held, length)
        while held.spans and held.spans[-1].start >= length:
            span = held.spans.pop()
            span.seqs.discard(seq)
            if not span.seqs:
                self._used -= span.length
        held.length = length
        held.exact = min(held.exact, length)
        self._cached = None

    def close(self, seq: int) -> None:
        """Gives the sequence's cells and id back."""
        self.cut(seq, 0)
        del self._open[seq]
        self._ids.append(seq)
        self._cached = None

    def evict(self, cells: int, before: Callable[[int], None] = lambda seq: None) -> list[Cut]:
        """Takes at least `cells` from cached sequences if they have so many, the longest unused
        first and tails before heads. Returns what was cut, for the model to follow; `before` is
        told each sequence while it is still whole."""
        cuts: list[Cut] = []
        for seq in self._cached_by_age():
            if cells <= 0:
                break
            before(seq)
            used = self._used
            cuts.append(self._trim(seq, cells))
            cells -= used - self._used
        return cuts

    def evict_id(self, before: Callable[[int], None] = lambda seq: None) -> Cut | None:
        """Frees the id of the cached sequence unused for longest; None when there is none."""
        for seq in self._cached_by_age():
            before(seq)
            self.close(seq)
            return Cut(seq, 0)
        return None

    def check_integrity(self) -> None:
        """Raises AssertionError unless cells in = cells out."""
        spans = list(self._spans())
        assert self._used == sum(span.length for span in spans), "used cells are miscounted"
        assert 0 <= self._used <= self.total, "more cells than there are"
        assert sorted([*self._ids, *self._open]) == list(range(self._n_seqs)), "an id is lost"
        for seq, held in self._open.items():
            at = 0
            for span in held.spans:
                assert span.start == at and span.length > 0, "a path has a gap"
                assert seq in span.seqs, "a span does not know its sequence"
                at = span.end
            assert at == held.length and held.exact <= held.length, "a path has another length"
        for span in spans:
            first, *others = (self._open[seq] for seq in span.seqs)
            for other in others:
                same = np.array_equal(first.ids[: span.end], other.ids[: span.end])
                assert same, "a cell is shared by sequences that differ"
        counted = self._cached
        self._cached = None
        assert counted in (None, self.cached), "cached cells are miscounted"

    # ---- inside -------------------------------------------------------------------------------

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    def _spans(self) -> Iterator[_Span]:
        """Every span once."""
        for seq, held in self._open.items():
            for span in held.spans:
                if seq == min(span.seqs):
                    yield span

    def _evictable(self, span: _Span) -> bool:
        return all(self._open[seq].holding is Holding.CACHED for seq in span.seqs)

    def _cached_by_age(self) -> list[int]:
        cached = [seq for seq, s in self._open.items() if s.holding is Holding.CACHED]
        return sorted(cached, key=lambda seq: self._open[seq].touched)

    def _trim(self, seq: int, cells: int) -> Cut:
        """Cuts the private tail as far as needed; what others hold anyway goes with it."""
        private = self.private(seq)
        wanted = -(-cells // TRIM_CELLS) * TRIM_CELLS
        if not self.can_cut or wanted >= private:
            self.close(seq)
            return Cut(seq, 0)
        length = self.length(seq) - wanted
        self.cut(seq, length)
        return Cut(seq, length)

    def _split(self, held: _Sequence, at: int) -> None:
        """Makes `at` a border between spans."""
        for span in held.spans:
            if span.start < at < span.end:
                tail = _Span(at, span.end - at, set(span.seqs))
                span.length = at - span.start
                for seq in span.seqs:
                    spans = self._open[seq].spans
                    spans.insert(spans.index(span) + 1, tail)
                return
