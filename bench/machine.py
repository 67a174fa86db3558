"""The machine under test: what it is, and whether something else was using it.

Linux tells the processor time of everything through /proc; elsewhere only the load average and
the calibration loop are watched.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

CALIBRATION_BYTES = 48 * 1024 * 1024
CALIBRATION_ROUNDS = 4
FOREIGN_SHARE = 0.05
"""More processor time than this share of the machine taken by others makes a round a busy one."""
SLOWER = 1.15
"""So does a calibration loop that takes this much longer than the fastest one of the run."""

_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


def cores() -> int:
    """Those that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def describe() -> str:
    """One line: processor, cores, memory, GPU, system."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    parts = [f"{_processor()}, {cores()} cores, {memory:.0f} GiB", _gpu(), platform.platform()]
    return "; ".join(parts)


def _processor() -> str:
    try:
        for line in (_PROC / "cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _gpu() -> str:
    if shutil.which("nvidia-smi") is None:
        return "no GPU"
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    return done.stdout.strip().replace("\n", " + ") or "no GPU"


def commit() -> str:
    """The commit of hobnob that is measured, with a mark when files differ from it."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        try:
            return subprocess.run(command, capture_output=True, text=True, check=False).stdout
        except OSError:
            return ""

    short = git("rev-parse", "--short", "HEAD").strip()
    return f"{short or 'unknown'}{' with changes' if git('status', '--porcelain').strip() else ''}"


def python() -> str:
    return f"Python {sys.version.split()[0]}"


def calibrate() -> float:
    """Seconds for fixed work on every core at once."""
    block = bytes(1024 * 1024)

    def work() -> None:
        for _ in range(CALIBRATION_BYTES // len(block)):
            hashlib.sha256(block)  # lets go of the interpreter's lock

    started = time.perf_counter()
    for _ in range(CALIBRATION_ROUNDS):
        threads = [threading.Thread(target=work) for _ in range(cores())]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return (time.perf_counter() - started) / CALIBRATION_ROUNDS


@dataclass(frozen=True, slots=True)
class Weather:
    """How quiet the machine was while something was measured."""

    load: float  # 1-minute load average before it, our own work of a moment ago included
    calibration_s: float  # before it
    foreign: float | None  # share of the machine that others took meanwhile; None: unknown

    def busy(self, fastest_calibration_s: float) -> bool:
        slow = self.calibration_s > SLOWER * fastest_calibration_s
        return slow or (self.foreign is not None and self.foreign > FOREIGN_SHARE)


class Watch:
    """From its making to `weather()`: processor time of everybody less that of our processes."""

    def __init__(self) -> None:
        self._load = os.getloadavg()[0]
        self._calibration_s = calibrate()
        self._started = time.perf_counter()
        self._all, self._ours = _busy_seconds(), _our_seconds()

    def weather(self) -> Weather:
        if self._all is None or self._ours is None:
            return Weather(self._load, self._calibration_s, None)
        wall = (time.perf_counter() - self._started) * (os.cpu_count() or 1)
        everybody, ours = _busy_seconds() or 0.0, _our_seconds() or 0.0
        foreign = (everybody - self._all) - (ours - self._ours)
        return Weather(self._load, self._calibration_s, max(0.0, foreign / wall))


class Observer:
    """Judges weather by the fastest calibration loop that it has seen."""

    def __init__(self) -> None:
        self._fastest_s = min(calibrate() for _ in range(3))

    def judge(self, watch: Watch) -> tuple[Weather, bool]:
        """The weather since the watch began, and whether it was a disturbed time."""
        weather = watch.weather()
        self._fastest_s = min(self._fastest_s, weather.calibration_s)
        return weather, weather.busy(self._fastest_s)


def _busy_seconds() -> float | None:
    """Of all cores since boot, time stolen by other guests of the host included."""
    try:
        first = (_PROC / "stat").read_text().split("\n", 1)[0]
    except OSError:
        return None
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, first.split()[1:9])
    return (user + nice + system + irq + softirq + steal) * _TICK_S


def _our_seconds() -> float | None:
    """Of this process and everything below it, the dead ones included."""
    if not (_PROC / "self").exists():
        return None
    return sum(_stat(pid)[1] for pid in tree(os.getpid()))


def tree(root: int) -> list[int]:
    """A process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            children.setdefault(_stat(int(entry.name))[0], []).append(int(entry.name))
    found, pending = [], [root]
    while pending:
        found.append(pid := pending.pop())
        pending += children.get(pid, [])
    return found


def _stat(pid: int) -> tuple[int, float]:
    """Parent, and seconds of processor time with those of its dead children."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:  # gone meanwhile
        return 0, 0.0
    values = text.rpartition(")")[2].split()
    return int(values[1]), sum(map(int, values[11:15])) * _TICK_S


def resident_bytes(pid: int) -> int:
    """0 for a process that is gone or a system without /proc."""
    try:
        pages = int((_PROC / str(pid) / "statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
