"""1, 4, 8 and 16 replies at once, nothing shared: what the step loop is worth."""

from __future__ import annotations

import math

from bench import statistics
from bench.capacity import (
    BF16_VALUES,
    BF16_VALUES_PYTHON,
    HOBNOB,
    LLAMA_CPP_PYTHON,
    LLAMA_SERVER,
    LLAMA_SERVER_SAME,
)
from bench.scenario import (
    Bar,
    Measure,
    Measurement,
    Metric,
    Scenario,
    Trial,
    answered,
    failures,
    variants,
)
from bench.servers import Server

PROMPT_TOKENS = 48
CELLS_PER_STREAM = 512
FLAGS = ("--no-kv-unified", f"--no-kv-unified {BF16_VALUES}", f"--kv-unified {BF16_VALUES}")
PYTHON_VARIANTS = variants(LLAMA_CPP_PYTHON, "--flash_attn true", BF16_VALUES_PYTHON)


def _measure(streams: int) -> Measure:
    async def measure(server: Server, trial: Trial) -> Measurement:
        length = trial.size(256, 64) if streams == 1 else trial.size(160, 48)
        questions = trial.questions(streams, PROMPT_TOKENS)
        replies = await server.client.together(questions, length)
        done = [reply for reply in replies if reply.arrivals]
        if not done:
            return Measurement({}, notes=failures(replies))
        wall = max(reply.arrivals[-1] for reply in done) - min(reply.sent for reply in done)
        tokens = [reply.completion_tokens for reply in done]
        gaps = [gap for reply in done for gap in reply.gaps]
        return Measurement(
            {
                "decode": statistics.overlap_rate([r.arrivals for r in done], tokens),
                "aggregate": sum(tokens) / wall,
                "first": max(reply.first_token_s for reply in replies) * 1000,
                "gap": statistics.median(gaps) * 1000,
                "worst": max(gaps, default=math.nan) * 1000,
                "answered": answered(replies),
            },
            prompt_tokens=done[0].prompt_tokens,
            notes=failures(replies),
        )

    return measure


def _scenario(streams: int, bar: float | None) -> Scenario:
    limit = None if bar is None else Bar(bar, at_least=True, of_ratio=True)
    one = streams == 1
    rates = [
        Metric("decode", "tokens/s while all decode", "t/s", bar=limit if one else None),
        Metric("aggregate", "tokens/s, prompts included", "t/s", bar=None if one else limit),
    ]
    return Scenario(
        name=f"streams-{streams}",
        title="Single stream" if one else f"{streams} streams",
        about=f"{streams} {'reply' if one else 'replies at once'}, prompts of {PROMPT_TOKENS} "
        f"tokens, {256 if one else 160} tokens each.",
        streams=streams,
        cells=CELLS_PER_STREAM * max(streams, 4),
        measure=_measure(streams),
        metrics=[
            *(rates if one else reversed(rates)),
            Metric("first", "slowest first token", "ms", higher_is_better=False, digits=0),
            Metric("gap", "median gap", "ms", higher_is_better=False),
            Metric("worst", "worst gap", "ms", higher_is_better=False, digits=0),
        ],
        contestants={
            HOBNOB: variants(HOBNOB),
            LLAMA_SERVER: variants(LLAMA_SERVER, *FLAGS),
            LLAMA_SERVER_SAME: variants(LLAMA_SERVER_SAME, *FLAGS),
            # One reply at a time: the others wait in line.
            **({LLAMA_CPP_PYTHON: PYTHON_VARIANTS} if streams == 1 else {}),
        },
    )


SCENARIOS = [_scenario(1, 0.97), _scenario(4, None), _scenario(8, 1.0), _scenario(16, 1.0)]
