"""Files that are in their place only when they are complete."""

from __future__ import annotations

import os
import tempfile
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
    # A name of its own: of two that write one file at once the last to end has it, whole.
    descriptor, part = tempfile.mkstemp(".part", f".{file.name[:100]}.", file.parent)
    try:
        with open(descriptor, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.replace(part, file)
    finally:
        with suppress(OSError):
            os.unlink(part)
