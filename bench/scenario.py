"""What a scenario is: what each contestant is asked to do, what is measured, what would be good."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.capacity import LLAMA_SERVER, Variant
from bench.load import Messages, Reply
from bench.texts import Texts, user


@dataclass(frozen=True, slots=True)
class Bar:
    """The limit that is set for it, on the ratio to llama-server or on hobnob's own value."""

    limit: float
    at_least: bool
    of_ratio: bool
    peer: str = LLAMA_SERVER

    def met(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit

    @property
    def shown(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Metric:
    key: str
    title: str
    unit: str = ""
    higher_is_better: bool = True
    digits: int = 1
    bar: Bar | None = None


@dataclass(slots=True)
class Measurement:
    """What one contestant did in one round, by the keys of the metrics."""

    values: dict[str, float]
    prompt_tokens: int = 0  # of the first reply: contestants must have read the same
    notes: list[str] = field(default_factory=list)
    series: dict[str, Any] = field(default_factory=dict)  # for the plots, JSON values


@dataclass(frozen=True, slots=True)
class Trial:
    """One round's choices: every contestant gets the same prompts, no round the same twice."""

    seed: int
    quick: bool
    texts: Texts

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def questions(self, count: int, tokens: int) -> list[Messages]:
        """So many different user messages of about so many tokens."""
        return [user(self.texts.prose(tokens, self.seed * 1000 + n)) for n in range(count)]


Measure = Callable[[Any, Trial], Awaitable[Measurement]]
"""Given a running contestant: a `servers.Server`, or an `engine.EngineServer`."""


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    title: str
    about: str
    streams: int
    cells: int
    measure: Measure
    metrics: Sequence[Metric]  # the first one chooses between a peer's variants
    contestants: Mapping[str, Sequence[Variant]]  # hobnob first; several: the best is taken
    probe: Measure | None = None  # to choose by, where measuring takes long
    plain: bool = True  # part of a run that names no scenario
    timed: bool = True  # its first metric is a time or a speed, which other programs change


def variants(contestant: str, *flags: str) -> list[Variant]:
    """One for each string of flags."""
    return [Variant(contestant, tuple(one.split())) for one in flags or ("",)]


def answered(replies: Sequence[Reply]) -> int:
    return sum(1 for reply in replies if reply.complete)


def failures(replies: Sequence[Reply]) -> list[str]:
    """One note for each kind of failure."""
    kinds: dict[str, int] = {}
    for reply in replies:
        if not reply.complete:
            kind = reply.error or "the stream ended without a finish"
            kinds[kind] = kinds.get(kind, 0) + 1
    return [f"{count} × {kind}" for kind, count in kinds.items()]
