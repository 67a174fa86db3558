"""Texts that no repetition reaches across, as the token sequences that DRY looks for.

A token whose text holds the breaker is one by itself; a token whose text ends with the breaker's
beginning is one together with the tokens of the rest (KoboldCpp pull request 982).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Breakers = frozenset[tuple[int, ...]]

_REMEMBERED = 256  # texts
_REST_MAX = 20  # tokens after the first


class BreakerFinder:
    """Of one vocabulary. The step thread's: it takes the texts of all tokens when the first run
    needs them (0.2 s for 49,000), and a few milliseconds for a text that it has not met."""

    def __init__(
        self,
        n_vocab: int,
        spelled: Callable[[int], bytes],
        tokenize: Callable[[str], list[int]],
    ) -> None:
        self._n_vocab = n_vocab
        self._spelled = spelled
        self._tokenize = tokenize
        self._of = functools.lru_cache(_REMEMBERED)(self._sequences)

    def find(self, texts: Sequence[str]) -> Breakers:
        return frozenset(sequence for text in texts for sequence in self._of(text.encode()))

    @functools.cached_property
    def _pieces(self) -> list[bytes]:
        return [self._spelled(id) for id in range(self._n_vocab)]

    @functools.cached_property
    def _joined(self) -> tuple[bytes, NDArray[np.intp]]:
        """All texts as one, and where each of them ends."""
        return b"".join(self._pieces), np.cumsum([len(piece) for piece in self._pieces])

    def _sequences(self, text: bytes) -> frozenset[tuple[int, ...]]:
        whole = self._holding(text)
        found: set[tuple[int, ...]] = {(id,) for id in whole}
        for at in range(1, len(text)):
            ending = [id for id in self._ending(text[:at]) if id not in whole]
            if ending:
                rest = self._tokenize(text[at:].decode("utf-8", "replace"))[:_REST_MAX]
                found.update((id, *rest) for id in ending)
        return frozenset(found)

    def _holding(self, text: bytes) -> set[int]:
        joined, ends = self._joined
        starts = [hit.start() for hit in re.finditer(b"(?=%b)" % re.escape(text), joined)]
        ids = np.searchsorted(ends, starts, side="right")
        return set(ids[np.array(starts, np.intp) + len(text) <= ends[ids]].tolist())

    def _ending(self, text: bytes) -> Iterator[int]:
        """Tokens whose text ends with this. Most are ruled out by their last two bytes."""
        bytes_, ends = self._bytes, self._joined[1]
        likely = bytes_[ends - 1] == text[-1]
        if len(text) > 1:
            likely &= bytes_[ends - 2] == text[-2]
        for id in np.flatnonzero(likely).tolist():
            if self._pieces[id].endswith(text):
                yield id

    @functools.cached_property
    def _bytes(self) -> NDArray[np.uint8]:
        return np.frombuffer(self._joined[0], np.uint8)
