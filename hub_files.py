"""Which files of a repository are one model: names as people write them, quantisations, shards.

Pure. What a repository is called and holds is somebody else's text: a name of another form is
refused, and so is a path that is no file below the repository.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

SUFFIX = ".gguf"
USUAL = "Q4_K_M"
"""What is taken where a repository has several quantisations and none is named."""
MAX_NAME = 96

_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?")
_ADDRESS = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/(?P<rest>.+)", re.I)
_FILE = re.compile(r"(?P<repo>[^/]+/[^/]+)/(?:blob|resolve)/(?P<revision>[^/]+)/(?P<file>.+)")
_SHARD = re.compile(r"(?P<base>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf", re.I)
_QUANT = re.compile(r"(?:^|[-._/])((?:UD-)?(?:I?Q[0-9]\w*|TQ[0-9]\w*|BF16|F16|F32|MXFP4\w*))", re.I)
_BESIDE = ("mmproj", "imatrix")
"""In the names of files that are no models: image encoders, data of the quantiser."""


class BadName(ValueError):
    """What was asked for has no form that a repository's name can have; a sentence."""


class NoChoice(LookupError):
    """There is not one model that is meant. `choices` are what there is; a sentence."""

    def __init__(self, sentence: str, choices: Sequence[Choice] = ()) -> None:
        super().__init__(sentence)
        self.choices = list(choices)


@dataclass(frozen=True, slots=True)
class Wanted:
    repo: str  # owner/name
    part: str = ""  # a file, or a quantisation
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """One model of a repository: its files, the shards of a split one in their order."""

    name: str  # what to write after the colon
    files: tuple[str, ...]
    size: int  # bytes
    missing: int = 0  # shards that the repository does not have


def parse(text: str) -> Wanted:
    """`owner/name`, `owner/name:Q4_K_M`, `owner/name:file.gguf`, or such an address of the hub's
    own pages. Raises BadName."""
    address = _ADDRESS.fullmatch(text.strip())
    rest = (address["rest"] if address else text.strip()).partition("?")[0].rstrip("/")
    page = _FILE.fullmatch(rest) if address else None
    if page is not None:
        wanted = Wanted(page["repo"], page["file"], page["revision"])
    else:
        repo, _, part = rest.partition(":")
        wanted = Wanted(repo, part.strip())
    owner, slash, name = wanted.repo.partition("/")
    for one in (owner, name):
        if not slash or not _NAME.fullmatch(one) or len(one) > MAX_NAME or ".." in one:
            raise BadName(
                "A model on the hub is named OWNER/NAME, and if need be :FILE or :QUANT after it, "
                "as in bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M."
            )
    if wanted.part and not is_inside(wanted.part):
        raise BadName("After the colon stands the name of a file, or a quantisation like Q4_K_M.")
    return replace(wanted, repo=f"{owner}/{name}")


def is_inside(path: str) -> bool:
    """Whether the path can only be one of a file below its folder."""
    return (
        path.isprintable()
        and "\\" not in path
        and ":" not in path
        and all(part not in ("", ".", "..") for part in path.split("/"))
    )


def choices(files: Mapping[str, int]) -> list[Choice]:
    """The models among a repository's files, given with their sizes; each once, the small first."""
    shards: dict[tuple[str, int], dict[int, str]] = {}
    found: list[Choice] = []
    for path, size in files.items():
        name = path.rpartition("/")[2].lower()
        if not name.endswith(SUFFIX) or not is_inside(path) or any(b in name for b in _BESIDE):
            continue
        shard = _SHARD.fullmatch(path)
        if shard is None:
            found.append(Choice(path, (path,), size))
        else:
            key = (shard["base"], int(shard["count"]))
            shards.setdefault(key, {})[int(shard["number"])] = path
    for (_, count), numbers in shards.items():
        parts = tuple(numbers[number] for number in sorted(numbers))
        missing = sum(number not in numbers for number in range(1, count + 1))
        found.append(Choice(parts[0], parts, sum(files[part] for part in parts), missing))
    return sorted(_named(found), key=lambda one: (one.size, one.name))


def _named(found: Sequence[Choice]) -> list[Choice]:
    """By their quantisation where that tells them apart, else by their file."""
    quants = [quant(one.files[0]) for one in found]
    return [
        replace(one, name=own if own and quants.count(own) == 1 else one.name)
        for one, own in zip(found, quants, strict=True)
    ]


def quant(path: str) -> str:
    """The quantisation that a file's name says, in capitals; empty where it says none."""
    found = _QUANT.findall(path[: -len(SUFFIX)])
    return found[-1].upper() if found else ""


def choose(files: Mapping[str, int], part: str = "") -> Choice:
    """The model that is meant: the one of that file or quantisation; without a part the only
    one, or the usual quantisation. Raises NoChoice."""
    there = choices(files)
    if not there:
        raise NoChoice("There is no GGUF file of a model in this repository.")
    fitting = [one for one in there if _fits(one, part)] if part else there
    if not part and len(there) > 1:
        fitting = [one for one in there if quant(one.files[0]) == USUAL]
    if len(fitting) != 1:
        many = "Several models fit" if fitting else "None of them is meant"
        why = f"{many} {part!r}" if part and fitting else f"There is no {part!r}" if part else many
        raise NoChoice(f"{why}: say which one, after a colon.", fitting or there)
    if fitting[0].missing:
        raise NoChoice(f"{fitting[0].missing} files of this split model are not in the repository.")
    return fitting[0]


def _fits(one: Choice, part: str) -> bool:
    wanted = part.lower()
    names = [name.lower() for path in one.files for name in (path, path.rpartition("/")[2])]
    return wanted in names or wanted + SUFFIX in names or quant(one.files[0]).lower() == wanted
