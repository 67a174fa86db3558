"""Replies side by side: the columns, what they are called, what differs, and all as Markdown. Pure.

A column is a system prompt and sampling options of its own, and the reply that they gave.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from enum import Enum
from typing import Any

from hobnob.exits import ExitError
from hobnob.tui import words
from hobnob.tui.clean import clean, one_line
from hobnob.tui.options import parse
from hobnob.tui.transcript import Entry
from hobnob.tui.wrap import shorten

LETTERS = "ABCD"
MOST = len(LETTERS)
FEWEST = 2
"""Columns at once."""
COLUMN_CELLS = 36
"""Narrower columns are not shown side by side: the others are reached by keys."""
PROMPT_CELLS = 28
"""Of a system prompt, in a column's name."""
USUAL = "as in the conversation"
MOST_WORDS = 20_000
"""Longer texts are compared by lines first, and a changed stretch that is longer is one change:
the work grows with the square."""


@dataclass(slots=True, eq=False)
class Column:
    instructions: str | None = None
    """The system prompt of this column alone; None: the conversation's; empty: none."""
    options: dict[str, Any] = field(default_factory=dict)
    reply: Entry | None = None
    seed: int | None = None  # that the reply was drawn with
    trouble: str = ""  # why there is no reply
    posting: bool = False
    cancelled: bool = False  # while it was being posted
    key: str = ""  # what makes one turn of it, however often it is posted

    @property
    def live(self) -> bool:
        return self.posting or (self.reply is not None and self.reply.live)

    @property
    def text(self) -> str:
        return self.reply.text if self.reply is not None else ""

    def change(self, instructions: str | None, options: dict[str, Any]) -> None:
        """Other settings: the reply that there was is none of theirs."""
        if (instructions, options) != (self.instructions, self.options):
            self.instructions, self.options = instructions, options
            self.clear()

    def clear(self) -> None:
        self.reply = self.seed = None
        self.trouble = self.key = ""


# ---- settings as words ------------------------------------------------------------------------


def label(column: Column) -> str:
    """What is special about a column, in one line."""
    parts = facts(column.options)
    if column.instructions is not None:
        prompt = one_line(column.instructions).strip()
        parts.append(f"“{shorten(prompt, PROMPT_CELLS)}”" if prompt else "no system prompt")
    return facts_line(parts) or USUAL


def facts(options: Mapping[str, Any]) -> list[str]:
    """The options in words, each in as few as can be."""
    return [f"{name} {_short(value)}" for name, value in options.items()]


def facts_line(parts: Sequence[str]) -> str:
    return clean(words.SEPARATOR.join(parts))


def settings_line(options: Mapping[str, Any]) -> str:
    """The options as a person would type them; `read_settings` takes them back."""
    parts = []
    for name, value in options.items():
        for one in value if isinstance(value, list) else [value]:
            parts.append(shlex.quote(f"{name}={_typed(one)}"))
    return " ".join(parts)


def read_settings(line: str) -> dict[str, Any]:
    """`name=value`, with spaces between. Raises ValueError with a sentence for a person."""
    try:
        pairs = shlex.split(line)
    except ValueError:
        raise ValueError("A quotation mark is not closed.") from None
    for pair in pairs:
        if not pair.partition("=")[0].isidentifier() or "=" not in pair:
            raise ValueError(f"Write name=value, for instance temperature=0.2; not {pair}.")
    try:
        return parse(pairs)
    except ExitError as error:
        raise ValueError(error.message) from None


def _typed(value: Any) -> str:
    """As it is where that reads as text, else as JSON."""
    if not isinstance(value, str):
        return json.dumps(value)
    try:
        json.loads(value)
    except ValueError:
        return value
    return json.dumps(value)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shorten(one_line(text), PROMPT_CELLS)


# ---- room on the screen -----------------------------------------------------------------------


