"""The style of a cell as a terminal is told it: SGR parameters as text, and what to do with them.

An ink is such a text, "1;38;2;255;0;0" for bold red letters; after a NUL come the parameters and
the target of a link. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from rich.color import ColorSystem
from rich.style import Style
from textual.strip import Strip

_SEEN_ON_BLANKS = {"4", "5", "6", "7", "8", "9", "21", "51", "52", "53"}
"""Attributes that show where there is no letter: underline, reverse and so on."""
_OFF = {
    **{
        "1": "22",
        "2": "22",
        "3": "23",
        "4": "24",
        "5": "25",
        "6": "25",
        "7": "27",
        "8": "28",
        "9": "29",
    },
    **{"21": "24", "53": "55"},
}
"""What ends an attribute; after others everything is said anew."""
_GROUNDS = {"48", *(str(n) for n in (*range(40, 50), *range(100, 108)))}
_LETTERS = {"38", *(str(n) for n in (*range(30, 40), *range(90, 98)))}
"""Numbers that begin the colour of a background, and of letters."""


def ink_of(style: Style, colours: ColorSystem) -> str:
    """The ink of a style, in the colours that the terminal has."""
    ansi = style._ansi
    if ansi is None:
        ansi = Strip.render_ansi(style, colours)
    return f"{ansi}\0id={style._link_id};{style._link}" if style._link else ansi


@dataclass(frozen=True, slots=True)
class _Parts:
    """The SGR numbers of an ink, by what they are for."""

    attributes: tuple[str, ...]
    letters: str
    ground: str


@lru_cache(maxsize=1024)
def _parts(ink: str) -> _Parts:
    numbers = ink.split(";") if ink else []
    attributes, letters, ground = [], "", ""
    at = 0
    while at < len(numbers):
        first, size = numbers[at], 1
        if first in ("38", "48"):
            size = 5 if numbers[at + 1] == "2" else 3
        if first in _GROUNDS:
            ground = ";".join(numbers[at : at + size])
        elif first in _LETTERS:
            letters = ";".join(numbers[at : at + size])
        else:
            attributes.append(first)
        at += size
    return _Parts(tuple(attributes), letters, ground)


@lru_cache(maxsize=1024)
def is_bare(ink: str) -> bool:
    """Whether blanks in it show their background alone."""
    return "\0" not in ink and not _SEEN_ON_BLANKS & set(_parts(ink).attributes)


@lru_cache(maxsize=1024)
def ground_of(ink: str) -> str:
    """The ink in which blanks look as in this one: its background, where no more is seen."""
    return _parts(ink).ground if is_bare(ink) else ink


@lru_cache(maxsize=4096)
def turn(old: str, new: str) -> str:
    """The shortest sequence from one ink to another."""
    if old == new:
        return ""
    old, _, old_link = old.partition("\0")
    new, _, link = new.partition("\0")
    linked = f"\x1b]8;{link or ';'}\x1b\\" if link != old_link else ""
    return _restyled(old, new) + linked


def _restyled(old: str, new: str) -> str:
    if old == new:
        return ""
    if not new:
        return "\x1b[0m"
    before, after = _parts(old), _parts(new)
    had, has = set(before.attributes), set(after.attributes)
    ended = {_OFF.get(one, "0") for one in had - has}
    if "0" in ended:
        return f"\x1b[0;{new}m"
    # What ends one attribute may end another: bold and dim, the two kinds of underline.
    begun = [one for one in after.attributes if one not in had or _OFF.get(one) in ended]
    changed = [*sorted(ended), *begun]
    if after.letters != before.letters:
        changed.append(after.letters or "39")
    if after.ground != before.ground:
        changed.append(after.ground or "49")
    return f"\x1b[{';'.join(changed)}m"
