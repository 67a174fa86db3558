"""Room on the disk for a start: SQLite needs some even to read, and clients a file that says where.

A file of no content holds it while a server runs and while none does. A start lets go of it, does
what must be written, and takes it again: so a disk that is full shows the history, and refuses
messages, as one that fills up later does.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

BYTES = 1024 * 1024
"""SQLite's shared memory and log, the state file, some lines in the logs: a tenth of it."""
PIECE_BYTES = 64 * 1024


def release(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)


def hold(path: Path) -> None:
    """As much of it as there is. Safe to call twice; what is held already stays."""
    with suppress(OSError):
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        try:
            for _ in range(os.fstat(descriptor).st_size, BYTES, PIECE_BYTES):
                os.write(descriptor, os.urandom(PIECE_BYTES))  # nothing that compresses
        finally:
            os.close(descriptor)
