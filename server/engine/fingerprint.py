"""What the bits of saved cells depend on, beside the tokens: model file, library, machine, choices.

A snapshot with another fingerprint is never found. Reads samples of the model file: all of it
would take longer than loading it.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
from collections.abc import Iterable
from pathlib import Path

from hobnob.server.engine.snapshot_files import KEY_BYTES

SAMPLES = 32
SAMPLE_BYTES = 64 * 1024


def of(model: Path, parts: Iterable[object]) -> bytes:
    """Of a model file and of everything else, as it prints. Raises OSError."""
    hashed = hashlib.blake2b(digest_size=KEY_BYTES)
    with open(model, "rb", buffering=0) as file:
        stat = os.fstat(file.fileno())
        for at in _places(stat.st_size):
            hashed.update(os.pread(file.fileno(), SAMPLE_BYTES, at))
    library = importlib.metadata.version("llama-cpp-python")
    hashed.update(repr((stat.st_size, stat.st_mtime_ns, library, *parts)).encode())
    return hashed.digest()


def _places(size: int) -> list[int]:
    """Of the samples: the beginning, the end, and evenly in between."""
    last = max(0, size - SAMPLE_BYTES)
    return [last * n // (SAMPLES - 1) for n in range(SAMPLES)]
