"""The TOML files that users write: config.toml, tui.toml, themes.toml."""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path
from typing import Any

MOST_BYTES = 1024 * 1024


class Unreadable(Exception):
    """The message is a sentence that names the file."""


def read(path: Path) -> dict[str, Any]:
    """A byte-order mark and Windows line ends are taken; no file is an empty one. Raises
    Unreadable."""
    try:
        # A FIFO would keep whoever opens it until somebody writes.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise Unreadable(f"{path} cannot be read: it is no regular file.")
            data = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}.") from None
    if len(data) > MOST_BYTES:
        raise Unreadable(f"{path} is larger than {MOST_BYTES} bytes.")
    try:
        return tomllib.loads(data.decode("utf-8-sig").replace("\r\n", "\n"))
    except UnicodeDecodeError:
        raise Unreadable(f"{path} is not UTF-8 text.") from None
    except tomllib.TOMLDecodeError as error:
        raise Unreadable(f"{path} is not valid TOML: {error}.") from None
    except RecursionError:
        raise Unreadable(f"{path} is nested too deeply.") from None
