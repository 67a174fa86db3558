"""Drafts: what a run may say next, where computing it at once should pay.

Pure. The longest recent stretch of a run's tokens that occurred earlier, in its own tokens or in
its owner's late replies, is followed there; the tokens after it are the draft. Every token that a
run draws shows whether its match was right, so acceptance is known before a row is spent on it.
A second source, a draft model, may be dear where matches are free: it drafts where its promise
is the better one, its own time counted. A draft is made where it should pay by what rows were
measured to cost, and only as long as it could fail without having cost the run more than
`LOSS_SHARE` of its time.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hobnob.server.engine.pacing import Pace
from hobnob.server.engine.recall import (
    CANDIDATES,
    COMPARED_TOKENS,
    KEY_TOKENS,
    Recall,
    Recalled,
    Words,
    common,
    key_of,
)

READ_TOKENS = 512
"""Tokens that are read in a step (under a millisecond): a long prompt takes several."""

ROWS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Sizes of a step with drafts, the run's own row included: a few, to be measured each."""
LOSS_SHARE = 0.05
"""Of a run's time may be lost with drafts at most."""
GAIN_MIN = 1.1
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

_ROW_SHARE = 0.6  # of a step with one row: what a drafted row is thought to cost at first
_WEIGHT = 0.2  # of the newest measurement
_FADE = 0.95  # of what was known about acceptance, with every token
_PRIORS = (0.4, 0.6, 0.75, 0.85)  # acceptance after matches of 4, 8, 16, 32 tokens and more
_PRIOR_WEIGHT = 4.0


class Suffixes:
    """Where the end of a growing list of tokens occurred before. Memory is linear in its length,
    and so is the time, over all calls."""

    def __init__(self, tokens: Sequence[int]) -> None:
        """`tokens` is only ever added to."""
        self._tokens = tokens
        self._read = 0
        self._latest: dict[int, int] = {}  # hash of KEY_TOKENS tokens: where they last ended
        self._before = array("i", [0])  # by where such tokens end: where they ended before
        self._next = 0  # the token after the earlier occurrence
        self.length = 0
        """Tokens of the match; 0: there is none."""

    @property
    def behind(self) -> int:
        """Tokens not read yet."""
        return len(self._tokens) - self._read

    def read(self) -> bool | None:
        """Takes the next token. Whether the match foretold it; None when there was none."""
        token = self._tokens[self._read]
        foretold = self._tokens[self._next] == token if self.length else None
        self._read += 1
        end = self._read
        if foretold:
            self._next += 1
            self.length += 1
        else:
            self.length = 0
        before = 0
        if end >= KEY_TOKENS:
            key = key_of(self._tokens, end)
            before = self._latest.get(key, 0)
            self._latest[key] = end
        self._before.append(before)
        return foretold

    def search(self) -> None:
        """Looks for a longer match than the one that is followed."""
        if self.length >= COMPARED_TOKENS:
            return
        at = self._before[self._read]
        for _ in range(CANDIDATES):
            if not at:
                return
            length = common(self._tokens, self._read, self._tokens, at)
            if length > max(self.length, KEY_TOKENS - 1):
                self.length, self._next = length, at
            at = self._before[at]

    def draft(self, most: int) -> list[int]:
        """What followed the match; it may run on into itself."""
        drafted: list[int] = []
        end = len(self._tokens)
        while self.length and len(drafted) < most:
            at = self._next + len(drafted)
            drafted.append(self._tokens[at] if at < end else drafted[at - end])
        return drafted


@dataclass(slots=True)
class Trust:
    """How often a source, or its matches of one class of lengths, foretold the next token."""

    prior: float
    hits: float = 0.0
    tries: float = 0.0

    def see(self, hit: bool) -> None:
        self.hits = self.hits * _FADE + hit
        self.tries = self.tries * _FADE + 1.0

    def __float__(self) -> float:
        return (self.hits + self.prior * _PRIOR_WEIGHT) / (self.tries + _PRIOR_WEIGHT)


class Drafter:
    """What is known of one run: its matches, how good they are, and what drafts have gained."""

    def __init__(self, tokens: Sequence[int], n_prompt: int, owner: str = "") -> None:
        self.owner = owner
        self.tokens = tokens
        self.n_prompt = n_prompt
        self._suffixes = Suffixes(tokens)
        self._recalled = Recalled()
        self._first = len(tokens)
        self._read = 0
        self._trust = [Trust(prior) for prior in _PRIORS]
        self._trust_recalled = [Trust(prior) for prior in _PRIORS]
        self.gained_s = 0.0
        """By drafts; below 0: lost."""
        self.lent_s = 0.0
        """May be spent on taking in the prompt, beside what was gained."""
        self.source: Source | None = None
        """Whose draft was computed last."""

    @property
    def drawn(self) -> int:
        """Tokens of the reply since it was first asked."""
        return len(self.tokens) - self._first

    def prefilled(self, seconds: float) -> None:
        """So long it took to read its prompt: time of the run, of which a share may be lost."""
        self.lent_s = LOSS_SHARE * seconds

    def pay(self, seconds: float) -> None:
        """For what a source took in."""
        lent = min(self.lent_s, seconds)
        self.lent_s -= lent
        self.gained_s -= seconds - lent

    def read(self, words: Words | None = None) -> bool:
        """Reads what has been added, within a bound; `words`: the owner's. False: there is more."""
        suffixes = self._suffixes
        for _ in range(min(READ_TOKENS, suffixes.behind)):
            length = suffixes.length
            foretold = suffixes.read()
            self._read += 1
            if words is not None and self._read >= self.n_prompt:
                self._recall(words)
            if self._read <= self.n_prompt:
                if not suffixes.behind:
                    suffixes.search()
                continue
            if foretold is not None:
                self._trust[_class(length)].see(foretold)
            suffixes.search()
        return not suffixes.behind

    def _recall(self, words: Words) -> None:
        length = self._recalled.length
        foretold = self._recalled.read(self.tokens, self._read, words)
        if foretold is not None:
            self._trust_recalled[_class(length)].see(foretold)

    @property
    def acceptance(self) -> float:
        """How likely the match's next token is the one that will be drawn; 0 without a match."""
        return max(self._chances)

    def draft(self, most: int) -> list[int]:
        """By the likelier of the two matches, the run's own where they are alike."""
        own, recalled = self._chances
        return self._recalled.draft(most) if recalled > own else self._suffixes.draft(most)

    @property
    def _chances(self) -> tuple[float, float]:
        own, recalled = self._suffixes.length, self._recalled.length
        return (
            float(self._trust[_class(own)]) if own else 0.0,
            float(self._trust_recalled[_class(recalled)]) if recalled else 0.0,
        )


