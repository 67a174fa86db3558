"""What an owner's replies said of late, and what followed there: kept within a bound. Pure.

The idea is SuffixDecoding's (NeurIPS 2025), with hashes of short stretches in the place of its
tree: adding a token and following a match cost the same however much is kept. Two halves are
kept of each owner; when the younger one is full, the elder one is forgotten at once. Nobody's
words are ever looked up for another: how fast a reply comes would tell what somebody else wrote.
"""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass

KEY_TOKENS = 4
"""The shortest match; occurrences of so many tokens are looked up."""
CANDIDATES = 8
"""Earlier occurrences that are compared, the latest first."""
COMPARED_TOKENS = 64
"""So far back; what is followed may have become longer."""
HALF_TOKENS = 16_384
"""An owner's recent words: between one and two times so many."""
OWNERS = 8
"""Whose words are kept: those that were used last."""
REPLY_TOKENS = 4096
"""Of one reply, at its end."""
WAITING_REPLIES = 16
"""Replies that have ended and were not taken in yet."""
LEARNT_TOKENS = 64
"""Taken in with a step."""

_BREAK = -1  # between two replies
_MULTIPLIER = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def key_of(tokens: Sequence[int], end: int) -> int:
    """A hash of the KEY_TOKENS tokens before `end`."""
    key = 0
    for id in tokens[end - KEY_TOKENS : end]:
        key = ((key + id + 1) * _MULTIPLIER) & _MASK
    return key


def common(tokens: Sequence[int], end: int, others: Sequence[int], at: int) -> int:
    """How many of the others before `at` are the tokens before `end`."""
    n, most = 0, min(COMPARED_TOKENS, end, at)
    while n < most and others[at - 1 - n] == tokens[end - 1 - n]:
        n += 1
    return n


class Half:
    """Tokens one after the other, and where each stretch of KEY_TOKENS ended before."""

    def __init__(self) -> None:
        self.tokens = array("i")
        self._latest: dict[int, int] = {}
        self._before = array("i", [0])
        self._groups: list[tuple[int, str]] = []
        """Where the words of a conversation begin; they go on to where the next ones do."""

    def add(self, token: int, group: str = "") -> None:
        if not self._groups or self._groups[-1][1] != group:
            self._groups.append((len(self.tokens), group))
        self.tokens.append(token)
        end, before = len(self.tokens), 0
        if end >= KEY_TOKENS:
            key = key_of(self.tokens, end)
            before = self._latest.get(key, 0)
            self._latest[key] = end
        self._before.append(before)

    def ends(self, key: int) -> list[int]:
        """Where such a stretch ended, the latest first."""
        found: list[int] = []
        at = self._latest.get(key, 0)
        while at and len(found) < CANDIDATES:
            found.append(at)
            at = self._before[at]
        return found

    def forget(self, group: str) -> None:
        """Puts breaks in the place of the conversation's words, which are not found any more."""
        borders = [*(start for start, _ in self._groups), len(self.tokens)]
        for (start, its), end in zip(self._groups, borders[1:], strict=True):
            if its == group:
                self._blank(start, end)
        self._groups = [(start, "" if its == group else its) for start, its in self._groups]

    def _blank(self, start: int, end: int) -> None:
        for at in range(min(end + KEY_TOKENS - 1, len(self.tokens)), start, -1):
            key = key_of(self.tokens, at) if at >= KEY_TOKENS else None
            if key is None or self._latest.get(key) != at:
                continue
            before = self._before[at]
            while before and _BREAK in self.tokens[before - KEY_TOKENS : before]:  # blanked
                before = self._before[before]
            if before:
                self._latest[key] = before
            else:
                del self._latest[key]
        self.tokens[start:end] = array("i", [_BREAK] * (end - start))


Place = tuple[Half, int]
"""The token that comes next there."""


