"""Which run kills the engine: found by trying halves, so that its neighbours are spared.

The search begins when a run was in the engine for three deaths in a row without getting a token;
suspects are all that were stuck with it. Then only half of the suspects go in; the others wait.
If the engine dies, that half is the suspects; if each of that half gets a token or ends, it is
cleared and the other half is tried. Pure bookkeeping over run ids.
"""

from __future__ import annotations

from collections.abc import Iterable

DEATHS = 3


class Quarantine:
    def __init__(self) -> None:
        self._deaths: dict[str, int] = {}  # in a row without a token, by run
        self._moved: set[str] = set()  # got a token from the present process
        self._suspects: list[str] = []
        self._trial: set[str] = set()  # the half that is in the engine; empty: no search
        self._cleared: set[str] = set()

    @property
    def searching(self) -> bool:
        return bool(self._trial)

    def may_run(self, run: str) -> bool:
        """Whether the run may be in the engine now."""
        return not self._trial or run in self._trial or run in self._cleared

    def died(self, in_flight: Iterable[str], *, excused: bool = False) -> str | None:
        """The engine died with these runs in it. Returns the culprit once it is certain.

        `excused`: of something else, perhaps; then the death is held against none of them.
        """
        stuck = [] if excused else [run for run in in_flight if run not in self._moved]
        for run in self._moved:
            self._deaths.pop(run, None)
        self._moved.clear()
        for run in stuck:
            self._deaths[run] = self._deaths.get(run, 0) + 1
        accused = self._accused(stuck)
        if not accused:
            return None
        if len(accused) == 1:
            self._release()
            return accused[0]
        self._cleared.clear()
        self._suspects = accused
        self._trial = set(accused[: len(accused) // 2])
        return None

    def moved(self, run: str) -> bool:
        """The run got a token. True when runs that were held back may go now."""
        self._moved.add(run)
        return self._settle(run)

    def ended(self, run: str) -> bool:
        """The run is over. True when runs that were held back may go now."""
        self._deaths.pop(run, None)
        self._moved.discard(run)
        self._cleared.discard(run)
        if run in self._suspects:
            self._suspects.remove(run)
        return self._settle(run)

    def _accused(self, stuck: list[str]) -> list[str]:
        """A run may have been there for three deaths and another for one have caused the last:
        so everyone who was stuck this time is searched."""
        if self._trial:
            return [run for run in stuck if run in self._trial]
        return stuck if any(self._deaths[run] >= DEATHS for run in stuck) else []

    def _settle(self, run: str) -> bool:
        """One of the trial is found harmless; the last of them brings on the other half."""
        if run not in self._trial:
            return False
        self._trial.discard(run)
        self._cleared.add(run)
        if self._trial:
            return False
        self._suspects = [suspect for suspect in self._suspects if suspect not in self._cleared]
        if not self._suspects:
            self._release()
            return True
        self._trial = set(self._suspects[: max(len(self._suspects) // 2, 1)])
        return True

    def _release(self) -> None:
        """The search is over: everyone else starts with a clean slate."""
        self._deaths.clear()
        self._suspects = []
        self._trial = set()
        self._cleared.clear()
