"""The arrays of a llama_batch, made once and filled through numpy."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from hobnob.server.engine.model import Chunk


class Batch:
    def __init__(self, raw: Any, rows: int) -> None:
        """`raw`: a llama_batch, to hold at most so many rows."""
        self._token = np.zeros(rows, np.int32)
        self._pos = np.zeros(rows, np.int32)
        self._seq = np.zeros(rows, np.int32)
        self._output = np.zeros(rows, np.int8)
        self._one = np.ones(rows, np.int32)  # each row belongs to one sequence
        first = self._seq.ctypes.data
        self._seq_at = np.arange(first, first + 4 * rows, 4, dtype=np.uintp)
        self._counting = np.arange(rows, dtype=np.int32)
        self._batch = raw
        int32 = ctypes.POINTER(ctypes.c_int32)
        self._batch.token = self._token.ctypes.data_as(int32)
        self._batch.pos = self._pos.ctypes.data_as(int32)
        self._batch.n_seq_id = self._one.ctypes.data_as(int32)
        self._batch.seq_id = self._seq_at.ctypes.data_as(ctypes.POINTER(int32))
        self._batch.logits = self._output.ctypes.data_as(ctypes.POINTER(ctypes.c_int8))

    def fill(self, chunks: Sequence[Chunk]) -> Any:
        """The llama_batch, with these rows in it. It is not checked that they fit."""
        at = 0
        for chunk in chunks:
            end = at + len(chunk.tokens)
            self._token[at:end] = chunk.tokens
            self._pos[at:end] = self._counting[: end - at]
            self._pos[at:end] += chunk.start
            self._seq[at:end] = chunk.seq
            self._output[at:end] = 0
            if chunk.outputs:
                self._output[end - chunk.outputs : end] = 1
            at = end
        self._batch.n_tokens = at
        return self._batch
