"""A scripted `Model`: its logits depend on a sequence's tokens alone, so neighbours cannot matter.

It refuses what llama.cpp refuses (wrong positions, too many rows, no cells), and can be told to
break on a token: POISON makes the whole batch invalid, CRASH breaks the computation off halfway,
NAN gives unusable logits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from hobnob.server.engine.model import Chunk, Decoded, Logits, Outcome, State

N_VOCAB = 64
EOG = 0
POISON = 61
CRASH = 62
NAN = 63
PLAIN = range(1, 61)


def logits_after(tokens: Sequence[int]) -> Logits:
    """The row that follows these tokens; the last four ids are never likely."""
    seed = hashlib.blake2b(bytes(tokens), digest_size=8).digest()
    row = np.random.default_rng(int.from_bytes(seed)).normal(0, 2, N_VOCAB).astype(np.float32)
    row[POISON - 1 :] = -100
    if tokens[-1] == NAN:
        row[:] = np.nan
    return row


def greedy(prompt: Sequence[int], n: int, *, eog: bool = True) -> list[int]:
    """What the model says at temperature 0, alone and undisturbed."""
    tokens = list(prompt)
    while len(tokens) - len(prompt) < n:
        row = logits_after(tokens)
        if not eog:
            row[EOG] = -np.inf
        token = int(row.argmax())
        if token == EOG:
            break
        tokens.append(token)
    return tokens[len(prompt) :]


class FakeModel:
    def __init__(
        self,
        n_cells: int,
        n_seqs: int,
        *,
        rows: int = 32,
        can_cut: bool = True,
        ordered: bool = False,
    ) -> None:
        self.can_cut = can_cut
        self.ordered = ordered
        self.top = 0
        self.n_cells = n_cells
        self.rows = rows
        self.saves = True
        self.hidden_cells = 0  # taken behind the accounting's back
        self.steps: list[list[Chunk]] = []
        self.threads: list[int] = []
        self.seconds_per_row = 0.0
        self._seqs: dict[int, list[int]] = {seq: [] for seq in range(n_seqs)}  # cells in use
        self._token: dict[int, int] = {}

    # ---- Model --------------------------------------------------------------------------------

    def decode(self, chunks: Sequence[Chunk], threads: int, *, exact: bool = False) -> Decoded:
        none: Logits = np.empty((0, N_VOCAB), np.float32)
        self.steps.append(list(chunks))
        self.threads.append(threads)
        rows = sum(len(chunk.tokens) for chunk in chunks)
        seconds = rows * self.seconds_per_row
        assert 0 < rows <= self.rows, "llama.cpp would have ended the process"
        for chunk in chunks:
            assert chunk.start == self.length(chunk.seq), "a gap in a sequence"
        if any(POISON in chunk.tokens for chunk in chunks):
            return Decoded(Outcome.REFUSED, none, seconds)
        if rows > self._fillable():
            return Decoded(Outcome.NO_ROOM, none, seconds)
        found = []
        for chunk in chunks:
            for n, token in enumerate(chunk.tokens):
                if token == CRASH:
                    return Decoded(Outcome.FAILED, none, seconds)
                self._seqs[chunk.seq].append(self._cell(token))
                if n >= len(chunk.tokens) - chunk.outputs:
                    found.append(logits_after(self.tokens(chunk.seq)))
        return Decoded(Outcome.OK, np.array(found) if found else none, seconds)

    def length(self, seq: int) -> int:
        return len(self._seqs[seq])

    def cut(self, seq: int, length: int) -> bool:
        if length and length < self.length(seq) and not self.can_cut:
            return False
        del self._seqs[seq][length:]
        self._collect()
        return True

    def copy(self, source: int, target: int, length: int) -> None:
        assert not self._seqs[target] and 0 < length <= self.length(source)
        assert self.can_cut or length == self.length(source)
        self._seqs[target] = self._seqs[source][:length]

    def reaches(self, seq: int, length: int) -> bool:
        return True

    def clear(self) -> None:
        for cells in self._seqs.values():
            cells.clear()
        self._token.clear()
        self.top = 0

    def save(self, seq: int, start: int, end: int | None = None) -> State | None:
        if not self.saves:
            return None
        assert self.can_cut or (start == 0 and end in (None, self.length(seq)))
        tokens = self.tokens(seq)[start:end]
        return np.array([start, *tokens], np.int32).view(np.uint8)

    def restore(self, seq: int, state: State) -> bool:
        start, *tokens = state.view(np.int32).tolist()
        if start != self.length(seq) or len(tokens) > self._fillable():
            return False
        self._seqs[seq] += [self._cell(token) for token in tokens]
        return True

    # ---- for tests ----------------------------------------------------------------------------

    @property
    def used(self) -> int:
        return len(self._token)

    def tokens(self, seq: int) -> list[int]:
        return [self._token[cell] for cell in self._seqs[seq]]

    def check_order(self) -> None:
        """Every sequence lies in its own order, if that is promised."""
        for cells in self._seqs.values():
            assert not self.ordered or cells == sorted(cells), "a sequence is out of order"

    def _fillable(self) -> int:
        return self.n_cells - self.hidden_cells - (self.top if self.ordered else self.used)

    def _cell(self, token: int) -> int:
        if self.ordered:
            cell = self.top
        else:
            cell = next(cell for cell in range(self.n_cells) if cell not in self._token)
        self.top += 1
        self._token[cell] = token
        return cell

    def _collect(self) -> None:
        held = {cell for cells in self._seqs.values() for cell in cells}
        self._token = {cell: token for cell, token in self._token.items() if cell in held}
