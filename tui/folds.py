"""Long texts that stand in the input under a short name: big pastes, files, and what commands
have written. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hobnob.tui.clean import one_line

FOLD_LINES = 40
FOLD_CHARS = 4_000
NAME_CHARS = 48
KIND_CHARS = 12

_LABEL = re.compile(r"\[(?:pasted|file|output) [^\]\n]* #(\d+)\]")
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
    """Of a file or a command. It stands in the sentence, and the text after all that was typed."""
    ended: str = ""
    """Of a command: how."""

    def label(self, number: int) -> str:
        text = self.text.removesuffix("\n") if self.name else self.text
        lines = text.count("\n") + 1
        size = f"{lines} lines" if lines > 1 else f"{len(self.text)} characters"
        if not self.name:
            return f"[pasted {size} #{number}]"
        name = one_line(self.name).replace("[", "(").replace("]", ")")
        if self.ended:
            name = name.removeprefix("$ ")
            short = name if len(name) <= NAME_CHARS else name[: NAME_CHARS - 1] + "…"
            return f"[output of {short}, {size} #{number}]"
        short = name if len(name) <= NAME_CHARS else "…" + name[-NAME_CHARS + 1 :]
        return f"[file {short}, {size} #{number}]"

    def attached(self) -> str:
        """As it follows the message."""
        _, dot, kind = self.name.rpartition("/")[2].rpartition(".")
        how = f" ({self.ended})" if self.ended else ""
        kind = kind if dot and not self.ended else ""
        return f"{one_line(self.name)}{how}:\n{fenced(self.text, kind)}"


@dataclass(frozen=True, slots=True)
class Typed:
    """What is in the input: the text that one sees, and what the labels in it stand for."""

    text: str = ""
    folds: Mapping[str, Fold] = field(default_factory=dict)

    @property
    def full(self) -> str:
        """What is sent. A label that stands for nothing is text like any other."""
        files: dict[Fold, None] = {}

        def unfolded(found: re.Match[str]) -> str:
            fold = self.folds.get(found[0])
            if fold is None:
                return found[0]
            if fold.name:
                files[fold] = None
            return one_line(fold.name) or fold.text

        text = _LABEL.sub(unfolded, self.text)
        return "\n\n".join([text, *(fold.attached() for fold in files)])

    @property
    def in_use(self) -> Typed:
        """Without the folds whose label is gone from the text."""
        folds = {label: fold for label, fold in self.folds.items() if label in self.text}
        return Typed(self.text, folds)

    @classmethod
    def joined(cls, parts: Iterable[Typed]) -> Typed:
        """One after the other, each on lines of its own; empty ones are left out."""
        given = [part for part in parts if part.text]
        folds = {label: fold for part in given for label, fold in part.folds.items()}
        return cls("\n".join(part.text for part in given), folds)


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
