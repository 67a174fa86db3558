"""Files that are in their place only when they are complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from hobnob.exits import Exit, ExitError


@contextmanager
def replacing(file: Path, what: str) -> Iterator[BinaryIO]:
    """A new file (0600) that takes the place of `file` when the body has ended well. What is no
    regular file (/dev/stdout, a pipe) is written as it is. Raises ExitError; `what` is its subject.
    """
    try:
        if file.exists() and not file.is_file():
            with open(file, "wb") as out:
                yield out
        else:
            with _beside(file.resolve()) as out:
                yield out
    except OSError as error:
        raise ExitError(
            f"{what} {file} cannot be written: {error.strerror}.", Exit.OUTPUT, "output_failed"
        ) from None


@contextmanager
def _beside(file: Path) -> Iterator[BinaryIO]:
    part = file.with_name(f"{file.name}.part")
    try:
        part.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(part, flags, 0o600), "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.replace(part, file)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
