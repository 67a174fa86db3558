"""Drafts: what a run may say next, where computing it at once should pay.

Pure. What can be looked up (drafter.py) is free; a second source, a draft model, may be dear: it
drafts where its promise is the better one, its own time counted. A draft is made where it should
pay by what rows were measured to cost, and only as long as it could fail without having cost the
run more than `LOSS_SHARE` of its time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hobnob.server.engine.drafter import LOSS_SHARE, Drafter
from hobnob.server.engine.pacing import Pace
from hobnob.server.engine.sources import Lookup, Source

ROWS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Sizes of a step with drafts, the run's own row included: a few, to be measured each."""
GAIN_MIN = 1.05
"""Drafts must promise to be so much faster."""
OTHERS_SLOWDOWN = 1.05
"""Beside other runs that decode, a step with drafts may take so much longer."""
STEP_SECONDS = 0.3
"""No step is made longer than this, or than `STEP_SHARE` of a plain one: words come in jerks."""
STEP_SHARE = 5.0
FOLLOW_SHARE = 0.25
"""Of a plain step may be spent in one on what a source has to take in before it can draft."""
PLAIN_EVERY = 16
"""After so many steps with drafts comes a plain one, to know what that costs."""

FORGET_STEPS = 500
"""After so many steps what drafts were measured to cost is doubted, so that a step that something
else slowed down does not keep them out for ever; trying again is within what may be lost."""

_ROW_SHARE = 0.3  # of a step with one row: what a drafted row is thought to cost at first
_WEIGHT = 0.2  # of the newest measurement


@dataclass
class _Costs:
    """Seconds of steps with drafts, as measured against a first idea of them."""

    pace: Pace
    _known: dict[tuple[int, int], float] = field(default_factory=dict)
    _all: float = 1.0

    def of(self, decodes: int, rows: int) -> float | None:
        """Of a step with so many runs that decode and so many rows; None: not known."""
        plain = self.pace.decode_seconds(decodes)
        if plain is None or rows == decodes:
            return plain
        factor = self._known.get((decodes, rows), self._all)
        return max(plain, factor * self._idea(plain, decodes, rows))

    def observe(self, decodes: int, rows: int, seconds: float) -> None:
        plain = self.pace.decode_seconds(decodes)
        if plain is None:
            return
        factor = seconds / self._idea(plain, decodes, rows)
        known = self._known.get((decodes, rows))
        self._known[decodes, rows] = known + _WEIGHT * (factor - known) if known else factor
        self._all += _WEIGHT * (factor - self._all)

    def doubt(self) -> None:
        """What was measured long ago may not hold any more."""
        self._known.clear()
        self._all = (self._all + 1.0) / 2

    @staticmethod
    def _idea(plain: float, decodes: int, rows: int) -> float:
        return plain * (1.0 + _ROW_SHARE * (rows - decodes) / decodes)


