"""Open-loop goodput: the highest rate of arriving conversations that is still served well.

Conversations arrive by a Poisson process, whatever the server does, and have several turns with
time to think between them. A window is passed when 95 % of the requests sent in it get their
first token within 2 s and no gap over 4 times the median gap of the window; a request that
fails, or is unanswered when the drain ends, is a bad one. Rates go up and down in steps of one
factor, from what the round before found.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from bench import statistics
from bench.capacity import BF16_VALUES, HOBNOB, LLAMA_SERVER
from bench.load import Reply
from bench.scenario import Bar, Measurement, Metric, Scenario, Trial, variants
from bench.servers import Server

STREAMS = 16
FIRST_TOKEN_SECONDS = 2.0
GAP_TIMES_MEDIAN = 4.0
GOOD_SHARE = 0.95
WINDOW_SECONDS = (45.0, 90.0)
"""Low rates get longer windows, up to this, so that a window holds more than a few people."""
GUESTS_PER_WINDOW = 12
QUICK_WINDOW_SECONDS = 15.0
DRAIN_SECONDS = 20.0
THINK_SECONDS = 2.0
PROBE_WINDOW_SECONDS = (20.0, 60.0)
PROBE_GUESTS = 6
PROBE_FACTOR = 1.5
"""Peers' flags are chosen by a search like the one that is measured, in shorter windows."""
LOWEST, HIGHEST = 0.03, 60.0  # conversations a second: from two slow cores to a fast GPU
FACTOR = 1.2
PROBE_RATE = 0.2

_answers: WeakKeyDictionary[Server, float] = WeakKeyDictionary()
"""What each contestant's last round found: where the next one begins."""


@dataclass(frozen=True, slots=True)
class Window:
    rate: float
    seconds: float
    sent: int
    good: int
    late: int
    stalled: int
    failed: int

    @property
    def share(self) -> float:
        """Of well served requests; 0 where nobody came: that has shown nothing."""
        return self.good / self.sent if self.sent else 0.0

    @property
    def passed(self) -> bool:
        return self.share >= GOOD_SHARE


@dataclass(frozen=True, slots=True)
class Turn:
    text: str
    reply_tokens: int
    think_s: float  # after it


@dataclass(frozen=True, slots=True)
class Guest:
    """A conversation that is going to arrive."""

    arrives_s: float
    turns: list[Turn]


def guests(trial: Trial, rate: float, seconds: float, salt: int) -> list[Guest]:
    """The same people for every rate, closer together; `salt` gives them new words.

    Made before the window opens: making words costs time that streams would seem to wait.
    """
    found = []
    arrivals = statistics.poisson_arrivals(rate, seconds, trial.seed) or [0.0]  # somebody comes
    for number, at in enumerate(arrivals):
        rng = random.Random(trial.seed * 7919 + number)
        turns = []
        for turn in range(rng.choice((1, 2, 3, 4))):
            words = trial.texts.prose(rng.randrange(24, 160), (salt * 1000 + number) * 10 + turn)
            turns.append(Turn(words, rng.randrange(32, 112), rng.expovariate(1 / THINK_SECONDS)))
        found.append(Guest(at, turns))
    return found


async def serve(server: Server, trial: Trial, rate: float, seconds: float, salt: int) -> Window:
    """One window. Conversations go on until it closes; what was sent is waited for."""
    coming = guests(trial, rate, seconds, salt)
    replies: list[Reply] = []
    closes = time.perf_counter() + seconds
    tasks = [asyncio.create_task(_conversation(server, guest, closes, replies)) for guest in coming]
    if tasks:
        _, pending = await asyncio.wait(tasks, timeout=seconds + DRAIN_SECONDS)
        for task in pending:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return judge(rate, seconds, replies)


async def _conversation(server: Server, guest: Guest, closes: float, replies: list[Reply]) -> None:
    await asyncio.sleep(guest.arrives_s)
    history: list[dict[str, str]] = []
    for number, turn in enumerate(guest.turns):
        if time.perf_counter() >= closes:
            return
        history.append({"role": "user", "content": turn.text})
        reply, task = server.client.start(history, turn.reply_tokens, seed=number)
        replies.append(reply)
        await task
        if not reply.complete:
            return
        history.append({"role": "assistant", "content": reply.text})
        await asyncio.sleep(turn.think_s)


