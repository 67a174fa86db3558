"""Where drafts come from: a run's and its owner's own words, or a draft model. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hobnob.server.engine.drafter import Drafter
from hobnob.server.engine.recall import Recall


class Source(Protocol):
    """Where drafts come from. What it costs beside its rows it says before, and takes no more."""

    spent_s: float = 0.0
    """In all, so far."""

    def chance(self, drafter: Drafter) -> float:
        """How likely the next token that it drafts is right; 0: it has none."""

    def draft(self, drafters: Sequence[Drafter], most: int) -> list[list[int]]:
        """Up to so many tokens for each, at once."""

    def seconds(self, drafters: int, tokens: int) -> float:
        """That so many tokens for each of so many runs take."""
        return 0.0

    def follow(self, drafter: Drafter, seconds: float) -> bool:
        """Takes in what the run said, spending so much at most. Whether that was all of it."""
        return True

    def learn(self, drafter: Drafter, drafted: int, accepted: int) -> None:
        """What became of a draft."""
        return

    def left(self, drafter: Drafter) -> None:
        """The run is over."""
        return

    def doubt(self) -> None:
        """What was learnt long ago may not hold any more."""
        return

    def forget(self, group: str) -> None:
        """The conversation was deleted: nothing of it stays."""
        return


class Lookup(Source):
    """What the run, or its owner's late replies, said before: free, and judged with each token."""

    def __init__(self) -> None:
        self._recall = Recall()

    def chance(self, drafter: Drafter) -> float:
        return drafter.acceptance

    def draft(self, drafters: Sequence[Drafter], most: int) -> list[list[int]]:
        return [drafter.draft(most) for drafter in drafters]

    def follow(self, drafter: Drafter, seconds: float) -> bool:
        return drafter.read(self._recall.of(drafter.owner))

    def ended(self, drafter: Drafter) -> None:
        """The reply is whole: its owner may say the like again."""
        self._recall.ended(drafter.owner, drafter.tokens, drafter.n_prompt, drafter.group)

    def remember(self) -> None:
        """Takes in a little of what has ended."""
        self._recall.learn()

    def forget(self, group: str) -> None:
        self._recall.forget(group)
