"""What values on the command line mean: sampling options and model names. Pure but for isfile."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from hobnob.exits import Exit, ExitError
from hobnob.tui.notice import ClientError

_REPEATED = {"stop", "dry_sequence_breakers"}
"""The options that take text as it is written, and several of them."""

_AGE = re.compile(r"([0-9]{1,6})([hdw])")
_UNITS_MS = {"h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def parse(pairs: Iterable[str]) -> dict[str, Any]:
    """`NAME=VALUE` pairs as the API takes them. Names and bounds are the server's to check.

    Raises ExitError. A value is read as JSON where it is JSON (numbers, true, objects), as
    text otherwise.
    """
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise ExitError(f"-o takes a name and a value, not {pair!r}.", Exit.USAGE, "usage")
        if name in _REPEATED:
            options.setdefault(name, []).append(value)
        else:
            options[name] = _value(value)
    return options


def parse_age(text: str) -> int:
    """`30d`, `12h` or `2w` in milliseconds. Raises ExitError."""
    found = _AGE.fullmatch(text.strip())
    if found is None:
        raise ExitError(
            f"{text!r} is no age: write it as 30d, 12h or 2w (days, hours, weeks).",
            Exit.USAGE,
            "usage",
        )
    return int(found[1]) * _UNITS_MS[found[2]]


def model_argument(name: str) -> str:
    """A model's name as it is, a file's path made absolute: the server stands elsewhere."""
    return os.path.abspath(name) if os.path.isfile(name) else name


def require_model(running: Mapping[str, Any], wanted: str) -> None:
    """Raises ClientError unless the server's model (of its status) is the one that is wanted."""
    path, id = str(running.get("path")), str(running.get("id"))
    known = {id, id.removesuffix(".gguf"), path, os.path.basename(path)}
    if model_argument(wanted) not in known and wanted.removesuffix(".gguf") not in known:
        raise ClientError(
            "model_not_found",
            f"The running server has the model {id}, not {wanted}. "
            "`hobnob stop` ends it; then try again.",
        )


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
