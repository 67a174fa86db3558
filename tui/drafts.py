"""What the user has typed and not sent, one small file for each conversation, and one more for a
message of it that is being edited.

Written whole or not at all, readable by the user alone. A folder that cannot be written costs
the drafts and nothing else: `save` says so and the app goes on.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hobnob.tui.clean import one_line
from hobnob.tui.folds import Fold, Typed

NEW = "new"
"""The draft of a conversation that does not exist yet."""
NEXT, EDIT = "", ".edit"
"""Of a message to come, and of one that is being edited. No id has a dot."""
MAX_DRAFT_BYTES = 16 * 1024 * 1024

_SAFE = re.compile(r"[A-Za-z0-9_-]{1,100}")


@dataclass(frozen=True, slots=True)
class Draft:
    text: str
    key: str = ""
    """The idempotency key under which it was posted, if it was: posting it again is no new turn."""
    typed: Typed | None = None
    """The same as it stood in the input, its long parts folded."""
    instead_of: str = ""
    """The id of the message that it is a new version of."""

    @property
    def shown(self) -> str | Typed:
        return self.text if self.typed is None else self.typed

    @property
    def as_typed(self) -> Typed:
        return Typed(self.text) if self.typed is None else self.typed


class Drafts:
    def __init__(
        self,
        folder: Path,
        keeps: Callable[[], bool] = lambda: True,
        say: Callable[[str], None] = lambda words: None,
    ) -> None:
        """`keeps`: whether what is typed now may be written to disk; `say` is told once, in a
        sentence, that it cannot be."""
        self._folder = folder
        self._keeps = keeps
        self._say = say
        self._said = False

    def load(self, conversation: str | None) -> Draft:
        """An unreadable or foreign file is an empty draft."""
        return self._load(conversation, NEXT)

    def load_edit(self, conversation: str | None) -> Draft:
        return self._load(conversation, EDIT)

    def save(self, conversation: str | None, draft: Draft) -> bool:
        """An empty draft removes the file. False if the disk refused."""
        return self._save(conversation, NEXT, draft)

    def save_edit(self, conversation: str | None, draft: Draft) -> bool:
        return self._save(conversation, EDIT, draft)

    def _load(self, conversation: str | None, kind: str) -> Draft:
        if not self._keeps():
            return Draft("")
        try:
            path = self._path(conversation, kind)
            if path.stat().st_size > MAX_DRAFT_BYTES:
                return Draft("")
            raw = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            return Draft("")
        if not isinstance(raw, dict):
            return Draft("")
        text, key, at = raw.get("text"), raw.get("key", ""), raw.get("instead_of", "")
        if not (isinstance(text, str) and isinstance(key, str) and isinstance(at, str)):
            return Draft("")
        return Draft(text, key, _typed(raw.get("typed"), text), at)

    def _save(self, conversation: str | None, kind: str, draft: Draft) -> bool:
        if not self._keeps():
            return True
        try:
            path = self._path(conversation, kind)
            if not draft.text:
                path.unlink(missing_ok=True)
            else:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_atomically(path, json.dumps(_json(draft)))
        except OSError as error:
            self._say_why(error)
            return False
        except ValueError:
            return False
        return True

    def _say_why(self, error: OSError) -> None:
        if not self._said:
            self._said = True
            why = error.strerror or str(error)
            self._say(f"Drafts are not kept: {one_line(str(self._folder))} cannot be used: {why}.")

    def _path(self, conversation: str | None, kind: str) -> Path:
        name = NEW if conversation is None else conversation
        if not _SAFE.fullmatch(name):
            raise ValueError("an id that cannot be a file's name")
        return self._folder / f"{name}{kind}.json"


def _json(draft: Draft) -> dict[str, object]:
    raw: dict[str, object] = {"text": draft.text, "key": draft.key}
    if draft.instead_of:
        raw["instead_of"] = draft.instead_of
    if draft.typed is not None and draft.typed.folds:
        folds = {label: _parts(fold) for label, fold in draft.typed.folds.items()}
        raw["typed"] = {"text": draft.typed.text, "folds": folds}
    return raw


def _typed(raw: object, text: str) -> Typed | None:
    """None unless it is whole and stands for this text."""
    try:
        made = Typed(raw["text"], {k: _fold(parts) for k, parts in raw["folds"].items()})  # type: ignore[index]
        return made if made.full == text else None
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _parts(fold: Fold) -> list[str]:
    return [fold.text, fold.name, *([fold.about] if fold.about else [])]


def _fold(parts: Sequence[str]) -> Fold:
    text, name, *about = parts
    return Fold(text, name, *about)


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