def window(count: int, current: int, first: int, cells: int) -> tuple[int, int]:
    """The columns that are shown, as a range with `current` in it, moved as little as can be."""
    room = min(max(cells // COLUMN_CELLS, 1), max(count, 1))
    first = min(max(first, current - room + 1), current)
    first = max(min(first, count - room), 0)
    return first, min(first + room, count)


# ---- differences ------------------------------------------------------------------------------


class Mark(Enum):
    SAME = "same"
    REMOVED = "removed"
    ADDED = "added"


Stretch = tuple[Mark, str]

_IDEOGRAPHS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"\s*(?:[{_IDEOGRAPHS}]|[^\W{_IDEOGRAPHS}]+|[^\w\s])|\s+")
"""With the space before it, so that a word that was taken out leaves none behind."""


def difference(before: str, after: str) -> list[Stretch]:
    """How one text becomes the other, word by word. What is the same or added, joined, is
    `after`; spaces are compared as if all were the same."""
    old, new = _WORD.findall(before), _WORD.findall(after)
    if max(len(old), len(new)) <= MOST_WORDS:
        return _merged(_by_words(old, new))
    found: list[Stretch] = []
    lines = before.splitlines(keepends=True), after.splitlines(keepends=True)
    for old_part, new_part, same in _matched(*lines, *lines):
        if same:
            found.append((Mark.SAME, "".join(new_part)))
            continue
        old, new = _WORD.findall("".join(old_part)), _WORD.findall("".join(new_part))
        if max(len(old), len(new)) <= MOST_WORDS:
            found += _by_words(old, new)
        else:
            found += [(Mark.REMOVED, "".join(old_part)), (Mark.ADDED, "".join(new_part))]
    return _merged(found)


def sameness(stretches: Sequence[Stretch]) -> float:
    """The share of both texts' words that is in both, from 0 to 1."""
    counts = dict.fromkeys(Mark, 0)
    for mark, text in stretches:
        counts[mark] += len(text.split())
    both = 2 * counts[Mark.SAME]
    total = both + counts[Mark.REMOVED] + counts[Mark.ADDED]
    return both / total if total else 1.0


def _by_words(old: list[str], new: list[str]) -> list[Stretch]:
    found: list[Stretch] = []
    bare = [word.strip() for word in old], [word.strip() for word in new]
    for old_part, new_part, same in _matched(*bare, old, new):
        if same:
            found.append((Mark.SAME, "".join(new_part)))
        else:
            found += [(Mark.REMOVED, "".join(old_part)), (Mark.ADDED, "".join(new_part))]
    return found


def _matched(
    old_keys: list[str], new_keys: list[str], old: list[str], new: list[str]
) -> list[tuple[list[str], list[str], bool]]:
    """Stretches of both, in order, and whether they are the same."""
    codes = SequenceMatcher(None, old_keys, new_keys).get_opcodes()
    return [(old[a:b], new[c:d], code == "equal") for code, a, b, c, d in codes]


def _merged(stretches: list[Stretch]) -> list[Stretch]:
    """Neighbours of one mark as one. Mere space is no difference."""
    merged: list[Stretch] = []
    for mark, text in stretches:
        if not text.strip():
            if mark is Mark.REMOVED:
                continue
            mark = Mark.SAME
        if text and merged and merged[-1][0] is mark:
            merged[-1] = (mark, merged[-1][1] + text)
        elif text:
            merged.append((mark, text))
    return merged


# ---- Markdown ---------------------------------------------------------------------------------


def markdown(title: str, prompt: str, columns: Sequence[Column]) -> str:
    """Everything on one page: the prompt, the figures in a table, the replies as they are."""
    named = list(zip(LETTERS, columns, strict=False))
    quoted = "\n".join(f"> {line}".rstrip() for line in clean(prompt).split("\n"))
    parts = [f"# {one_line(title) or 'Comparison'}", quoted, _table(named)]
    for letter, column in named:
        parts.append(f"## {letter}: {_escaped(label(column))}")
        if column.instructions and column.instructions.strip():
            parts.append(f"System prompt:\n\n{_fenced(clean(column.instructions))}")
        parts.append(clean(column.text).strip("\n") or f"*{_escaped(_no_reply(column))}*")
    return "\n\n".join(parts) + "\n"


def _table(named: Sequence[tuple[str, Column]]) -> str:
    rows = [["", *(letter for letter, _ in named)], ["---"] * (len(named) + 1)]
    facts = [_facts(column) for _, column in named]
    for name in facts[0] if facts else ():
        rows.append([name, *(one[name].replace("|", "\\|") for one in facts)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _facts(column: Column) -> dict[str, str]:
    reply = column.reply
    usage = reply.usage if reply else None
    timings = reply.timings if reply else None
    return {
        "settings": _escaped(label(column)),
        "seed": "" if column.seed is None else str(column.seed),
        "model": _escaped(one_line((reply.model if reply else None) or "")),
        "first token": words.duration(timings.first_token_s)
        if timings and timings.first_token_s > 0
        else "",
        "tokens/s": words.rate(reply) if reply else "",
        "tokens": str(usage.completion_tokens) if usage else "",
        "prompt tokens": str(usage.prompt_tokens) if usage else "",
        "ended": (reply.stop_reason or reply.status) if reply and not reply.live else "",
    }


def _no_reply(column: Column) -> str:
    failed = words.failure(column.reply) if column.reply is not None else ""
    return one_line(failed or column.trouble) or "no reply"


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>#])", r"\\\1", text)


def _fenced(text: str) -> str:
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}\n{fence}"
