"""What the user has typed and not sent, one small file for each conversation.

Written whole or not at all, readable by the user alone. A folder that cannot be written costs
the drafts and nothing else: `save` says so and the app goes on.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hobnob.tui.folds import Fold, Typed

NEW = "new"
"""The draft of a conversation that does not exist yet."""
MAX_DRAFT_BYTES = 16 * 1024 * 1024

_SAFE = re.compile(r"[A-Za-z0-9_-]{1,100}")


@dataclass(frozen=True, slots=True)
class Draft:
    text: str
    key: str = ""
    """The idempotency key under which it was posted, if it was: posting it again is no new turn."""
    typed: Typed | None = None
    """The same as it stood in the input, its long parts folded."""

    @property
    def shown(self) -> str | Typed:
        return self.text if self.typed is None else self.typed


class Drafts:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, conversation: str | None) -> Draft:
        """An unreadable or foreign file is an empty draft."""
        try:
            path = self._path(conversation)
            if path.stat().st_size > MAX_DRAFT_BYTES:
                return Draft("")
            raw = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            return Draft("")
        if not isinstance(raw, dict):
            return Draft("")
        text, key = raw.get("text"), raw.get("key", "")
        if not isinstance(text, str) or not isinstance(key, str):
            return Draft("")
        return Draft(text, key, _typed(raw.get("typed"), text))

    def save(self, conversation: str | None, draft: Draft) -> bool:
        """An empty draft removes the file. False if the disk refused."""
        try:
            path = self._path(conversation)
            if not draft.text:
                path.unlink(missing_ok=True)
            else:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_atomically(path, json.dumps(_json(draft)))
        except (OSError, ValueError):
            return False
        return True

    def _path(self, conversation: str | None) -> Path:
        name = NEW if conversation is None else conversation
        if not _SAFE.fullmatch(name):
            raise ValueError("an id that cannot be a file's name")
        return self._folder / f"{name}.json"


def _json(draft: Draft) -> dict[str, object]:
    raw: dict[str, object] = {"text": draft.text, "key": draft.key}
    if draft.typed is not None and draft.typed.folds:
        folds = {label: [fold.text, fold.name] for label, fold in draft.typed.folds.items()}
        raw["typed"] = {"text": draft.typed.text, "folds": folds}
    return raw


def _typed(raw: object, text: str) -> Typed | None:
    """None unless it is whole and stands for this text."""
    try:
        made = Typed(raw["text"], {k: Fold(t, name) for k, (t, name) in raw["folds"].items()})  # type: ignore[index]
        return made if made.full == text else None
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def write_atomically(path: Path, text: str) -> None:
    """The file holds the old text or the new one, never a part. Mode 0600."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
