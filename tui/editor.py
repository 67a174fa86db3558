"""A text in the user's own editor, and back."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

FALLBACK = "vi"


def edit(text: str, environ: Mapping[str, str]) -> str | None:
    """The edited text; None if the editor failed. Raises OSError when it cannot be run.

    The terminal must be the editor's meanwhile. The file is private and gone afterwards.
    """
    command = shlex.split(environ.get("VISUAL") or environ.get("EDITOR") or FALLBACK)
    descriptor, name = tempfile.mkstemp(prefix="hobnob-", suffix=".md")
    path = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        if subprocess.run([*command, name], check=False).returncode != 0:
            return None
        return path.read_text("utf-8", errors="replace").removesuffix("\n")
    finally:
        path.unlink(missing_ok=True)
