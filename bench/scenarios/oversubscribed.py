"""Sixteen replies that need three times the cells there are."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench.capacity import BF16_VALUES, HOBNOB, LLAMA_SERVER, Variant
from bench.load import Messages, Reply
from bench.scenario import (
    Bar,
    Measurement,
    Metric,
    Scenario,
    Trial,
    answered,
    failures,
    variants,
)
from bench.servers import Server

RUNS = 16
PROMPT_TOKENS = 128
REPLY_TOKENS = 224
TEMPLATE_TOKENS = 32
CELLS = 2048
FITTING = CELLS // (PROMPT_TOKENS + REPLY_TOKENS + TEMPLATE_TOKENS)


async def _measure(server: Server, trial: Trial) -> Measurement:
    questions = trial.questions(2 * RUNS, PROMPT_TOKENS)
    started = time.perf_counter()
    replies = await server.client.together(questions[:RUNS], REPLY_TOKENS, seed=trial.seed)
    total = time.perf_counter() - started
    values = {
        "total": total if answered(replies) == RUNS else float("inf"),
        "answered": answered(replies),
        "tokens": sum(reply.completion_tokens for reply in replies) / total,
    }
    if server.ours:
        groups = await _in_groups(server, questions[RUNS:], trial.seed)
        values["over_groups"] = total / groups
    return Measurement(values, replies[0].prompt_tokens, failures(replies))


async def _in_groups(server: Server, questions: Sequence[Messages], seed: int) -> float:
    """Seconds for as many runs as fit at a time, one group after the other."""
    started = time.perf_counter()
    replies: list[Reply] = []
    for at in range(0, len(questions), FITTING):
        group = questions[at : at + FITTING]
        replies += await server.client.together(group, REPLY_TOKENS, seed=seed)
    return time.perf_counter() - started if answered(replies) == len(questions) else float("nan")


def _most_slots(*flags: str, streams: int | None = None) -> Variant:
    return Variant(LLAMA_SERVER, flags, streams=streams)


SCENARIO = Scenario(
    name="oversubscribed",
    title="16 runs need 3 times the cells",
    about=f"{CELLS} cells; each run needs about {PROMPT_TOKENS + REPLY_TOKENS + TEMPLATE_TOKENS} "
    f"of them. “Groups” is hobnob itself, {FITTING} runs at a time.",
    streams=RUNS,
    cells=CELLS,
    measure=_measure,
    metrics=[
        Metric("total", "time until all are answered", "s", False, 1),
        Metric(
            "answered",
            "answered, of 16",
            digits=0,
            bar=Bar(RUNS, at_least=True, of_ratio=False),
        ),
        Metric("tokens", "tokens/s", "t/s"),
        Metric(
            "over_groups",
            "time ÷ time in fitting groups",
            "×",
            False,
            2,
            bar=Bar(1.25, at_least=False, of_ratio=False),
        ),
    ],
    contestants={
        HOBNOB: variants(HOBNOB),
        LLAMA_SERVER: [
            _most_slots("--kv-unified", *BF16_VALUES.split()),
            _most_slots("--kv-unified", *BF16_VALUES.split(), streams=FITTING),
            _most_slots("--no-kv-unified", *BF16_VALUES.split(), streams=FITTING),
        ],
    },
)
