"""What the step loop costs beside llama.cpp, and how many held cells are of use."""

from __future__ import annotations

import asyncio
import random

from bench import native, statistics
from bench.capacity import HOBNOB, Variant
from bench.engine import EngineServer
from bench.scenario import (
    Bar,
    Measurement,
    Metric,
    Scenario,
    Trial,
    failures,
    variants,
)
from bench.servers import Server

STREAMS = 16
POLL_SECONDS = 0.1
ENGINE = "hobnob's engine alone"


async def _overhead(server: Server, trial: Trial) -> Measurement:
    """From the status, as the last step stands there, while all sixteen decode."""
    questions = trial.questions(STREAMS, 32)
    together = asyncio.create_task(
        server.client.together(questions, trial.size(160, 48), seed=trial.seed)
    )
    steps: dict[int, tuple[float, float]] = {}
    while not together.done():
        found = await native.status(server.client)
        step = found["step"]
        if found["sequences"]["running"] == STREAMS and found["sequences"]["waiting"] == 0:
            steps[step["count"]] = (step["decode_s"], step["overhead_s"])
        await asyncio.sleep(POLL_SECONDS)
    replies = await together
    shares = [overhead / (decode + overhead) for decode, overhead in steps.values()]
    return Measurement(
        {
            "share": statistics.median(shares) * 100,
            "overhead": statistics.median([o for _, o in steps.values()]) * 1000,
            "decode": statistics.median([d for d, _ in steps.values()]) * 1000,
            "steps": len(steps),
        },
        prompt_tokens=replies[0].prompt_tokens,
        notes=failures(replies),
    )


async def _cells(server: EngineServer, trial: Trial) -> Measurement:
    """Of each step with at least two live runs: tokens that live runs need ÷ cells that nobody
    else can have (cached prefixes are given up at once, so they are not held)."""
    rng = random.Random(trial.seed)
    count = trial.size(3 * STREAMS, STREAMS + 4)
    texts = [trial.texts.prose(rng.randrange(16, 200), trial.seed * 1000 + n) for n in range(count)]
    prompts = [trial.texts.tokens(text) for text in texts]
    lengths = [rng.randrange(8, 96) for _ in prompts]
    runs, moments = await server.run(prompts, lengths, trial.seed)
    shares = []
    for moment in moments:
        held = moment.stats.cells_used - moment.stats.cells_cached
        # A run that is being read holds cells too, but its tokens so far are not told.
        if moment.live_runs >= 2 and moment.live_runs == moment.stats.running:
            shares.append(moment.live_tokens / held)
    return Measurement(
        {
            "share": statistics.median(shares),
            "least": min(shares, default=float("nan")),
            "steps": len(shares),
        },
        prompt_tokens=runs[0].prompt_tokens,
        notes=[run.failure for run in runs if run.failure],
    )


SCENARIOS = [
    Scenario(
        name="overhead",
        title="Engine overhead at 16 sequences",
        about="Everything of a step that is not llama_decode with its synchronisation, to the "
        "beginning of the next one: commands and frames too. From /status while 16 streams are "
        "served over HTTP.",
        streams=STREAMS,
        cells=STREAMS * 512,
        measure=_overhead,
        metrics=[
            Metric(
                "share",
                "of the step",
                "%",
                False,
                1,
                bar=Bar(5, at_least=False, of_ratio=False),
            ),
            Metric("overhead", "a step, outside llama.cpp", "ms", False, 2),
            Metric("decode", "a step, inside llama.cpp", "ms", False),
            Metric("steps", "steps looked at", digits=0),
        ],
        contestants={HOBNOB: variants(HOBNOB)},
    ),
    Scenario(
        name="cells",
        title="Cells live ÷ cells held, 16 mixed streams",
        about=f"{3 * STREAMS} runs of mixed lengths over 16 sequences, engine process alone. "
        "Above 1 where sequences share cells.",
        streams=STREAMS,
        cells=STREAMS * 512,
        measure=_cells,
        metrics=[
            Metric(
                "share",
                "live ÷ held, median over steps",
                digits=3,
                bar=Bar(0.96, at_least=True, of_ratio=False),
            ),
            Metric("least", "live ÷ held, worst step", digits=3),
            Metric("steps", "steps looked at", digits=0),
        ],
        contestants={ENGINE: [Variant(ENGINE, ("hobnob.server.engine.worker",))]},
        timed=False,
    ),
]
