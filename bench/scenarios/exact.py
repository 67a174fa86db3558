"""What exact mode costs: kinds of cells and steps chosen so that logits depend on no neighbours."""

from __future__ import annotations

from bench.capacity import BF16_VALUES, HOBNOB, LLAMA_SERVER, Variant
from bench.scenario import Bar, Measurement, Metric, Scenario, Trial, failures, variants
from bench.servers import Server
from bench.texts import user

PROMPT_TOKENS = 1900
REPLY_TOKENS = 64

INEXACT = "hobnob, inexact"
"""With what reads prompts soonest where no bits need be the same again (docs/decisions/0007)."""


async def _measure(server: Server, trial: Trial) -> Measurement:
    size = trial.size(PROMPT_TOKENS, 600)
    options = {"exact": server.name != INEXACT} if server.ours else {}
    reply = await server.client.chat(
        user(trial.texts.prose(size, trial.seed * 1000)), REPLY_TOKENS, **options
    )
    return Measurement(
        {
            "prompt": reply.prompt_tokens / reply.first_token_s,
            "decode": reply.decode_tps,
            "total": reply.ended - reply.sent,
        },
        prompt_tokens=reply.prompt_tokens,
        notes=failures([reply]),
    )


SCENARIO = Scenario(
    name="exact",
    title="Exact mode",
    about=f"A prompt of {PROMPT_TOKENS} tokens and a reply of {REPLY_TOKENS}, alone. “Inexact” "
    "has keys and values of one type, so that llama.cpp reads prompts by tiles of rows.",
    streams=4,
    cells=8192,
    measure=_measure,
    metrics=[
        Metric("prompt", "prompt tokens/s", "t/s", bar=Bar(0.8, True, True, INEXACT)),
        Metric("decode", "reply tokens/s after it", "t/s"),
        Metric("total", "whole reply", "s", False, 2),
    ],
    contestants={
        HOBNOB: variants(HOBNOB),
        INEXACT: [Variant(INEXACT, environment={"HOBNOB_KV_TYPE": "f16"})],
        LLAMA_SERVER: variants(LLAMA_SERVER, "--kv-unified", f"--kv-unified {BF16_VALUES}"),
    },
)
