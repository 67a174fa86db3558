"""Roles: system prompts in files of the user, `roles/NAME.md` beside config.toml.

A role is its text, and if it shall, in a front matter, a line about it, a model and sampling
options. A name is looked up among the files that are there and never made into a path. A text is
only ever text: nothing in it is looked for or filled in.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hobnob.exits import Exit, ExitError
from hobnob.tui import options
from hobnob.tui.clean import one_line
from hobnob.tui.notice import ClientError
from hobnob.tui.tuning import Tuning

if TYPE_CHECKING:
    from hobnob.tui.line import Line

COMMAND = "/role"
SUFFIX = ".md"
MAX_BYTES = 256 * 1024
MAX_ROLES = 500
MAX_NAME = 60
FENCE = "---"
_SHOWN_NAMES = 20


class BadRole(ExitError):
    """The message names the file and what is wrong with it."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, Exit.CONFIG, "bad_role")


class NoRole(ExitError):
    """There is none of that name; the message names those that there are."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, Exit.USAGE, "no_role")


@dataclass(frozen=True, slots=True)
class Role:
    name: str
    text: str
    about: str = ""
    model: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """What it is, in a line: what its file says of it, else how its text begins."""
        return one_line(self.about or self.text.strip().partition("\n")[0])


def parse(name: str, source: str) -> Role:
    """A role from the text of its file. Raises ValueError with what is wrong."""
    lines = source.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    given: dict[str, str] = {}
    if lines[0].rstrip() == FENCE:
        ends = [n for n, line in enumerate(lines) if n and line.rstrip() == FENCE]
        if not ends:
            raise ValueError(f"the front matter has no end, a line of {FENCE}")
        given = _front_matter(lines[1 : ends[0]])
        lines = lines[ends[0] + 1 :]
    text = "\n".join(lines).strip()
    if not text:
        raise ValueError("there is no text in it")
    about, model = given.pop("about", ""), given.pop("model", None)
    pairs = [f"{option}={value}" for option, value in given.items()]
    return Role(name, text, about, model, options.parse(pairs))


def _front_matter(lines: list[str]) -> dict[str, str]:
    """`name: value`, a line each; empty lines and those with a # in front say nothing."""
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 2):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, colon, value = line.partition(":")
        key, value = name.strip().replace("-", "_"), value.strip()
        if not colon or not key.isidentifier() or line[0].isspace():
            raise ValueError(f"line {number} is not of the form `temperature: 0.2`")
        if key in found:
            raise ValueError(f"line {number} says {key} a second time")
        if not value:
            raise ValueError(f"line {number} gives {key} no value")
        quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
        found[key] = value[1:-1] if quoted else value
    return found


def is_name(name: str) -> bool:
    """Whether a file of that name can be a role: what can be typed after a command, on one line."""
    plain = name.isprintable() and not any(c.isspace() or c in '/\\"' for c in name)
    return bool(name) and plain and len(name) <= MAX_NAME and name[0] not in ".-"


def begun(text: str) -> str | None:
    """What is typed of a role's name after the command; None for any other text."""
    name, space, part = text.partition(" ")
    one_word = len(part.split()) < 2 and "\n" not in part and not part[-1:].isspace()
    return part if name == COMMAND and space and one_word else None


def tuned(before: Tuning, role: Role) -> Tuning:
    """Its text as the system prompt; its options over those that there were."""
    return Tuning(role.text, {**before.settings, **role.options})


def pairs(role: Role, given: Sequence[str] = ()) -> list[str]:
    """Its options as `-o` takes them, and after them those that were given, which win."""
    named = {one.partition("=")[0] for one in given}
    found = []
    for name, value in role.options.items():
        values = value if isinstance(value, list) else [value]
        texts = (one if isinstance(one, str) else json.dumps(one) for one in values)
        found += [f"{name}={text}" for text in texts if name not in named]
    return [*found, *given]


async def other_model(line: Line, role: Role) -> str:
    """A sentence where the role is meant for another model than the one that answers."""
    if role.model is None:
        return ""
    try:
        running = (await (await line.get()).status()).get("model") or {}
        options.require_model(running, role.model)
    except ClientError as error:
        if error.code != "model_not_found":
            return ""  # whoever sends a message is told what is wrong
        return f"This role is meant for {one_line(role.model)}; {running.get('id')} answers."
    return ""


class Roles:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def home(cls) -> Roles:
        """The user's."""
        from hobnob.paths import Paths

        return cls(Paths.home().config_dir / "roles")

    def names(self) -> list[str]:
        """Those that there are. Whether they can be read is seen when one is."""
        try:
            with os.scandir(self.folder) as entries:
                files = [entry.name for entry in entries if entry.name.endswith(SUFFIX)]
        except OSError:
            return []
        names = (file.removesuffix(SUFFIX) for file in files)
        return sorted(name for name in names if is_name(name))[:MAX_ROLES]

    def fitting(self, part: str) -> list[str]:
        """Those whose name begins so."""
        return [name for name in self.names() if name.startswith(part)]

    def read(self, name: str) -> Role:
        """Raises NoRole and BadRole."""
        names = self.names()
        if name not in names:
            raise NoRole(f"There is no role {one_line(name)!r}. {self._known(names)}")
        path = self.folder / f"{name}{SUFFIX}"
        try:
            return parse(name, _text(path))
        except OSError as error:
            raise BadRole(f"{path} cannot be read: {error.strerror}.") from None
        except ExitError as error:
            raise BadRole(f"{path}: {error.message}") from None
        except UnicodeDecodeError:
            raise BadRole(f"{path} is not UTF-8 text.") from None
        except ValueError as error:
            raise BadRole(f"{path}: {error}.") from None

    def _known(self, names: list[str]) -> str:
        if not names:
            return f"There are none yet: a file NAME{SUFFIX} in {self.folder} is one."
        more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
        return f"There are {', '.join(names[:_SHOWN_NAMES])}{more}."


def _text(path: Path) -> str:
    """Raises OSError and ValueError."""
    # A FIFO would keep whoever opens it until somebody writes.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("it is no regular file")
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES} bytes")
    text = data.decode("utf-8")
    if "\0" in text:
        raise ValueError("it is no text: there are NUL characters in it")
    return text
