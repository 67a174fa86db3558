"""Speculation: a reply that copies its prompt, and one that copies nothing."""

from __future__ import annotations

from bench.capacity import HOBNOB, LLAMA_SERVER, Variant
from bench.load import Messages
from bench.scenario import Bar, Measure, Measurement, Metric, Scenario, Trial, failures, variants
from bench.servers import Server
from bench.texts import user

CODE_TOKENS = 320
REPLY_TOKENS = 256
LINE_CHARACTERS = 12
"""Shorter lines stand in any prompt."""

WITHOUT = "hobnob without drafts"
DRAFTING = Variant(HOBNOB, environment={"HOBNOB_SPECULATION": "auto"})
PLAIN = Variant(WITHOUT, environment={"HOBNOB_SPECULATION": "off"})

SPECULATING = (
    "",
    "--spec-default",
    "--spec-type ngram-simple",
    "--spec-type ngram-simple --spec-ngram-simple-size-n 4 --spec-ngram-simple-size-m 8",
    "--spec-type ngram-map-k",
    "--spec-type ngram-mod",
)


def _copying(trial: Trial) -> Messages:
    code = trial.texts.code(CODE_TOKENS, trial.seed)
    return user(f"Repeat this code exactly as it is, without any comment.\n\n```python\n{code}```")


def _writing(trial: Trial) -> Messages:
    return trial.questions(1, 48)[0]


def _measure(copying: bool) -> Measure:
    async def measure(server: Server, trial: Trial) -> Measurement:
        messages = _copying(trial) if copying else _writing(trial)
        options = {"temperature": 0.0} if copying else {"seed": trial.seed}
        reply = await server.client.chat(messages, trial.size(REPLY_TOKENS, 96), **options)
        lines = [line for line in reply.text.splitlines() if len(line) > LINE_CHARACTERS]
        copied = sum(1 for line in lines if line in messages[0]["content"])
        return Measurement(
            {
                "decode": reply.decode_tps,
                "total": reply.ended - reply.sent,
                "copied": copied / max(1, len(lines)),
            },
            prompt_tokens=reply.prompt_tokens,
            notes=failures([reply]),
        )

    return measure


def _scenario(name: str, title: str, about: str, least: float, *, copying: bool) -> Scenario:
    return Scenario(
        name=name,
        title=title,
        about=about,
        streams=1,
        cells=2048,
        measure=_measure(copying),
        metrics=[
            Metric("decode", "tokens/s", "t/s", bar=Bar(least, True, True, WITHOUT)),
            Metric("total", "whole reply", "s", False, 2),
            Metric("copied", "share of its lines that stand in the prompt", digits=2),
        ],
        contestants={
            HOBNOB: [DRAFTING],
            WITHOUT: [PLAIN],
            LLAMA_SERVER: variants(LLAMA_SERVER, *SPECULATING),
        },
    )


SCENARIOS = [
    _scenario(
        "copying",
        "A reply that copies its prompt",
        f"“Repeat this code”: {CODE_TOKENS} tokens of code, temperature 0.",
        1.4,
        copying=True,
    ),
    _scenario(
        "not-copying",
        "A reply that copies nothing",
        "Where drafts from the prompt are of no use, they must cost nothing.",
        0.95,
        copying=False,
    ),
]
