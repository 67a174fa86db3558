"""What is done to the history while no server runs. Holds the server's lock meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hobnob.exits import Exit, ExitError
from hobnob.paths import Paths
from hobnob.server.lock import AlreadyServing, Lock
from hobnob.store import offline
from hobnob.store.values import Damaged, StoreError, WriteFailed

_BUSY = "A hobnob server is running and does not answer; end it first."
_AT_WORK = "The history is being copied, checked or restored by process {}: try again after that."
_RUNNING = "A hobnob server is running: `hobnob stop` first, for it would not see the change."


def back_up(paths: Paths, file: Path) -> None:
    """One file (0600), in its place when it is complete; replaces an earlier one."""
    with _alone(paths, _BUSY):
        offline.back_up(_there(paths), file)


def check(paths: Paths) -> list[str]:
    """What is wrong with the database, a sentence each."""
    with _alone(paths, _BUSY):
        return offline.check(_there(paths))


def restore(paths: Paths, file: Path) -> Path | None:
    """Puts a sound backup in the place of the history; where the old one is kept."""
    with _alone(paths, _RUNNING):
        return offline.restore(file, paths.database)


def odd_rows(paths: Paths) -> list[str]:
    """What is in the history that hobnob never wrote, a sentence for each kind. Reads beside a
    server too: one may have begun since the restore that this is said of."""
    with _in_words():
        return offline.odd_rows(_there(paths))


@contextmanager
def _alone(paths: Paths, otherwise: str) -> Iterator[None]:
    """Nobody serves, and nobody begins to. Every failure becomes an ExitError."""
    try:
        paths.make()
        lock = Lock.acquire(paths.lock_file, _AT_WORK.format(os.getpid()))
    except AlreadyServing as held:
        raise ExitError(str(held) or otherwise, Exit.TRY_LATER, "server_running") from None
    except OSError as error:
        raise ExitError(
            f"{error.filename or paths.lock_file} cannot be used: {error.strerror}.",
            Exit.CONFIG,
            "internal",
        ) from None
    try:
        with _in_words():
            yield
    finally:
        lock.release()


@contextmanager
def _in_words() -> Iterator[None]:
    """Every failure of the store becomes an ExitError."""
    try:
        yield
    except Damaged as error:
        raise ExitError(str(error), Exit.INTERNAL, "damaged") from None
    except WriteFailed as error:
        raise ExitError(str(error), Exit.OUTPUT, "not_saved") from None
    except StoreError as error:
        raise ExitError(str(error), Exit.CONFIG, "internal") from None


def _there(paths: Paths) -> Path:
    if not paths.database.exists():
        raise ExitError("There is no history yet.", Exit.NOT_FOUND, "not_found")
    return paths.database
