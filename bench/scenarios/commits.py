"""What it costs that no token is shown before the transaction that holds it has committed."""

from __future__ import annotations

import asyncio

from bench import native, statistics
from bench.capacity import HOBNOB, Variant
from bench.scenario import Bar, Measurement, Metric, Scenario, Trial, answered, failures, variants
from bench.servers import Server

STREAMS = 8
PROMPT_TOKENS = 48
UNLOGGED = "hobnob, commits stubbed out"


async def _measure(server: Server, trial: Trial) -> Measurement:
    """Stored conversations: what comes through the OpenAI API is not stored."""
    texts = [question[0]["content"] for question in trial.questions(STREAMS, PROMPT_TOKENS)]
    length = trial.size(256, 48)
    turns = await asyncio.gather(
        *(
            native.send(server.client, native.NEW, text, length, trial.seed + n)
            for n, text in enumerate(texts)
        )
    )
    replies = [turn.reply for turn in turns]
    done = [reply for reply in replies if reply.arrivals]
    tokens = [reply.completion_tokens for reply in done]
    gaps = [gap for reply in done for gap in reply.gaps]
    wall = max(reply.arrivals[-1] for reply in done) - min(reply.sent for reply in done)
    return Measurement(
        {
            "decode": statistics.overlap_rate([reply.arrivals for reply in done], tokens),
            "aggregate": sum(tokens) / wall,
            "gap": statistics.median(gaps) * 1000,
            "worst": max(gaps) * 1000,
            "answered": answered(replies),
        },
        prompt_tokens=replies[0].prompt_tokens,
        notes=failures(replies),
    )


SCENARIO = Scenario(
    name="commit-cost",
    title="Logged before shown, 8 streams",
    about="8 stored conversations at once over the native API, 256 tokens each, beside the same "
    "server that stores nothing of what it generates.",
    streams=STREAMS,
    cells=STREAMS * 512,
    measure=_measure,
    metrics=[
        Metric(
            "decode",
            "tokens/s while all decode",
            "t/s",
            bar=Bar(0.98, at_least=True, of_ratio=True, peer=UNLOGGED),
        ),
        Metric("aggregate", "tokens/s, prompts included", "t/s"),
        Metric("gap", "median gap", "ms", higher_is_better=False, digits=2),
        Metric("worst", "worst gap", "ms", higher_is_better=False, digits=0),
    ],
    contestants={
        HOBNOB: variants(HOBNOB),
        UNLOGGED: [Variant(UNLOGGED, program="bench.unlogged")],
    },
)
