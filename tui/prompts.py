"""The prompts that were sent, oldest first, kept over sessions for ↑ and ↓.

One JSON string a line, only ever appended, so that two running apps do not take each other's
lines away. Bounded: when the file has grown past a limit, the oldest half is dropped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from hobnob.tui.drafts import write_atomically

MAX_KEPT = 1000
MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_PROMPT_CHARS = 100_000  # a longer one is not worth recalling


class Prompts:
    """A cursor over the history; the text in hand is kept while one looks around."""

    def __init__(self, path: Path, keeps: Callable[[], bool] = lambda: True) -> None:
        """`keeps`: whether what is sent now may be remembered."""
        self._path = path
        self._keeps = keeps
        self._items: list[str] | None = None
        self._at: int | None = None
        self._stash = ""

    def add(self, text: str) -> None:
        """Remember a prompt. A full or read-only disk only costs the memory of it."""
        self._at = None
        if not self._keeps():
            return
        items = self._load()
        if not text.strip() or len(text) > MAX_PROMPT_CHARS or (items and items[-1] == text):
            return
        items.append(text)
        del items[:-MAX_KEPT]
        try:
            self._append(text)
        except OSError:
            return

    def all(self) -> list[str]:
        """Oldest first."""
        return list(self._load())

    def older(self, current: str) -> str | None:
        """The prompt before; None when there is none. `current` is kept for the way back."""
        items = self._load()
        if not items:
            return None
        if self._at is None:
            self._at, self._stash = len(items), current
        if self._at == 0:
            return None
        self._at -= 1
        return items[self._at]

    def newer(self) -> str | None:
        """The prompt after, at last the text that was in hand; None when not looking around."""
        if self._at is None:
            return None
        items = self._load()
        self._at += 1
        if self._at >= len(items):
            self._at = None
            return self._stash
        return items[self._at]

    @property
    def browsing(self) -> bool:
        """Whether what is in the input is one of these, unchanged."""
        return self._at is not None

    def leave(self) -> None:
        """The text was edited: it is the one in hand now."""
        self._at = None

    def _load(self) -> list[str]:
        if self._items is None:
            self._items = _read(self._path)[-MAX_KEPT:]
        return self._items

    def _append(self, text: str) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._path.exists() and self._path.stat().st_size > MAX_FILE_BYTES:
            kept = _read(self._path)[-MAX_KEPT // 2 :]
            write_atomically(self._path, "".join(json.dumps(one) + "\n" for one in kept))
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8") as file:
            file.write(json.dumps(text) + "\n")


def _read(path: Path) -> list[str]:
    try:
        lines = path.read_text("utf-8", errors="replace").split("\n")
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, str):
            found.append(value)
    return found