def _class(length: int) -> int:
    return min((length // KEY_TOKENS).bit_length() - 1, len(_PRIORS) - 1)


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


class Source(Protocol):
    """Where drafts come from. What it costs beside its rows it says before, and takes no more."""

    spent_s: float = 0.0
    """In all, so far."""

    def chance(self, drafter: Drafter) -> float:
        """How likely the next token that it drafts is right; 0: it has none."""

    def draft(self, drafters: Sequence[Drafter], most: int) -> list[list[int]]:
        """Up to so many tokens for each, at once."""

    def seconds(self, drafters: int, tokens: int) -> float:
        """That so many tokens for each of so many runs take."""
        return 0.0

    def follow(self, drafter: Drafter, seconds: float) -> bool:
        """Takes in what the run said, spending so much at most. Whether that was all of it."""
        return True

    def learn(self, drafter: Drafter, drafted: int, accepted: int) -> None:
        """What became of a draft."""
        return

    def left(self, drafter: Drafter) -> None:
        """The run is over."""
        return

    def doubt(self) -> None:
        """What was learnt long ago may not hold any more."""
        return


class Lookup(Source):
    """What the run, or its owner's late replies, said before: free, and judged with each token."""

    def __init__(self) -> None:
        self._recall = Recall()

    def chance(self, drafter: Drafter) -> float:
        return drafter.acceptance

    def draft(self, drafters: Sequence[Drafter], most: int) -> list[list[int]]:
        return [drafter.draft(most) for drafter in drafters]

    def follow(self, drafter: Drafter, seconds: float) -> bool:
        return drafter.read(self._recall.of(drafter.owner))

    def ended(self, drafter: Drafter) -> None:
        """The reply is whole: its owner may say the like again."""
        self._recall.ended(drafter.owner, drafter.tokens, drafter.n_prompt)

    def remember(self) -> None:
        """Takes in a little of what has ended."""
        self._recall.learn()


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
        plan = self._by_model(asked, decodes, most)
        if plan is not None:
            return plan
        rows, drafts = decodes, list[list[int]]()
        for drafter, own in asked:
            draft = self.propose(drafter, decodes, rows, min(own, most - (rows - decodes)))
            rows += len(draft)
            drafts.append(draft)
        return drafts

    def propose(self, drafter: Drafter, decodes: int, rows: int, most: int) -> list[int]:
        """Up to `most` tokens looked up, for a step that has so many decodes and rows."""
        tokens, _ = self._looked_up(drafter, decodes, rows, most)
        if not tokens:
            return []
        drafter.source = self._lookup
        return self._cut(self._lookup.draft([drafter], tokens)[0])

    def _looked_up(self, drafter: Drafter, decodes: int, rows: int, most: int) -> tuple[int, float]:
        """How many tokens are best looked up for the run, and how many of them may be right."""
        if not self._lookup.follow(drafter, 0.0) or self._since_plain >= PLAIN_EVERY:
            return 0, 0.0
        chance = self._lookup.chance(drafter)
        plain = self._costs.of(decodes, decodes)
        if not chance or plain is None:
            return 0, 0.0
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
        return tokens, _expected(chance, tokens)

    def _by_model(
        self, asked: Sequence[tuple[Drafter, int]], decodes: int, most: int
    ) -> list[list[int]] | None:
        """The draft model's for the runs whose tokens it knows, where that promises more than
        what can be looked up. None: it does not."""
        plain = self._costs.of(decodes, decodes)
        if self._model is None or plain is None or self._since_plain >= PLAIN_EVERY:
            return None
        able = [(i, own) for i, (drafter, own) in enumerate(asked) if self._able(drafter, own)]
        least = self._promise(asked, decodes, most, plain)
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
        self, asked: Sequence[tuple[Drafter, int]], decodes: int, most: int, plain: float
    ) -> float:
        """Tokens a second that looking up promises, and the least that others must."""
        rows, right = decodes, 0.0
        for drafter, own in asked:
            more, expected = self._looked_up(
                drafter, decodes, rows, min(own, most - (rows - decodes))
            )
            rows, right = rows + more, right + expected
        cost = self._costs.of(decodes, rows) or plain
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
