"""Long texts that stand in the input under a short name: big pastes, files, and what commands have
put out. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hobnob.tui.clean import one_line
from hobnob.tui.shell_notation import command_in, unmarked

FOLD_LINES = 40
FOLD_CHARS = 4_000
NAME_CHARS = 48
KIND_CHARS = 12

_LABEL = re.compile(r"\[(?:pasted|file|ran) [^\]\n]* #(\d+)\]")
_OUTPUT = re.compile(r"(\[ran [^\]\n]* #\d+\])[ \n]")
_BACKTICKS = re.compile(r"`{3,}")


def fenced(text: str, kind: str = "") -> str:
    """In a fence that nothing in it can close. A `kind` that is no plain word is left out."""
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=2)
    fence = "`" * (longest + 1)
    kind = kind if kind.isalnum() and len(kind) <= KIND_CHARS else ""
    end = "" if text.endswith("\n") else "\n"
    return f"{fence}{kind}\n{text}{end}{fence}"


@dataclass(frozen=True, slots=True)
class Fold:
    text: str
    name: str = ""
    """Of a file, or the command. It stands in the sentence, and the text after everything that
    was typed."""
    about: str = ""
    """What came of a command."""

    def label(self, number: int) -> str:
        if self.about:
            command = _in_label(self.name)
            short = command if len(command) <= NAME_CHARS else command[: NAME_CHARS - 1] + "…"
            return f"[ran {short}, {self.about} #{number}]"
        text = self.text.removesuffix("\n") if self.name else self.text
        lines = text.count("\n") + 1
        size = f"{lines} lines" if lines > 1 else f"{len(self.text)} characters"
        if not self.name:
            return f"[pasted {size} #{number}]"
        name = _in_label(self.name)
        short = name if len(name) <= NAME_CHARS else "…" + name[-NAME_CHARS + 1 :]
        return f"[file {short}, {size} #{number}]"

    @property
    def in_sentence(self) -> str:
        if not self.name:
            return self.text
        name = one_line(self.name)
        return f"`{name}`" if self.about and "`" not in name else name

    def attached(self) -> str:
        """A file, or an output, as it follows the message."""
        if self.about:
            return self.text
        _, dot, kind = self.name.rpartition("/")[2].rpartition(".")
        return f"{one_line(self.name)}:\n{fenced(self.text, kind if dot else '')}"


@dataclass(frozen=True, slots=True)
class Typed:
    """What is in the input: the text that one sees, and what the labels in it stand for."""

    text: str = ""
    folds: Mapping[str, Fold] = field(default_factory=dict)

    @property
    def full(self) -> str:
        """With all that is folded. A label that stands for nothing is text like any other."""
        files: dict[Fold, None] = {}

        def unfolded(found: re.Match[str]) -> str:
            fold = self.folds.get(found[0])
            if fold is None:
                return found[0]
            if fold.name:
                files[fold] = None
            return fold.in_sentence

        text = _LABEL.sub(unfolded, self.text)
        if not files:
            return text
        return "\n\n".join([text.rstrip("\n"), *(fold.attached() for fold in files)])

    @property
    def message(self) -> str:
        """What is sent: all of it, but for the mark of `!!`, which says that it is no command."""
        at = self._begins
        typed = self.text[:at] + unmarked(self.text[at:])
        return Typed(typed, self.folds).full

    @property
    def command(self) -> str:
        """What is to be run in the shell; empty for a message."""
        typed = self.text[self._begins :]
        return command_in(Typed(typed, self.folds).full) if command_in(typed) else ""

    @property
    def outputs(self) -> Typed:
        """What commands have put out, at the beginning: what is typed after it is a line of its
        own, so that one command can follow the other."""
        return Typed(self.text[: self._begins], self.folds).in_use

    @property
    def _begins(self) -> int:
        at = 0
        while (found := _OUTPUT.match(self.text, at)) and found[1] in self.folds:
            at = found.end()
        return at

    @property
    def in_use(self) -> Typed:
        """Without the folds whose label is gone from the text."""
        folds = {label: fold for label, fold in self.folds.items() if label in self.text}
        return Typed(self.text, folds)

    def followed_by(self, fold: Fold) -> Typed:
        label = fold.label(highest_number(self.folds) + 1)
        return Typed(f"{self.text}{label} ", {**self.folds, label: fold})

    @classmethod
    def joined(cls, parts: Iterable[Typed]) -> Typed:
        """One after the other, each on lines of its own; empty ones are left out."""
        given = [part for part in parts if part.text]
        folds = {label: fold for part in given for label, fold in part.folds.items()}
        return cls("\n".join(part.text for part in given), folds)


def _in_label(name: str) -> str:
    return one_line(name).replace("[", "(").replace("]", ")")


def is_long(text: str) -> bool:
    """Too long to be shown in the input."""
    return text.count("\n") >= FOLD_LINES or len(text) > FOLD_CHARS


def highest_number(folds: Iterable[str]) -> int:
    """Of the labels; 0 for none."""
    numbers = (_LABEL.fullmatch(label) for label in folds)
    return max((int(found[1]) for found in numbers if found), default=0)


def label_before(text: str, folds: Mapping[str, Fold]) -> str:
    """The label that the text ends with, if it stands for something; else nothing."""
    for label in folds:
        if text.endswith(label):
            return label
    return ""
