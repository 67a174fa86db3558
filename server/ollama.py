"""Reads Ollama's store of models: its manifests say which blob is which model.

A manifest is somebody else's file: bounded, and only a digest of the right form becomes the name
of a blob, always inside the store's own folder.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MAX_MANIFESTS = 2000
MAX_MANIFEST_BYTES = 1024 * 1024
MODEL_TYPE = "application/vnd.ollama.image.model"
USUAL_HOST, USUAL_OWNER = "registry.ollama.ai", "library"

_DIGEST = re.compile(r"(sha256):([0-9a-f]{64})")


def models(folder: Path) -> Iterator[tuple[str, Path]]:
    """Name (`llama3.2:1b`, as `ollama list` shows it) and blob of every model."""
    manifests = folder / "manifests"
    for path in _files(manifests):
        blob = _blob(path, folder / "blobs")
        parts = path.relative_to(manifests).parts
        if blob is not None and len(parts) == 4 and "".join(parts).isprintable():
            host, owner, name, tag = parts
            prefix = f"{host}/{owner}/" if host != USUAL_HOST else f"{owner}/"
            usual = host == USUAL_HOST and owner == USUAL_OWNER
            yield f"{'' if usual else prefix}{name}:{tag}", blob


def _files(folder: Path) -> Iterator[Path]:
    left = MAX_MANIFESTS
    for current, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            left -= 1
            if left < 0:
                return
            path = Path(current, name)
            if path.is_file():  # a FIFO would block whoever opens it
                yield path


def _blob(manifest: Path, blobs: Path) -> Path | None:
    try:
        with open(manifest, "rb") as file:
            data = file.read(MAX_MANIFEST_BYTES + 1)
        content: Any = json.loads(data) if len(data) <= MAX_MANIFEST_BYTES else None
    except (OSError, ValueError, RecursionError):
        return None
    layers = content.get("layers") if isinstance(content, dict) else None
    for layer in layers if isinstance(layers, list) else ():
        if isinstance(layer, dict) and layer.get("mediaType") == MODEL_TYPE:
            digest = _DIGEST.fullmatch(str(layer.get("digest")))
            return blobs / f"{digest[1]}-{digest[2]}" if digest else None
    return None
