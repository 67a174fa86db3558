"""May one more run enter, and what is it told if not. Pure: limits and load in, answer out."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hobnob.server.errors import Busy

MAX_RETRY_AFTER_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Limits:
    max_running: int  # sequences of the engine
    max_waiting: int  # runs beyond those; 0: who cannot run at once is refused
    max_waiting_tokens: int  # their prompts together


@dataclass(frozen=True, slots=True)
class Load:
    """Every run that was accepted and has not ended counts in exactly one of the first two."""

    running: int
    waiting: int
    waiting_tokens: int
    run_s: float = 0.0  # how long runs take, a moving average; 0: not known yet


@dataclass(frozen=True, slots=True)
class Admit:
    pass


@dataclass(frozen=True, slots=True)
class Refuse:
    error: Busy


def decide(limits: Limits, load: Load, prompt_tokens: int) -> Admit | Refuse:
    """A run for which a sequence is free always enters; the bounds are for those that wait."""
    present = load.running + load.waiting
    if present < limits.max_running:
        return Admit()
    if present >= limits.max_running + limits.max_waiting:
        return Refuse(_busy(limits, load, _present(load)))
    if load.waiting_tokens + prompt_tokens > limits.max_waiting_tokens:
        why = f"{_present(load)}, with {load.waiting_tokens} prompt tokens"
        return Refuse(_busy(limits, load, why))
    return Admit()


def _busy(limits: Limits, load: Load, why: str) -> Busy:
    wait_s = (load.waiting + 1) * load.run_s / max(limits.max_running, 1)
    retry_after_s = min(max(math.ceil(wait_s), 1), MAX_RETRY_AFTER_SECONDS)
    return Busy(
        f"The server is full: {why}. Try again in {retry_after_s} s.",
        retry_after_s=retry_after_s,
    )


def _present(load: Load) -> str:
    """Says nothing of what there is none of: while the model loads, all of them wait."""
    if not load.running:
        return "1 reply waits" if load.waiting == 1 else f"{load.waiting} replies wait"
    one = load.running == 1
    running = "1 reply is" if one else f"{load.running} replies are"
    more = f" and {load.waiting} more wait" if load.waiting else ""
    return f"{running} being written{more}"
