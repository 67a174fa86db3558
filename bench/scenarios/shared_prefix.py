"""Eight streams with one long system prompt, in a cache that cannot hold it eight times."""

from __future__ import annotations

from bench.capacity import BF16_VALUES, HOBNOB, LLAMA_SERVER, Variant
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
from bench.texts import with_system

STREAMS = 8
SYSTEM_TOKENS = 1100
SUFFIX_TOKENS = 10


async def _measure(server: Server, trial: Trial) -> Measurement:
    texts, seed, length = trial.texts, trial.seed * 1000, trial.size(64, 16)
    other = with_system(texts.prose(SYSTEM_TOKENS, seed + 500), texts.prose(SUFFIX_TOKENS, seed))
    cold = await server.client.chat(other, 4)
    system = texts.prose(SYSTEM_TOKENS, seed + 501)
    asked = [with_system(system, texts.prose(SUFFIX_TOKENS, seed + n)) for n in range(STREAMS)]
    replies = await server.client.together(asked, length)
    slowest = max(reply.first_token_s for reply in replies)
    ends = [reply.arrivals[-1] for reply in replies if reply.arrivals]
    return Measurement(
        {
            "answered": answered(replies),
            "slowest": slowest,
            "over_cold": slowest / cold.first_token_s,
            "cold": cold.first_token_s,
            "total": (max(ends) if ends else float("inf")) - replies[0].sent,
        },
        prompt_tokens=cold.prompt_tokens,
        notes=failures([cold, *replies]),
    )


SCENARIO = Scenario(
    name="shared-prefix",
    title="8 streams share a system prompt of 1,100 tokens",
    about="8,192 cells, own suffixes of at most 16 tokens, 64 tokens of reply. "
    "“Cold” is one such prompt alone, unseen before.",
    streams=STREAMS,
    cells=8192,
    measure=_measure,
    metrics=[
        # Failed streams have an infinite first token, so they lose here too.
        Metric("slowest", "slowest first token", "s", higher_is_better=False, digits=2),
        Metric("answered", "answered, of 8", digits=0, bar=Bar(8, at_least=True, of_ratio=False)),
        Metric(
            "over_cold",
            "slowest first token ÷ one cold prefill",
            "×",
            higher_is_better=False,
            digits=2,
            bar=Bar(1.3, at_least=False, of_ratio=False),
        ),
        Metric("total", "time until all are answered", "s", higher_is_better=False, digits=2),
    ],
    contestants={
        HOBNOB: variants(HOBNOB),
        LLAMA_SERVER: [
            Variant(LLAMA_SERVER, ("--kv-unified", *BF16_VALUES.split())),
            Variant(LLAMA_SERVER, ("--kv-unified", *BF16_VALUES.split()), streams=6),
            Variant(LLAMA_SERVER, ("--kv-unified", *BF16_VALUES.split()), streams=4),
            Variant(LLAMA_SERVER, ("--no-kv-unified", *BF16_VALUES.split()), streams=4),
            Variant(LLAMA_SERVER, (), streams=1),
        ],
    },
)
