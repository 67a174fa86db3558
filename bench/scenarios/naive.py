"""Iteration-level scheduling against batches of whole requests, on the same engine."""

from __future__ import annotations

import random

from bench import statistics
from bench.capacity import Variant
from bench.engine import EngineServer
from bench.scenario import Measurement, Metric, Scenario, Trial

ROWS = 16
PROMPT_TOKENS = 48
WORKER = ("hobnob.server.engine.worker",)
BASELINE = ("bench.whole_requests",)


def _lengths(trial: Trial, count: int) -> list[int]:
    """Few are long, as replies are: exponential, 8 to 320 tokens, 64 in the mean."""
    rng = random.Random(trial.seed)
    return [min(320, 8 + int(rng.expovariate(1 / 56))) for _ in range(count)]


async def _measure(server: EngineServer, trial: Trial) -> Measurement:
    count = trial.size(3 * ROWS, ROWS + 4)
    texts = [trial.texts.prose(PROMPT_TOKENS, trial.seed * 1000 + n) for n in range(count)]
    prompts = [trial.texts.tokens(text) for text in texts]
    lengths = _lengths(trial, count)
    runs, _ = await server.run(prompts, lengths, trial.seed)
    ends = [run.ended for run in runs if run.ended is not None and run.failure is None]
    firsts = [run.arrivals[0] for run in runs if run.arrivals]
    return Measurement(
        {
            "tokens": sum(len(run.arrivals) for run in runs) / max(ends),
            "completion": statistics.median(ends),
            "first": statistics.median(firsts),
            "answered": len(ends),
        },
        prompt_tokens=runs[0].prompt_tokens,
        notes=[run.failure for run in runs if run.failure],
    )


SCENARIO = Scenario(
    name="naive",
    title="Against batches of whole requests",
    about=f"{3 * ROWS} requests at once, {ROWS} rows, replies of 8–320 tokens (64 in the mean). "
    "The same engine process; the baseline's scheduler takes nobody in until its batch has ended.",
    streams=ROWS,
    cells=ROWS * 512,
    measure=_measure,
    metrics=[
        Metric("tokens", "tokens/s", "t/s"),
        Metric("completion", "median time to the end of a reply", "s", False, 2),
        Metric("first", "median time to first token", "s", False, 2),
    ],
    contestants={
        "iteration-level": [Variant("iteration-level", WORKER)],
        "whole requests": [Variant("whole requests", BASELINE)],
    },
)
