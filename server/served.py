"""The model that answers here, and the names it answers to. One at a time. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from hobnob.server import errors

DEFAULT = "default"
"""Whatever model is loaded, for clients that must name one."""

SUFFIX = ".gguf"
MAX_SHOWN_CHARS = 100


@dataclass(frozen=True, slots=True)
class ServedModel:
    id: str  # empty: there is no model
    path: str
    created_at: int = 0  # UTC seconds; the file's time

    def require(self, name: str) -> None:
        """Raises ModelNotFound unless `name` is the id, with or without .gguf, or `default`.

        Exactly: a name is never guessed at, and never used as a path.
        """
        if name == DEFAULT or name.removesuffix(SUFFIX) == self.id.removesuffix(SUFFIX):
            return
        shown = name if len(name) <= MAX_SHOWN_CHARS else name[:MAX_SHOWN_CHARS] + "…"
        raise errors.ModelNotFound(
            f"There is no model {shown!r} here; GET /v1/models lists what there is.", param="model"
        )
