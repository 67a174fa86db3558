"""Eight streams while another program keeps one core busy."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bench.capacity import BF16_VALUES, HOBNOB, LLAMA_SERVER
from bench.load import Reply
from bench.scenario import Bar, Measurement, Metric, Scenario, Trial, failures, variants
from bench.servers import Server

STREAMS = 8
SETTLE_SECONDS = 0.5


@contextmanager
def _busy_core() -> Iterator[None]:
    """Not pinned and of the usual priority: a compiler, say."""
    program = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        program.kill()
        program.wait()


def _tokens_per_s(replies: list[Reply]) -> float:
    done = [reply for reply in replies if reply.arrivals]
    if not done:
        return float("nan")
    wall = max(reply.arrivals[-1] for reply in done) - min(reply.sent for reply in done)
    return sum(reply.completion_tokens for reply in done) / wall


async def _measure(server: Server, trial: Trial) -> Measurement:
    length = trial.size(96, 32)
    questions = trial.questions(2 * STREAMS, 32)
    quiet = await server.client.together(questions[:STREAMS], length, seed=trial.seed)
    with _busy_core():
        await asyncio.sleep(SETTLE_SECONDS)
        busy = await server.client.together(questions[STREAMS:], length, seed=trial.seed)
    idle_rate, busy_rate = _tokens_per_s(quiet), _tokens_per_s(busy)
    return Measurement(
        {"busy": busy_rate, "idle": idle_rate, "share": busy_rate / idle_rate},
        prompt_tokens=quiet[0].prompt_tokens,
        notes=failures([*quiet, *busy]),
    )


SCENARIO = Scenario(
    name="busy-core",
    title="8 streams beside one busy core",
    about="A program that only computes runs on one core, of the usual priority, not pinned.",
    streams=STREAMS,
    cells=STREAMS * 512,
    measure=_measure,
    metrics=[
        Metric("busy", "tokens/s beside it", "t/s"),
        Metric("idle", "tokens/s without it", "t/s"),
        Metric(
            "share",
            "beside it ÷ without it",
            "",
            digits=2,
            bar=Bar(0.6, at_least=True, of_ratio=False),
        ),
    ],
    contestants={
        HOBNOB: variants(HOBNOB),
        LLAMA_SERVER: [
            *variants(
                LLAMA_SERVER,
                f"--no-kv-unified {BF16_VALUES}",
                f"--no-kv-unified {BF16_VALUES} --threads 1",
            ),
        ],
    },
)
