"""What is known of one run: where it said its last words before, and what drafts have gained it.

Pure. The longest recent stretch of a run's tokens that occurred earlier, in its own tokens or in
its owner's late replies, is followed there, also over a small change; the tokens after it are the
draft. Every token that a run draws shows whether its matches were right, so acceptance is known
before a row is spent on it.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hobnob.server.engine.recall import (
    CANDIDATES,
    COMPARED_TOKENS,
    KEY_TOKENS,
    Recalled,
    Words,
    common,
    key_of,
)
from hobnob.server.engine.resumed import BROKEN_TOKENS, Resumed

if TYPE_CHECKING:
    from hobnob.server.engine.sources import Source

READ_TOKENS = 512
"""Tokens that are read in a step (under a millisecond): a long prompt takes several."""

LOSS_SHARE = 0.05
"""Of a run's time may be lost with drafts at most."""

_FADE = 0.95  # of what was known about acceptance, with every token
_PRIORS = (0.4, 0.6, 0.75, 0.85)  # acceptance after matches of 4, 8, 16, 32 tokens and more
_PRIOR_RESUMED = 0.6
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

    @property
    def expected(self) -> int:
        """The place of the token that the match foretells."""
        return self._next

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
    """Of one run: its matches, how good they are, and what drafts have gained."""

    def __init__(
        self, tokens: Sequence[int], n_prompt: int, owner: str = "", group: str = ""
    ) -> None:
        self.owner = owner
        self.group = group
        self.tokens = tokens
        self.n_prompt = n_prompt
        self._suffixes = Suffixes(tokens)
        self._recalled = Recalled()
        self._resumed = Resumed(tokens)
        self._first = len(tokens)
        self._read = 0
        self._trust = [Trust(prior) for prior in _PRIORS]
        self._trust_recalled = [Trust(prior) for prior in _PRIORS]
        self._trust_resumed = Trust(_PRIOR_RESUMED)
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
            length, expected = suffixes.length, suffixes.expected
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
            if foretold is False and length >= BROKEN_TOKENS:
                self._resumed.broke(expected)
            self._resume()
            suffixes.search()
        return not suffixes.behind

    def _resume(self) -> None:
        foretold = self._resumed.read(self._read)
        if foretold is not None:
            self._trust_resumed.see(foretold)

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
        """By the likeliest of the matches, the run's own where they are alike."""
        own, recalled, resumed = self._chances
        if resumed > max(own, recalled):
            return self._resumed.draft(most)
        return self._recalled.draft(most) if recalled > own else self._suffixes.draft(most)

    @property
    def _chances(self) -> tuple[float, float, float]:
        own, recalled = self._suffixes.length, self._recalled.length
        return (
            float(self._trust[_class(own)]) if own else 0.0,
            float(self._trust_recalled[_class(recalled)]) if recalled else 0.0,
            float(self._trust_resumed) if self._resumed.length else 0.0,
        )


def _class(length: int) -> int:
    return min((length // KEY_TOKENS).bit_length() - 1, len(_PRIORS) - 1)
