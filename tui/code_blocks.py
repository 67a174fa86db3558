"""Which code block of a message is copied, and what is said of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hobnob.tui.transcript import Entry

MOST_DIGITS = 6


class Choice(NamedTuple):
    code: str | None  # None: there is no such block
    words: str  # why there is none; else which it is, where there are several


def of_last(entries: Sequence[Entry]) -> list[str]:
    """The code blocks of the last message that has any."""
    return next((found for one in reversed(entries) if (found := one.code_blocks())), [])


def choose(blocks: Sequence[str], number: int | None = None) -> Choice:
    """One of them, counted from 1; the last where none is named."""
    count = len(blocks)
    number = count if number is None else number
    if not blocks:
        return Choice(None, "There is no code block.")
    if not 1 <= number <= count:
        has = "one" if count == 1 else str(count)
        return Choice(None, f"There is no code {number}: the message has {has}.")
    return Choice(blocks[number - 1], f"Code {number} of {count}. " if count > 1 else "")


def number_of(typed: str) -> int | None:
    """What was typed after /code; None for nothing."""
    return int(typed[:MOST_DIGITS]) if typed else None
