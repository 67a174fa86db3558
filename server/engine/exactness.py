"""Which step sizes give the same logits whatever shares the step: measured on the loaded model.

Kernels change with the number of rows (on x86 CPUs flash attention goes by tiles from 64 rows
on), and with them the last bits of the logits. A run that is to be repeatable byte for byte may
only share steps that are small enough.

What is tried of each size N: a prompt of 24 tokens, read in steps of 7 rows and of 2 and followed
by one of exactly N rows, against the same prompt read at once and followed by a step of one row.
Where that is equal, all steps of up to N rows are taken to be. Sizes in between and long prompts
are tried by the tests, on the starter model: at every load it would take too long.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from hobnob.server.engine.model import Chunk, Logits, Model, Outcome

LADDER_ROWS = (128, 63, 31, 15, 7)
"""Sizes to try, the largest first. Larger steps read a prompt hardly faster on a CPU."""

PROMPT_TOKENS = 24
PATIENCE_SECONDS = 20.0
"""A model so slow that the probe takes longer is taken as having no exact steps."""


@dataclass(frozen=True, slots=True)
class Probed:
    exact_rows: int
    """The largest size on the ladder that is bit-equal; 0: none, or not known in time."""
    step: tuple[int, float]
    """Rows and seconds of the largest step: a first idea of what rows cost."""


def probe(model: Model, n_vocab: int, rows_max: int, threads: int) -> Probed:
    """Uses the model's sequences 0 and 1, and leaves in them what it computed last."""
    began = time.monotonic()
    prompt = [(7 * i * i + 11 * i + 3) % n_vocab for i in range(PROMPT_TOKENS)]
    alone, seconds = _logits(model, prompt, PROMPT_TOKENS, 1, threads)
    step = (1, seconds)
    for rows in LADDER_ROWS:
        if rows > rows_max or alone is None or time.monotonic() - began > PATIENCE_SECONDS:
            continue
        # in ragged chunks, and beside others in a step of exactly so many rows
        beside, seconds = _logits(model, prompt, 7, rows, threads)
        step = max(step, (rows, seconds))
        if beside is not None and np.array_equal(alone, beside):
            return Probed(rows, step)
    return Probed(0, step)


def _logits(
    model: Model, prompt: list[int], chunk: int, rows: int, threads: int
) -> tuple[Logits | None, float]:
    """Logits after the prompt, computed in such chunks and a last step with so many rows; and
    the seconds of that step."""
    model.cut(0, 0)
    model.cut(1, 0)
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
    fine = all(outcome is Outcome.OK for outcome in outcomes)
    return (found if fine else None), decoded.seconds
