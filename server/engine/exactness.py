"""Which step sizes give the same logits whatever shares the step: measured on the loaded model.

Kernels change with the number of rows (on x86 CPUs flash attention goes by tiles from 64 rows
on), and with them the last bits of the logits. A run that is to be repeatable byte for byte may
only share steps that are small enough.
"""

from __future__ import annotations

import time

import numpy as np

from hobnob.server.engine.model import Chunk, Logits, Model, Outcome

LADDER_ROWS = (63, 31, 15, 7)
"""Sizes to try, the largest first."""

PROMPT_TOKENS = 24
PATIENCE_SECONDS = 3.0
"""A model so slow that the probe takes longer is taken as having no exact steps."""


def probe(model: Model, n_vocab: int, rows_max: int, threads: int) -> int:
    """The largest size on the ladder that is bit-equal; 0: none, or not known in time. The
    model's sequences 0 and 1 are used and left empty."""
    began = time.monotonic()
    prompt = [(7 * i * i + 11 * i + 3) % n_vocab for i in range(PROMPT_TOKENS)]
    alone = _logits(model, prompt, PROMPT_TOKENS, 1, threads)
    for rows in LADDER_ROWS:
        if rows > rows_max or alone is None:
            continue
        if time.monotonic() - began > PATIENCE_SECONDS:
            return 0
        # in ragged chunks, and beside others in a step of exactly so many rows
        beside = _logits(model, prompt, 7, rows, threads)
        if beside is not None and np.array_equal(alone, beside):
            return rows
    return 0


def _logits(model: Model, prompt: list[int], chunk: int, rows: int, threads: int) -> Logits | None:
    """Logits after the prompt, computed in such chunks and a last step with so many rows."""
    last = len(prompt) - 1
    outcomes = []
    for at in range(0, last, chunk):
        part = Chunk(0, at, prompt[at : min(at + chunk, last)])
        outcomes.append(model.decode([part], threads).outcome)
    step = [Chunk(0, last, prompt[last:], 1)]
    if rows > 1:
        step.insert(0, Chunk(1, 0, (prompt * rows)[: rows - 1]))
    decoded = model.decode(step, threads)
    outcomes.append(decoded.outcome)
    found = decoded.logits[0].copy() if decoded.logits.size else None
    model.cut(0, 0)
    model.cut(1, 0)
    return found if all(outcome is Outcome.OK for outcome in outcomes) else None