class Speculation:
    """Who drafts how much, for all runs of an engine. The step thread's."""

    def __init__(self, pace: Pace, eog: Iterable[int], model: Source | None = None) -> None:
        """`model`: a source for all runs at once."""
        self._costs = _Costs(pace)
        self._lookup = Lookup()
        self._model = model
        self._eog = frozenset(eog)
        self._since_plain = 0
        self._steps = 0
        self.drafted = 0
        """Tokens, since the start."""
        self.accepted = 0

    @property
    def spent_s(self) -> float:
        """By sources, since the start: no part of what steps cost."""
        return self._model.spent_s if self._model is not None else 0.0

    def drafts(
        self, asked: Sequence[tuple[Drafter, int]], decodes: int, most: int
    ) -> list[list[int]]:
        """What may follow in a step of so many decodes, these runs' and others': for each up to
        so many tokens, and `most` together."""
        rows, looked_up = decodes, list[list[int]]()
        for drafter, own in asked:
            draft = self.propose(drafter, decodes, rows, min(own, most - (rows - decodes)))
            rows += len(draft)
            looked_up.append(draft)
        by_model = self._by_model(asked, looked_up, decodes, most)
        return looked_up if by_model is None else by_model

    def propose(self, drafter: Drafter, decodes: int, rows: int, most: int) -> list[int]:
        """Up to `most` tokens looked up, for a step that has so many decodes and rows."""
        tokens = self._best_length(drafter, decodes, rows, most)
        if not tokens:
            return []
        drafter.source = self._lookup
        return self._cut(self._lookup.draft([drafter], tokens)[0])

    def _best_length(self, drafter: Drafter, decodes: int, rows: int, most: int) -> int:
        """How many tokens are best looked up for the run."""
        if not self._lookup.follow(drafter, 0.0) or self._since_plain >= PLAIN_EVERY:
            return 0
        chance = self._lookup.chance(drafter)
        plain = self._costs.of(decodes, decodes)
        if not chance or plain is None:
            return 0
        allowed = self._allowed(drafter, plain)
        longest = self._longest(plain)
        if decodes > 1:
            longest = min(longest, OTHERS_SLOWDOWN * plain)
        best, tokens = GAIN_MIN * decodes / plain, 0
        for size in ROWS:
            extra = size - 1
            cost = self._costs.of(decodes, rows + extra) if extra <= most else None
            if cost is None or cost > longest or cost - plain > allowed:
                break
            gain = (decodes + _expected(chance, extra)) / cost
            if gain > best:
                best, tokens = gain, extra
        return tokens

    def _by_model(
        self,
        asked: Sequence[tuple[Drafter, int]],
        looked_up: Sequence[list[int]],
        decodes: int,
        most: int,
    ) -> list[list[int]] | None:
        """The draft model's for the runs whose tokens it knows, where that promises more than
        what was looked up. None: it does not."""
        plain = self._costs.of(decodes, decodes)
        if self._model is None or plain is None or self._since_plain >= PLAIN_EVERY:
            return None
        able = [(i, own) for i, (drafter, own) in enumerate(asked) if self._able(drafter, own)]
        least = self._promise(asked, looked_up, decodes, plain)
        if not self._length(asked, able, decodes, most, plain, least):
            return None
        able = self._following(asked, able, plain)
        tokens = self._length(asked, able, decodes, most, plain, least)
        if not tokens:
            return None
        drafts: list[list[int]] = [[] for _ in asked]
        before = self._model.spent_s
        found = self._model.draft([asked[i][0] for i, _ in able], tokens)
        share = (self._model.spent_s - before) / len(able)
        for (i, own), draft in zip(able, found, strict=True):
            drafter = asked[i][0]
            drafter.gained_s -= share
            drafter.source = self._model
            drafts[i] = self._cut(draft[:own])
        return drafts

    def _able(self, drafter: Drafter, own: int) -> bool:
        return self._model is not None and own > 0 and self._model.chance(drafter) > 0.0

    def _promise(
        self,
        asked: Sequence[tuple[Drafter, int]],
        looked_up: Sequence[list[int]],
        decodes: int,
        plain: float,
    ) -> float:
        """Tokens a second that what was looked up promises, and the least that others must."""
        right = sum(
            _expected(self._lookup.chance(drafter), len(draft))
            for (drafter, _), draft in zip(asked, looked_up, strict=True)
        )
        cost = self._costs.of(decodes, decodes + sum(map(len, looked_up))) or plain
        return max(GAIN_MIN * decodes / plain, (decodes + right) / cost)

    def _following(
        self, asked: Sequence[tuple[Drafter, int]], able: list[tuple[int, int]], plain: float
    ) -> list[tuple[int, int]]:
        """Those of whom the model knows all; it goes on reading of one that it does not."""
        assert self._model is not None
        left = FOLLOW_SHARE * plain
        known = []
        for i, own in able:
            drafter = asked[i][0]
            before = self._model.spent_s
            allowed = min(left, drafter.lent_s + self._allowed(drafter, plain))
            if self._model.follow(drafter, max(0.0, allowed)):
                known.append((i, own))
            spent = self._model.spent_s - before
            drafter.pay(spent)
            left -= spent
        return known

    def _length(
        self,
        asked: Sequence[tuple[Drafter, int]],
        able: Sequence[tuple[int, int]],
        decodes: int,
        most: int,
        plain: float,
        least: float,
    ) -> int:
        """The best length of the model's drafts for these runs; 0 where they do not pay."""
        if self._model is None or not able:
            return 0
        chances = [self._model.chance(asked[i][0]) for i, _ in able]
        allowed = min(self._allowed(asked[i][0], plain) for i, _ in able)
        alone = len(able) == decodes  # nobody else is in the step
        best, tokens = least, 0
        for size in ROWS:
            extra = size - 1
            cost = self._costs.of(decodes, decodes + extra * len(able))
            if extra * len(able) > most or cost is None:
                break
            cost += self._model.seconds(len(able), extra)
            if cost > self._longest(plain) or (cost - plain) / len(able) > allowed:
                break
            right = [
                _expected(c, min(extra, own)) for c, (_, own) in zip(chances, able, strict=True)
            ]
            slowest = 1.0 + (min(right) if alone else 0.0)
            if cost > OTHERS_SLOWDOWN * plain * slowest:
                continue
            gain = (decodes + sum(right)) / cost
            if gain > best:
                best, tokens = gain, extra
        return tokens

    def _allowed(self, drafter: Drafter, plain: float) -> float:
        """Seconds that a draft may cost the run if all of it is wrong."""
        return drafter.gained_s + LOSS_SHARE * drafter.drawn * plain

    def _longest(self, plain: float) -> float:
        return max(STEP_SECONDS, STEP_SHARE * plain)

    def ended(self, drafter: Drafter) -> None:
        """The reply is whole."""
        self._lookup.ended(drafter)
        self.left(drafter)

    def left(self, drafter: Drafter) -> None:
        """The run is over, whatever became of it."""
        if self._model is not None:
            self._model.left(drafter)

    def forget(self, group: str) -> None:
        """The conversation was deleted."""
        self._lookup.forget(group)
        if self._model is not None:
            self._model.forget(group)

    def observe(self, drafted: Sequence[tuple[Drafter, int, int]], decodes: int, s: float) -> None:
        """What a step of decodes took, without what sources spent. `drafted`: who had how many
        rows more, and how many of these were accepted."""
        self._lookup.remember()
        self._steps += 1
        if not self._steps % FORGET_STEPS:
            self._costs.doubt()
            if self._model is not None:
                self._model.doubt()
        if not drafted:
            self._since_plain = 0
            return
        self._since_plain += 1
        more = sum(rows for _, rows, _ in drafted)
        plain = self._costs.of(decodes, decodes)
        self.drafted += more
        self.accepted += sum(accepted for _, _, accepted in drafted)
        for drafter, rows, accepted in drafted:
            if drafter.source is not None:
                drafter.source.learn(drafter, rows, accepted)
        if plain is None:
            return
        for drafter, rows, accepted in drafted:
            drafter.gained_s += accepted * plain / decodes - (s - plain) * rows / more
        self._costs.observe(decodes, decodes + more, s)

    def _cut(self, draft: list[int]) -> list[int]:
        """Without the end token: the row before it tells as much."""
        for n, token in enumerate(draft):
            if token in self._eog:
                return draft[:n]
        return draft


def _expected(chance: float, drafted: int) -> float:
    """Drafted tokens that are accepted on average."""
    return sum(chance**n for n in range(1, drafted + 1))
