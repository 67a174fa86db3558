"""What the user has set for the app itself, in tui.toml beside the server's config.toml.

    theme = "light"            # dark, light, or the name of any theme; else the terminal decides
    vi = true                  # Esc in the input goes to the messages, whose keys are vi's
    [keys]
    "chat.find" = "ctrl+g"     # the names are on the page of keys (F1)

A file that cannot be read costs its settings, not the app: what is wrong is said in `problem`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from hobnob import toml_file

FILE_NAME = "tui.toml"


@dataclass(frozen=True, slots=True)
class Settings:
    theme: str = ""
    keys: dict[str, str] = field(default_factory=dict)
    vi: bool = False
    problem: str = ""


def read(folder: Path) -> Settings:
    path = folder / FILE_NAME
    try:
        raw = toml_file.read(path)
    except toml_file.Unreadable as error:
        return Settings(problem=str(error))
    theme, keys, vi = raw.get("theme", ""), raw.get("keys", {}), raw.get("vi", False)
    if not isinstance(theme, str) or not isinstance(keys, dict) or not isinstance(vi, bool):
        return Settings(problem=f"{path}: theme is a text, keys a table, vi true or false")
    known = {name: key for name, key in keys.items() if isinstance(key, str) and key}
    odd = sorted(set(raw) - {"theme", "keys", "vi"}) + sorted(set(keys) - set(known))
    problem = f"{path}: not understood: {', '.join(odd)}" if odd else ""
    return Settings(theme, known, vi, problem)
