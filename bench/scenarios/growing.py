"""One conversation that grows: what is known of it is not read again."""

from __future__ import annotations

from bench import statistics
from bench.capacity import BF16_VALUES, BF16_VALUES_PYTHON, HOBNOB, LLAMA_CPP_PYTHON, LLAMA_SERVER
from bench.load import Reply
from bench.scenario import Measurement, Metric, Scenario, Trial, failures, variants
from bench.servers import Server

QUESTION_TOKENS = 40
REPLY_TOKENS = 64


async def _measure(server: Server, trial: Trial) -> Measurement:
    """The client keeps the history, as clients of that API do."""
    turns = trial.size(10, 5)
    history: list[dict[str, str]] = []
    replies: list[Reply] = []
    for turn in range(turns):
        text = trial.texts.prose(QUESTION_TOKENS, trial.seed * 1000 + turn)
        history.append({"role": "user", "content": text})
        reply = await server.client.chat(history, REPLY_TOKENS, seed=trial.seed)
        replies.append(reply)
        if not reply.complete:
            break
        history.append({"role": "assistant", "content": reply.text})
    firsts = [reply.first_token_s for reply in replies[1:]]
    last = replies[-1]
    return Measurement(
        {
            "later": statistics.median(firsts) * 1000,
            "last": last.first_token_s * 1000,
            "total": last.ended - replies[0].sent,
            "cached": last.cached_tokens / max(1, last.prompt_tokens),
        },
        prompt_tokens=replies[0].prompt_tokens,
        notes=failures(replies),
    )


SCENARIO = Scenario(
    name="growing",
    title="A growing conversation",
    about=f"10 turns, questions of {QUESTION_TOKENS} tokens, replies of {REPLY_TOKENS}; "
    "the whole history is sent each time.",
    streams=1,
    cells=4096,
    measure=_measure,
    metrics=[
        Metric("later", "first token, median of turns 2–10", "ms", False, 0),
        Metric("last", "first token of the last turn", "ms", False, 0),
        Metric("total", "whole conversation", "s", False, 2),
        Metric("cached", "share of the last prompt not read again", "", True, 2),
    ],
    contestants={
        HOBNOB: variants(HOBNOB),
        LLAMA_SERVER: variants(LLAMA_SERVER, "", BF16_VALUES),
        LLAMA_CPP_PYTHON: variants(LLAMA_CPP_PYTHON, BF16_VALUES_PYTHON),
    },
)
