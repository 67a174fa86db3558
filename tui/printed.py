"""How much of an unfinished reply `hobnob ask` has printed, so that another one can go on.

One small file per run, written after each piece and removed at the end. A process that is
killed between a piece and its note prints that one piece twice; `--printed` with the size of
the file is exact. A note that cannot be written is no reason to stop printing.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

MAX_NOTES = 100

_RUN = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Printed:
    def __init__(self, folder: Path, run: str):
        self._path = folder / run if _RUN.fullmatch(run) else None
        self._descriptor: int | None = None

    def read(self) -> int:
        """Bytes printed by earlier processes; 0 if nothing is known."""
        if self._path is None:
            return 0
        try:
            return int(self._path.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return 0

    def note(self, printed: int) -> None:
        if self._path is None:
            return
        with contextlib.suppress(OSError):
            if self._descriptor is None:
                self._descriptor = self._open(self._path)
            os.pwrite(self._descriptor, b"%020d" % printed, 0)

    def forget(self) -> None:
        """The reply is out; safe to call twice."""
        self.close()
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self, path: Path) -> int:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        notes = sorted(path.parent.iterdir(), key=_age, reverse=True)
        for old in notes[MAX_NOTES - 1 :]:
            old.unlink(missing_ok=True)
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
