"""The key that every client must show: made at the first start, kept in a file of its owner's.

A key the user chose (config or HOBNOB_KEY) is taken beside it, so that local clients, which read
the file, go on working. Keys are never logged and never part of an error's text.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

KEY_BYTES = 32
MIN_CHOSEN_CHARS = 8


class BadKey(Exception):
    """A key that no client could send; one sentence, without the key."""


def checked(key: str, where: str) -> bytes:
    """The key as it travels in a header. A line break at the end of a file is not part of it."""
    text = key.strip()
    if not text:
        raise BadKey(f"The key in {where} is empty.")
    if not (text.isascii() and text.isprintable()) or " " in text:
        raise BadKey(f"The key in {where} has characters that are not allowed in a key.")
    return text.encode("ascii")


def chosen(key: str, where: str) -> bytes:
    """A key made by a person must not be guessable at a glance."""
    value = checked(key, where)
    if len(value) < MIN_CHOSEN_CHARS:
        raise BadKey(f"The key in {where} needs at least {MIN_CHOSEN_CHARS} characters.")
    return value


def load_or_make(path: Path) -> bytes:
    """The key in the file; a new one if there is no file. Call it with the lock held."""
    try:
        with open(path, encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o600)
            return checked(file.read(1024), str(path))
    except FileNotFoundError:
        return _make(path)
    except UnicodeDecodeError:
        raise BadKey(f"The key in {path} has characters that are not allowed in a key.") from None


def _make(path: Path) -> bytes:
    """Whole or not at all: clients may read the file at any moment."""
    key = secrets.token_urlsafe(KEY_BYTES)
    fresh = path.with_name(path.name + ".new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(key + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)
    return key.encode("ascii")
