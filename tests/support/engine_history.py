"""What random histories of the engine's steps have in common, on a scripted model or a real one.

Used by the suite and by bench/soak_steps.py, so it imports nothing else of the tests.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence

from hobnob.server.engine.drafter import Drafter
from hobnob.server.engine.memory import PARKED_TRIM_CELLS
from hobnob.server.engine.pacing import Pace
from hobnob.server.engine.protocol import Finish, Logprob, Stepped
from hobnob.server.engine.speculation import Speculation
from hobnob.server.engine.steps import Steps


class Said:
    """What the frames of an engine said of each run. Every run ends once, and nothing follows."""

    def __init__(self) -> None:
        self.tokens: dict[str, list[int]] = defaultdict(list)
        self.text: dict[str, str] = defaultdict(str)
        self.logprobs: dict[str, list[Logprob]] = defaultdict(list)
        self.replayed: dict[str, str] = {}
        self.finishes: dict[str, list[Finish]] = defaultdict(list)

    def take(self, frames: Sequence[Stepped]) -> None:
        for output in (output for frame in frames for output in frame.outputs):
            assert not self.finishes[output.run], "news after the end"
            self.tokens[output.run] += output.tokens
            self.text[output.run] += output.text
            self.logprobs[output.run] += output.logprobs
            if output.replayed is not None:
                assert output.run not in self.replayed, "an earlier life was told twice"
                self.replayed[output.run] = output.replayed
            if output.finish is not None:
                self.finishes[output.run].append(output.finish)

    def drop(self, run: str) -> None:
        """Forgets a run that is over."""
        for told in (self.tokens, self.text, self.logprobs, self.replayed, self.finishes):
            told.pop(run, None)  # type: ignore[attr-defined]


Foretell = Callable[[Drafter, int], list[int]]
"""What a run would say next, up to so many tokens."""


class Guesses(Speculation):
    """Drafts of any quality, in any step: what the model would say, to where chance changes it."""

    def __init__(
        self,
        pace: Pace,
        eog: Sequence[int],
        foretell: Foretell,
        tokens: Sequence[int],
        chance: random.Random,
    ) -> None:
        """`tokens`: to be drafted wrongly."""
        super().__init__(pace, eog)
        self._foretell = foretell
        self._tokens = tokens
        self._chance = chance

    def propose(self, drafter: Drafter, decodes: int, rows: int, most: int) -> list[int]:
        draft = self._foretell(drafter, self._chance.randint(0, max(0, most)))
        if draft and self._chance.random() < 0.6:
            draft[self._chance.randrange(len(draft))] = self._chance.choice(self._tokens)
        return draft


def put_newest_aside(steps: Steps) -> None:
    """As where cells run out: the newest run gives its own up, to nobody."""
    scheduler, memory = steps._scheduler, steps._memory
    if scheduler.running > 1:
        scheduler._put_aside(scheduler._victim(scheduler.runs))
        memory.make_room(memory.cells.free + PARKED_TRIM_CELLS)
