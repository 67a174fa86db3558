"""The devices that ggml can compute on, and what is wrong with some builds of it.

Asks ggml's own C functions through a library handle that the caller has; llama_cpp binds none of
them.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from pathlib import Path

_GPU, _INTEGRATED = 1, 2  # enum ggml_backend_dev_type (ggml-backend.h)
_GCC = re.compile(rb"GCC: \([^)]*\) (\d+)\.(\d+)\.\d+")
_GCC_FIXED = {11: 5, 12: 4, 13: 3}  # minor versions from which bug 114098 is fixed


@dataclass(frozen=True, slots=True)
class Device:
    name: str
    free_bytes: int
    total_bytes: int


def gpus(ggml: ctypes.CDLL) -> list[Device]:
    """GPUs with their memory as it is now."""
    ggml.ggml_backend_dev_count.restype = ctypes.c_size_t
    ggml.ggml_backend_dev_get.restype = ctypes.c_void_p
    ggml.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
    ggml.ggml_backend_dev_type.restype = ctypes.c_int
    ggml.ggml_backend_dev_type.argtypes = [ctypes.c_void_p]
    found = []
    for n in range(ggml.ggml_backend_dev_count()):
        handle = ggml.ggml_backend_dev_get(n)
        if ggml.ggml_backend_dev_type(handle) in (_GPU, _INTEGRATED):
            found.append(_device(ggml, handle))
    return found


def _device(ggml: ctypes.CDLL, handle: int) -> Device:
    size = ctypes.POINTER(ctypes.c_size_t)
    ggml.ggml_backend_dev_description.restype = ctypes.c_char_p
    ggml.ggml_backend_dev_description.argtypes = [ctypes.c_void_p]
    ggml.ggml_backend_dev_memory.restype = None
    ggml.ggml_backend_dev_memory.argtypes = [ctypes.c_void_p, size, size]
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    ggml.ggml_backend_dev_memory(handle, ctypes.byref(free), ctypes.byref(total))
    name = ggml.ggml_backend_dev_description(handle) or b"GPU"
    return Device(name.decode("utf-8", "replace"), free.value, total.value)


def broken_amx(system_info: bytes, folder: Path) -> str | None:
    """The compiler's name when its AMX code ends the process with SIGILL, else None.

    GCC before 11.5, 12.4 and 13.3 drops stores in front of ldtilecfg (GCC bug 114098), and
    ggml's AMX kernels then fault on the first step. Debian 12 has GCC 12.2.
    """
    if b"AMX_INT8 = 1" not in system_info:
        return None
    for library in sorted(folder.glob("libggml-cpu*")):
        found = _GCC.search(library.read_bytes())
        if found is None:
            continue
        major, minor = int(found[1]), int(found[2])
        if major < 11 or minor < _GCC_FIXED.get(major, 0):
            return f"GCC {major}.{minor}"
    return None