def judge(rate: float, seconds: float, replies: Sequence[Reply]) -> Window:
    usual = statistics.median([gap for reply in replies for gap in reply.gaps])
    late = stalled = failed = good = 0
    for reply in replies:
        if not reply.complete:
            failed += 1
        elif reply.first_token_s > FIRST_TOKEN_SECONDS:
            late += 1
        elif max(reply.gaps, default=0.0) > GAP_TIMES_MEDIAN * usual:
            stalled += 1
        else:
            good += 1
    return Window(rate, seconds, len(replies), good, late, stalled, failed)


def _seconds(rate: float, bounds: tuple[float, float], wanted: int) -> float:
    """Of a window in which about so many come."""
    shortest, longest = bounds
    return min(longest, max(shortest, wanted / rate))


Serve = Callable[[float, int], Awaitable[Window]]
"""One window at a rate; the number makes its words new, or a second try would find the first
one's prefixes."""


async def search(serve: Serve, factor: float, near: float) -> tuple[float, list[Window]]:
    """The highest rate that is served well, and the windows that were tried."""
    rungs = statistics.Rungs(LOWEST, HIGHEST, factor, near=near)
    windows: list[Window] = []
    while (rate := rungs.next) is not None:
        windows.append(await serve(rate, len(windows)))
        rungs.tell(windows[-1].passed)
    return rungs.answer, windows


def score(answer: float, windows: Sequence[Window], factor: float) -> float:
    """The rate, and how near the next one came: flags that serve the same rate are no tie."""
    above = [window for window in windows if window.rate > answer and not window.passed]
    if not above:
        return answer
    next_one = min(above, key=lambda window: window.rate)
    return (answer or LOWEST / factor) * factor ** (next_one.share / GOOD_SHARE)


async def _probe(server: Server, trial: Trial) -> Measurement:
    async def window(rate: float, number: int) -> Window:
        seconds = _seconds(rate, PROBE_WINDOW_SECONDS, PROBE_GUESTS)
        return await _settled(server, trial, rate, seconds, number)

    answer, windows = await search(window, PROBE_FACTOR, PROBE_RATE)
    return Measurement({"rate": score(answer, windows, PROBE_FACTOR)})


async def _measure(server: Server, trial: Trial) -> Measurement:
    async def window(rate: float, number: int) -> Window:
        seconds = _seconds(rate, WINDOW_SECONDS, GUESTS_PER_WINDOW)
        seconds = QUICK_WINDOW_SECONDS if trial.quick else seconds
        return await _settled(server, trial, rate, seconds, number)

    factor = FACTOR * 1.3 if trial.quick else FACTOR
    answer, windows = await search(window, factor, _answers.get(server, PROBE_RATE))
    served = max((window.good / window.seconds for window in windows if window.passed), default=0)
    _answers[server] = answer or LOWEST
    return Measurement(
        {"rate": answer, "requests": served},
        series={
            "windows": [
                [w.rate, round(w.share, 3), w.sent, w.late, w.stalled, w.failed] for w in windows
            ]
        },
    )


async def _settled(
    server: Server, trial: Trial, rate: float, seconds: float, number: int
) -> Window:
    window = await serve(server, trial, rate, seconds, trial.seed * 100 + number)
    await asyncio.sleep(1.0)
    return window


SCENARIO = Scenario(
    name="goodput",
    title="Open-loop goodput",
    about="Poisson arrivals of conversations of 1–4 turns (24–160 tokens in, 32–112 out, 2 s of "
    "thought between): the highest rate at which 95 % of requests get their first token within "
    "2 s and no gap over 4 times the median of the window. Windows of 45–90 s, rates in "
    f"steps of a factor of {FACTOR}.",
    streams=STREAMS,
    cells=STREAMS * 1024,
    measure=_measure,
    probe=_probe,
    metrics=[
        Metric("rate", "conversations/s", "", digits=2, bar=Bar(2.0, at_least=True, of_ratio=True)),
        Metric("requests", "well served requests/s", "", digits=2),
    ],
    contestants={
        HOBNOB: variants(HOBNOB),
        LLAMA_SERVER: variants(
            LLAMA_SERVER,
            "--no-kv-unified",
            f"--kv-unified {BF16_VALUES}",
            f"--no-kv-unified {BF16_VALUES}",
            f"--no-kv-unified {BF16_VALUES} --batch-size 64 --ubatch-size 64",
            f"--no-kv-unified {BF16_VALUES} --batch-size 32 --ubatch-size 32",
        ),
    },
)
