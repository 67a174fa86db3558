"""What llama.cpp complained about: kept to explain a failure, and written to the engine's log.

Without a sink of ours llama.cpp prints everything to the terminal. Warnings and errors are kept;
the hundreds of lines about what it loads are not.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque

_WARN, _ERROR, _CONT = 3, 4, 5  # ggml log levels (ggml.h); CONT goes on with the line before
_LINES_KEPT = 8


class Complaints:
    """A log callback for llama.cpp. Any thread of the library may call it."""

    def __init__(self) -> None:
        self.to_stderr = False
        self._recent: deque[str] = deque(maxlen=_LINES_KEPT)
        self._level = 0

    def hear(self, level: int, text: bytes | None, _user: object) -> None:
        """Nothing is raised: it would be raised into C."""
        if level != _CONT:
            self._level = level
        if self._level not in (_WARN, _ERROR) or not text:
            return
        line = text.decode("utf-8", "replace")
        self._recent.append(line.strip())
        if self.to_stderr:
            with contextlib.suppress(OSError):
                os.write(2, line.encode("utf-8", "replace"))

    def clear(self) -> None:
        self._recent.clear()

    def explain(self, otherwise: str) -> str:
        """The first complaint since `clear`, without the name of the C function it is from."""
        for line in self._recent:
            if line:
                return line.split(": ", 1)[-1]
        return otherwise