class Words:
    """Of one owner."""

    def __init__(self) -> None:
        self._young, self._old = Half(), Half()

    def __len__(self) -> int:
        return len(self._young.tokens) + len(self._old.tokens)

    def add(self, token: int, group: str = "") -> None:
        if len(self._young.tokens) >= HALF_TOKENS:
            self._young, self._old = Half(), self._young
        self._young.add(token, group)

    def forget(self, group: str) -> None:
        """Of the conversation nothing is found any more."""
        for half in (self._young, self._old):
            half.forget(group)

    def find(self, tokens: Sequence[int], end: int) -> tuple[int, list[Place]]:
        """The longest match of the tokens before `end`, and everywhere that it goes on."""
        best, places = KEY_TOKENS, list[Place]()
        if end < KEY_TOKENS:
            return 0, places
        key = key_of(tokens, end)
        for half in (self._young, self._old):
            for at in half.ends(key):
                length = common(tokens, end, half.tokens, at)
                if length < best or not _goes_on(half, at):
                    continue
                if length > best:
                    best, places = length, []
                places.append((half, at))
        return (best if places else 0), places


def _goes_on(half: Half, at: int) -> bool:
    return at < len(half.tokens) and half.tokens[at] != _BREAK


class Recalled:
    """Where the end of one growing reply stands in its owner's words."""

    def __init__(self) -> None:
        self.length = 0
        """Tokens of the match; 0: there is none."""
        self._places: list[Place] = []

    def read(self, tokens: Sequence[int], end: int, words: Words) -> bool | None:
        """Takes the token before `end`. Whether it was foretold; None when nothing was."""
        token = tokens[end - 1]
        foretold = self._guess(self._places) == token if self._places else None
        followed = [(half, at + 1) for half, at in self._places if half.tokens[at] == token]
        self._places = [place for place in followed if _goes_on(*place)]
        self.length = self.length + 1 if self._places else 0
        if not self._places:
            self.length, self._places = words.find(tokens, end)
        return foretold

    def draft(self, most: int) -> list[int]:
        """At each place what followed most often, of what the match and the draft leave."""
        drafted: list[int] = []
        places = [place for place in self._places if _goes_on(*place)]  # not forgotten since
        while places and len(drafted) < most:
            token = self._guess(places)
            drafted.append(token)
            followed = [(half, at + 1) for half, at in places if half.tokens[at] == token]
            places = [place for place in followed if _goes_on(*place)]
        return drafted

    @staticmethod
    def _guess(places: Sequence[Place]) -> int:
        """The most frequent next token; of equally frequent ones the latest."""
        if len(places) == 1:
            half, at = places[0]
            return half.tokens[at]
        return Counter(half.tokens[at] for half, at in places).most_common(1)[0][0]


@dataclass(slots=True)
class _Reply:
    """One that has ended and is being taken in."""

    owner: str
    group: str
    tokens: array[int]
    learnt: int = 0


class Recall:
    """The words of the owners that were served last. Memory: OWNERS × 2 × HALF_TOKENS tokens."""

    def __init__(self) -> None:
        self._owners: OrderedDict[str, Words] = OrderedDict()
        self._ended: deque[_Reply] = deque(maxlen=WAITING_REPLIES)

    def of(self, owner: str) -> Words | None:
        """None where the owner has said nothing yet."""
        return self._owners.get(owner)

    def ended(self, owner: str, tokens: Sequence[int], start: int, group: str = "") -> None:
        """A reply that begins at `start`; its tokens are taken in over the next steps. A little
        of what led to it comes along, by which the same reply is known from its first token."""
        start = max(0, start - COMPARED_TOKENS, len(tokens) - REPLY_TOKENS)
        self._ended.append(_Reply(owner, group, array("i", [*tokens[start:], _BREAK])))

    def learn(self, most: int = LEARNT_TOKENS) -> None:
        """Takes in so many tokens of what has ended."""
        while self._ended and most > 0:
            reply = self._ended[0]
            words = self._words(reply.owner)
            part = reply.tokens[reply.learnt : reply.learnt + most]
            for token in part:
                words.add(token, reply.group)
            most -= len(part)
            reply.learnt += len(part)
            if reply.learnt == len(reply.tokens):
                self._ended.popleft()

    def forget(self, group: str) -> None:
        """The conversation was deleted: nothing that was said in it is drafted again."""
        kept = [reply for reply in self._ended if reply.group != group]
        self._ended = deque(kept, maxlen=WAITING_REPLIES)
        for words in self._owners.values():
            words.forget(group)

    def _words(self, owner: str) -> Words:
        words = self._owners.setdefault(owner, Words())
        self._owners.move_to_end(owner)
        if len(self._owners) > OWNERS:
            self._owners.popitem(last=False)
        return words
