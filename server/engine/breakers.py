"""DRY's sequence breakers: texts that no repetition reaches across, as the tokens that DRY meets.

A token whose text holds the breaker is one by itself; a token whose text ends with the breaker's
beginning is one together with the tokens of the rest (KoboldCpp pull request 982). Each is told
of a token when it is met: nothing is made of the whole vocabulary.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

REST_MAX = 20
"""Tokens after the first that are compared."""

_REMEMBERED = 1024  # rests, of all runs

Rest = tuple[int, ...]


class Breakers:
    """Of one run. Costs a few microseconds for each different token that it is asked about."""

    def __init__(
        self,
        texts: Sequence[bytes],
        spelled: Callable[[int], bytes],
        rest: Callable[[bytes], Rest],
    ) -> None:
        self._texts = texts
        self._spelled = spelled
        self._rest = rest
        self._known: dict[int, Sequence[Rest]] = {}

    def after(self, token: int) -> Sequence[Rest]:
        """What makes a breaker if it follows the token, the longest first. Nothing may be among
        it: the token is one by itself."""
        known = self._known.get(token)
        if known is None:
            known = self._known[token] = self._found(self._spelled(token))
        return known

    def _found(self, piece: bytes) -> Sequence[Rest]:
        found: set[Rest] = set()
        for text in self._texts:
            if text in piece:
                found.add(())
            elif text[0] in piece:
                begun = range(1, min(len(piece), len(text) - 1) + 1)
                found.update(self._rest(text[n:]) for n in begun if piece.endswith(text[:n]))
        return sorted(found, key=len, reverse=True)


class BreakerFinder:
    """Of one vocabulary. The step thread's."""

    def __init__(
        self, spelled: Callable[[int], bytes], tokenize: Callable[[str], list[int]]
    ) -> None:
        self._spelled = spelled
        self._tokenize = tokenize
        self._rest = functools.lru_cache(_REMEMBERED)(self._tokens)

    def find(self, texts: Sequence[str]) -> Breakers:
        return Breakers([text.encode() for text in texts], self._spelled, self._rest)

    def _tokens(self, text: bytes) -> Rest:
        return tuple(self._tokenize(text.decode("utf-8", "replace"))[:REST_MAX])


NONE = Breakers((), lambda _: b"", lambda _: ())
