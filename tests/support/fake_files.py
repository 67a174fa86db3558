"""A scripted disk for snapshots: what it was asked to do happens when the test, or chance, lets it.

Keeps whole files in a dictionary that may be given to the next one, as a folder is to a process.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from hobnob.server.engine.snapshot_files import Bytes, Entry, Read, Wrote


class FakeFiles:
    def __init__(self, folder: dict[Entry, bytes] | None = None, *, seed: int | None = None):
        """`seed`: sometimes slow, full or damaged, by chance; else all is well and at once."""
        self.folder = {} if folder is None else folder
        self.held = False  # nothing is done until it is let go
        self.written = 0
        self.byte_seconds = 0.0  # that reading is said to take
        self._random = None if seed is None else random.Random(seed)
        self._jobs: deque[Callable[[], Wrote | Read | None]] = deque()

    def found(self) -> list[Entry]:
        return list(self.folder)

    def write(self, entry: Entry, state: Bytes) -> None:
        self.written += entry.size
        self._jobs.append(lambda: self._write(entry, np.asarray(state).tobytes()))

    def read(self, entry: Entry) -> None:
        self._jobs.appendleft(lambda: self._read(entry))

    def touch(self, entries: Sequence[Entry]) -> None:
        """The order of use is not looked at."""

    def remove(self, entry: Entry) -> None:
        self._jobs.append(lambda: self._remove([entry]))

    def forget(self, tag: bytes) -> None:
        self._jobs.append(lambda: self._remove([e for e in self.folder if e.tag == tag]))

    def news(self) -> list[Wrote | Read]:
        found = []
        while self._jobs and not self.held and not self._chance(0.5):
            news = self._jobs.popleft()()
            if news is not None:
                found.append(news)
        return found

    def close(self, seconds: float) -> bool:
        while self._jobs:
            self._jobs.popleft()()
        return True

    def _chance(self, share: float) -> bool:
        return self._random is not None and self._random.random() < share

    def _write(self, entry: Entry, state: bytes) -> Wrote:
        done = not self._chance(0.1)
        if done:
            self.folder[entry] = state
        return Wrote(entry.key, done)

    def _read(self, entry: Entry) -> Read:
        if self._chance(0.1):
            self._remove([entry])
        if self._chance(0.1):
            return Read(entry.key, None, there=True)
        state = self.folder.get(entry)
        if state is None:
            return Read(entry.key, None)
        return Read(entry.key, bytearray(state), self.byte_seconds * len(state))

    def _remove(self, entries: list[Entry]) -> None:
        for entry in entries:
            self.folder.pop(entry, None)
