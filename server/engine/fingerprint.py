"""What the bits of saved cells depend on, beside the tokens: model file, library, machine, choices.

A snapshot with another fingerprint is never found. Reads samples of the model's files: all of them
would take longer than loading it.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
from collections.abc import Iterable
from pathlib import Path

from hobnob.server.engine.snapshot_files import KEY_BYTES

SAMPLES = 32
SAMPLES_OF_PART_MIN = 4
SAMPLE_BYTES = 64 * 1024

_FIRST = re.compile(r"(?P<base>.+)-00001-of-(?P<count>[0-9]{5})\.gguf")


def of(model: Path, parts: Iterable[object]) -> bytes:
    """Of a model, which may be split into files, and of everything else, as it prints. Raises
    OSError."""
    hashed = hashlib.blake2b(digest_size=KEY_BYTES)
    paths = _files(model)
    samples = max(SAMPLES_OF_PART_MIN, SAMPLES // len(paths))
    known: list[object] = []
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            stat = os.fstat(file.fileno())
            for at in _places(stat.st_size, samples):
                hashed.update(os.pread(file.fileno(), SAMPLE_BYTES, at))
        known += [stat.st_size, stat.st_mtime_ns]
    library = importlib.metadata.version("llama-cpp-python")
    hashed.update(repr((*known, library, *parts)).encode())
    return hashed.digest()


def _files(model: Path) -> list[Path]:
    """The file, and those that llama.cpp reads with it as it names them."""
    first = _FIRST.fullmatch(model.name)
    if first is None:
        return [model]
    base, count = first["base"], first["count"]
    names = (f"{base}-{n:05}-of-{count}.gguf" for n in range(2, int(count) + 1))
    rest = [path for name in names if (path := model.with_name(name)).is_file()]
    return [model, *rest]


def _places(size: int, samples: int) -> list[int]:
    """Of the samples: the beginning, the end, and evenly in between."""
    last = max(0, size - SAMPLE_BYTES)
    return [last * n // (samples - 1) for n in range(samples)]
