"""What exact mode costs: steps kept small enough that their logits do not depend on neighbours."""

from __future__ import annotations

from bench.capacity import HOBNOB
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
from bench.texts import user

PROMPT_TOKENS = 1900


async def _measure(server: Server, trial: Trial) -> Measurement:
    seed = trial.seed * 1000
    size = trial.size(PROMPT_TOKENS, 600)
    usual = await server.client.chat(user(trial.texts.prose(size, seed)), 4, exact=False)
    exact = await server.client.chat(user(trial.texts.prose(size, seed + 1)), 4, exact=True)
    rates = [reply.prompt_tokens / reply.first_token_s for reply in (usual, exact)]
    return Measurement(
        {"usual": rates[0], "exact": rates[1], "share": rates[1] / rates[0]},
        prompt_tokens=usual.prompt_tokens,
        notes=failures([usual, exact]),
    )


SCENARIO = Scenario(
    name="exact",
    title="Exact mode",
    about=f"A prompt of {PROMPT_TOKENS} tokens, alone, with and without `exact`.",
    streams=4,
    cells=8192,
    measure=_measure,
    metrics=[
        Metric("exact", "prompt tokens/s, exact", "t/s"),
        Metric("usual", "prompt tokens/s", "t/s"),
        Metric(
            "share",
            "exact ÷ usual",
            "",
            digits=2,
            bar=Bar(0.8, at_least=True, of_ratio=False),
        ),
    ],
    contestants={HOBNOB: variants(HOBNOB)},
)
