"""A prompt of 1,900 tokens arrives among four streams that are being read."""

from __future__ import annotations

import asyncio
import math
import time

from bench import statistics
from bench.capacity import BF16_VALUES, HOBNOB, LLAMA_SERVER
from bench.load import Reply
from bench.scenario import Bar, Measurement, Metric, Scenario, Trial, failures, variants
from bench.servers import Server
from bench.texts import user

STREAMS = 4
LONG_TOKENS = 1900
BEFORE_TOKENS = 40
"""Each stream has had so many deltas before the long prompt comes."""
REPLY_TOKENS = 1200
"""More than they will get: they are cut when the long prompt has been answered."""
POLL_SECONDS = 0.01


async def _measure(server: Server, trial: Trial) -> Measurement:
    texts, seed = trial.texts, trial.seed * 1000
    alone = await server.client.chat(user(texts.prose(LONG_TOKENS, seed + 500)), 8)
    started = [
        server.client.start(question, REPLY_TOKENS, seed=seed + n)
        for n, question in enumerate(trial.questions(STREAMS, 32))
    ]
    streams, tasks = [s for s, _ in started], [task for _, task in started]
    try:
        while min(stream.seen for stream in streams) < BEFORE_TOKENS:
            if any(task.done() for task in tasks):
                break  # failed, and says so below
            await asyncio.sleep(POLL_SECONDS)
        arrived = time.perf_counter()
        reply = await server.client.chat(user(texts.prose(LONG_TOKENS, seed + 501)), 8)
        ended = time.perf_counter()
        await asyncio.sleep(0.5)  # what was held back while it was read
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return _result(alone, streams, reply, arrived, ended)


def _result(
    alone: Reply, streams: list[Reply], reply: Reply, arrived: float, ended: float
) -> Measurement:
    before: list[float] = []
    worst = 0.0
    for stream in streams:
        if not stream.arrivals:
            return Measurement({}, notes=failures([alone, reply, *streams]))
        before += statistics.gaps_within(stream.arrivals, stream.arrivals[0], arrived)
        worst = max(worst, statistics.worst_gap_touching(stream.arrivals, arrived, ended))
    usual = statistics.median(before)
    during = [g for s in streams for g in statistics.gaps_within(s.arrivals, arrived, ended)]
    return Measurement(
        {
            "over_usual": worst / usual,
            "worst": worst * 1000,
            "usual": usual * 1000,
            "during": statistics.median(during) * 1000 if during else math.inf,
            "first": reply.first_token_s,
            "over_alone": reply.first_token_s / alone.first_token_s,
        },
        prompt_tokens=alone.prompt_tokens,
        notes=failures([alone, reply]) + [s.error for s in streams if s.error],
        series={
            "gaps": [
                [round(when - arrived, 4), round(gap, 4)]
                for stream in streams
                for when, gap in zip(stream.arrivals[1:], stream.gaps, strict=True)
            ],
            "answered_s": round(ended - arrived, 4),
        },
    )


def _less(key: str, title: str, unit: str, digits: int, bar: float | None = None) -> Metric:
    limit = None if bar is None else Bar(bar, at_least=False, of_ratio=False)
    return Metric(key, title, unit, higher_is_better=False, digits=digits, bar=limit)


SCENARIO = Scenario(
    name="long-prompt",
    title="A 1,900-token prompt arrives among 4 streams",
    about="Each of 4 streams has had 40 tokens when the prompt comes. Gaps are those of the 4 "
    "streams, from the prompt's arrival to the end of its reply of 8 tokens.",
    streams=STREAMS + 1,
    cells=8192,
    measure=_measure,
    metrics=[
        _less("over_usual", "worst gap ÷ median gap before", "×", 1, bar=4),
        _less("worst", "worst gap", "ms", 0),
        _less("usual", "median gap before", "ms", 1),
        _less("during", "median gap meanwhile", "ms", 0),
        _less("first", "its own first token", "s", 2),
        _less("over_alone", "its first token ÷ alone", "×", 2, bar=1.5),
    ],
    contestants={
        HOBNOB: variants(HOBNOB),
        # A small batch bounds the gap and slows every prompt: both ends are tried.
        LLAMA_SERVER: variants(
            LLAMA_SERVER,
            "--kv-unified",
            f"--kv-unified {BF16_VALUES} --batch-size 128 --ubatch-size 128",
            f"--kv-unified {BF16_VALUES} --batch-size 32 --ubatch-size 32",
        ),
    },
)
