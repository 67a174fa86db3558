"""Yesterday's conversation of 2,000 tokens, opened after the server was restarted."""

from __future__ import annotations

import time

from bench import native
from bench.capacity import BF16_VALUES, HOBNOB, LLAMA_SERVER
from bench.load import Reply
from bench.scenario import Bar, Measurement, Metric, Scenario, Trial, failures, variants
from bench.servers import Server
from bench.texts import user

FIRST_TOKENS = 1900
REPLY_TOKENS = 64
SECOND_TOKENS = 10
SLOT_FILE = "conversation.bin"


async def _measure(server: Server, trial: Trial) -> Measurement:
    seed = trial.seed * 1000
    first = trial.texts.prose(FIRST_TOKENS, seed)
    second = trial.texts.prose(SECOND_TOKENS, seed + 1)
    reopening = _hobnob if server.ours else _llama_server
    cold, again, seconds = await reopening(server, first, second, trial.seed)
    return Measurement(
        {
            "reopened": seconds * 1000,
            "cold": cold.first_token_s * 1000,
            "share": seconds / cold.first_token_s,
            "cached": again.cached_tokens / max(1, again.prompt_tokens),
        },
        prompt_tokens=cold.prompt_tokens,
        notes=failures([cold, again]),
    )


async def _hobnob(server: Server, first: str, second: str, seed: int) -> tuple[Reply, Reply, float]:
    turn = await native.send(server.client, native.NEW, first, REPLY_TOKENS, seed)
    await server.stop()
    await server.start()
    again = await native.send(server.client, turn.conversation, second, REPLY_TOKENS, seed)
    return turn.reply, again.reply, again.reply.first_token_s


async def _llama_server(
    server: Server, first: str, second: str, seed: int
) -> tuple[Reply, Reply, float]:
    """Its client saves and restores the slot by hand; the restoring counts."""
    cold = await server.client.chat(user(first), REPLY_TOKENS, seed=seed)
    await _slot(server, "save")
    await server.stop()
    await server.start()
    started = time.perf_counter()
    await _slot(server, "restore")
    restored = time.perf_counter() - started
    history = [*user(first), {"role": "assistant", "content": cold.text}, *user(second)]
    again = await server.client.chat(history, REPLY_TOKENS, seed=seed)
    return cold, again, restored + again.first_token_s


async def _slot(server: Server, action: str) -> None:
    answer = await server.client.http.post(
        "/slots/0", params={"action": action}, json={"filename": SLOT_FILE}
    )
    answer.raise_for_status()


SCENARIO = Scenario(
    name="reopen",
    title="A 2,000-token conversation is opened after a restart",
    about="Engine ready, new message of at most 16 tokens. “Cold” is the first reading of the "
    "conversation. llama-server's slot is saved and restored by explicit calls.",
    streams=1,
    cells=4096,
    measure=_measure,
    metrics=[
        Metric("reopened", "first token", "ms", False, 0),
        Metric("cold", "first token, cold", "ms", False, 0),
        Metric(
            "share",
            "first token ÷ cold",
            "",
            False,
            3,
            bar=Bar(0.05, at_least=False, of_ratio=False),
        ),
        Metric("cached", "share of the prompt not read again", "", True, 3),
    ],
    contestants={
        HOBNOB: variants(HOBNOB),
        LLAMA_SERVER: variants(
            LLAMA_SERVER, "--slot-save-path ./", f"--slot-save-path ./ {BF16_VALUES}"
        ),
    },
)
