"""The two files that say which server serves: the lock, held for life, and the state file.

The lock (`flock`) goes with the process however it ends, so it alone decides; the state file
tells clients where the holder listens and is believed only while the lock is held.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

TRIES = 6
BETWEEN_TRIES_SECONDS = 0.05


WORDS_BYTES = 1000


class AlreadyServing(Exception):
    """Another process holds the lock. Its text says for what, where that is not to serve."""


class Lock:
    """Held from `acquire` to `release` or the end of the process. Not inherited by children."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def acquire(cls, path: Path, words: str = "") -> Lock:
        """Raises AlreadyServing when another process holds it, and OSError. Blocks for a moment.
        `words`: a sentence for whoever finds it held by what does not serve."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(descriptor)
            os.ftruncate(descriptor, 0)
            os.write(descriptor, words.encode())
        except BlockingIOError:
            held_for = os.read(descriptor, WORDS_BYTES).decode("utf-8", "replace")
            os.close(descriptor)
            raise AlreadyServing(held_for) from None
        except OSError:
            os.close(descriptor)
            raise
        return cls(descriptor)

    def release(self) -> None:
        """Safe to call twice. The file stays: removing it would let two servers lock two files."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _lock(descriptor: int) -> None:
    """Tries again: a client that asks whether the lock is held holds it for an instant itself."""
    for _ in range(TRIES - 1):
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(BETWEEN_TRIES_SECONDS)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


@dataclass(frozen=True, slots=True)
class State:
    """Where the server listens, as its clients read it."""

    pid: int
    host: str  # as a client calls it, never 0.0.0.0
    port: int
    url: str
    version: str
    wire: int
    started_at: int  # UTC milliseconds
    instance: str


def write_state(path: Path, state: State) -> None:
    """Whole or not at all, readable by the owner only."""
    fresh = path.with_name(path.name + ".new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        json.dump(asdict(state), file)
        file.write("\n")
    os.replace(fresh, path)


def remove_state(path: Path, *, pid: int | None = None) -> None:
    """Only while the lock is held. Safe to call twice. With `pid` only that server's: where the
    lock file was removed under us, another may serve by now."""
    if pid is not None and _pid_in(path) not in (None, pid):
        return
    path.unlink(missing_ok=True)


def _pid_in(path: Path) -> int | None:
    try:
        return int(json.loads(path.read_bytes())["pid"])
    except (OSError, ValueError, TypeError, KeyError):
        return None
