"""The colours: one dark and one light theme, and the question which of them suits the terminal."""

from __future__ import annotations

import os
import re
import select
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from textual.color import Color, ColorParseError
from textual.theme import Theme

from hobnob import toml_file

DARK = Theme(
    name="hobnob-dark",
    primary="#8ab4f8",
    secondary="#7fc8a9",
    accent="#e3b778",
    foreground="#d7dae0",
    background="#15171c",
    surface="#1b1e25",
    panel="#22262f",
    success="#8fce9b",
    warning="#e3b778",
    error="#ef8a8a",
    dark=True,
    variables={"muted": "#8e95a3", "faint": "#6a7180", "line": "#353b47"},
)
LIGHT = Theme(
    name="hobnob-light",
    primary="#1f5fbf",
    secondary="#1d7a58",
    accent="#9a5b00",
    foreground="#23262b",
    background="#fbfaf8",
    surface="#f3f1ed",
    panel="#eae7e1",
    success="#1d7a3d",
    warning="#9a5b00",
    error="#b3261e",
    dark=False,
    variables={"muted": "#6b6660", "faint": "#8d887f", "line": "#cfcac0"},
)
THEMES = (DARK, LIGHT)
FILE_NAME = "themes.toml"
COLOURS = (
    "primary",
    "secondary",
    "accent",
    "foreground",
    "background",
    "surface",
    "panel",
    "success",
    "warning",
    "error",
)
QUIET_COLOURS = ("muted", "faint", "line")
ANSWER_SECONDS = 0.2
"""How long a terminal is waited for that does not answer at all."""
REST_SECONDS = 1.0
"""The same for one whose answer has begun to come: its rest would be taken for typed."""

_COLOUR = re.compile(rb"\x1b\]11;rgba?:([0-9a-fA-F]+)/([0-9a-fA-F]+)/([0-9a-fA-F]+)")
_BACKGROUND = re.compile(rb"\x1b\]11;[^\x07\x1b]*(?:\x07|\x1b\\)")
_ATTRIBUTES = re.compile(rb"\x1b\[\?[0-9;]*c")
_BEGUN = re.compile(rb"\x1b(?:\][^\x07\x1b]*\x1b?|\[\?[0-9;]*)?\Z")


def quiet_colours(theme: Theme) -> dict[str, str]:
    """The colours of what is secondary, for a theme that does not name them."""
    if theme.ansi:
        return dict.fromkeys(("muted", "faint", "line"), "ansi_bright_black")
    front = Color.parse(theme.foreground or ("#e0e0e0" if theme.dark else "#202020"))
    back = Color.parse(theme.background or ("#121212" if theme.dark else "#f0f0f0"))
    shares = {"muted": 0.35, "faint": 0.5, "line": 0.75}
    return {name: front.blend(back, share).hex for name, share in shares.items()}


@dataclass(frozen=True, slots=True)
class Choice:
    theme: str
    typed: str = ""
    """What the user had typed already when the terminal was asked."""


def read(folder: Path) -> tuple[list[Theme], str]:
    """The user's own themes, and what is wrong with their file; the other themes in it count.

    [evening]              # theme = "evening" in tui.toml, or from the palette
    dark = true
    primary = "#e0a060"    # the only colour it needs; the names are on the page of the app
    """
    path = folder / FILE_NAME
    try:
        raw = toml_file.read(path)
    except toml_file.Unreadable as error:
        return [], str(error)
    made, odd = [], []
    for name, values in raw.items():
        try:
            made.append(_theme(name, values))
        except ValueError as error:
            odd.append(f"{name}: {error}")
    return made, f"{path}: {'; '.join(odd)}" if odd else ""


def _theme(name: str, values: object) -> Theme:
    """Raises ValueError with what is wrong."""
    if not isinstance(values, dict):
        raise ValueError("not a table of colours")
    given = dict(values)
    dark = given.pop("dark", True)
    if not isinstance(dark, bool):
        raise ValueError("dark is true or false")
    if "primary" not in given:
        raise ValueError("primary is missing")
    for key, colour in given.items():
        if key not in COLOURS + QUIET_COLOURS:
            raise ValueError(f"{key} is not known")
        try:
            Color.parse(str(colour))
        except ColorParseError:
            raise ValueError(f"{key} is not a colour") from None
    base = DARK if dark else LIGHT
    colours = {key: given.get(key) or getattr(base, key) for key in COLOURS}
    quiet = {key: given[key] for key in QUIET_COLOURS if key in given}
    return Theme(name=name, dark=dark, variables=quiet, **colours)


def choose(environ: Mapping[str, str], setting: str = "") -> Choice:
    """The theme for this terminal: as the user says, else as its background is."""
    wanted = environ.get("HOBNOB_THEME") or setting
    if wanted in ("dark", "light"):
        return Choice(f"hobnob-{wanted}")
    if wanted:
        return Choice(wanted)
    dark, answer = _from_colorfgbg(environ.get("COLORFGBG", "")), b""
    if dark is None:
        answer = _ask_terminal()
        dark = is_dark(answer)
    return Choice(LIGHT.name if dark is False else DARK.name, typed(answer))


def typed(answer: bytes) -> str:
    """What in a terminal's answer is none: keys. The terminal took Enter for a line's end then."""
    keys = _ATTRIBUTES.sub(b"", _BACKGROUND.sub(b"", answer))
    return keys.decode("utf-8", "replace").replace("\n", "\r")


def is_dark(answer: bytes) -> bool | None:
    """What a terminal's answer to the question for its background says; None if nothing."""
    found = _COLOUR.search(answer)
    if found is None:
        return None
    red, green, blue = (_share(part) for part in found.groups())
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.5


def _share(digits: bytes) -> float:
    return float(int(digits, 16) / (16 ** len(digits) - 1))


def _from_colorfgbg(value: str) -> bool | None:
    last = value.rpartition(";")[2]
    return int(last) in (*range(7), 8) if last.isdecimal() else None


def _ask_terminal() -> bytes:
    """OSC 11, and after it a question that every terminal answers, so that none is waited for."""
    import termios
    import tty

    try:
        descriptor = sys.__stdin__.fileno() if sys.__stdin__ else -1
        before = termios.tcgetattr(descriptor)
    except (OSError, ValueError, termios.error):
        return b""
    try:
        tty.setcbreak(descriptor, termios.TCSANOW)
        os.write(descriptor, b"\x1b]11;?\x1b\\\x1b[c")
        return _read_answer(descriptor)
    except OSError:
        return b""
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, before)


def _read_answer(descriptor: int) -> bytes:
    answer = b""
    begun = time.monotonic()
    while not _ATTRIBUTES.search(answer) and len(answer) < 4096:
        patience = REST_SECONDS if _BEGUN.search(answer) else ANSWER_SECONDS
        left = begun + patience - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            break
        answer += os.read(descriptor, 1024)
    return answer
