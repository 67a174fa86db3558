"""What this machine gives the process: cores and memory. Reads /proc, /sys and os."""

from __future__ import annotations

import os
import time
from pathlib import Path

_CPUS = Path("/sys/devices/system/cpu")
_CGROUP = Path("/sys/fs/cgroup")


def physical_cores(cpus: Path = _CPUS, cgroup: Path = _CGROUP) -> int:
    """Physical cores that the process may use; at least one.

    Two hardware threads of a core share what llama.cpp's kernels need, so a second one slows
    both. Affinity and the container's CPU quota are respected.
    """
    try:
        allowed = os.sched_getaffinity(0)
    except AttributeError:  # macOS
        return max(1, (os.cpu_count() or 2) // 2)
    cores = {_siblings(cpus, cpu) for cpu in allowed}
    return max(1, min(len(cores), _quota(cgroup) or len(cores)))


def _siblings(cpus: Path, cpu: int) -> str:
    try:
        return (cpus / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text()
    except OSError:
        return str(cpu)


def _quota(cgroup: Path) -> int | None:
    """Whole cores of the cgroup's quota; None when there is none."""
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
        return None if quota == "max" else max(1, int(quota) // int(period))
    except (OSError, ValueError, ZeroDivisionError):
        return None


def memory_available(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = _CGROUP) -> int:
    """Bytes that can be taken without swapping, the container's limit respected."""
    found = _meminfo(meminfo)
    try:
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
        stat = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        files = int(stat.get("inactive_file", 0))  # given back when memory is short
        return max(0, min(found, limit - used + files))
    except (OSError, ValueError):
        return found


def _meminfo(path: Path) -> int:
    try:
        for line in path.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (OSError, ValueError):
        return 4 * 1024**3


def memory_of(pid: int, proc: Path = Path("/proc")) -> int | None:
    """Bytes of RAM that a process holds, files mapped into it included; None where that is not
    told (no /proc, no such process)."""
    try:
        resident = int((proc / str(pid) / "statm").read_text().split()[1])
        return resident * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


class OtherPrograms:
    """How many of this process's cores other programs used between two looks (Linux only)."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._before = self._look()

    def __call__(self) -> float | None:
        """Cores used by others since the last call; None where that cannot be known."""
        before, self._before = self._before, self._look()
        if before is None or self._before is None:
            return None
        wall = self._before[0] - before[0]
        if wall <= 0:
            return None
        busy, own = (self._before[n] - before[n] for n in (1, 2))
        return max(0.0, (busy - own) / wall)

    def _look(self) -> tuple[float, float, float] | None:
        """Now, busy seconds of the cores we may use, and our own seconds."""
        try:
            allowed = {f"cpu{n}" for n in os.sched_getaffinity(0)}
            lines = self._stat.read_text().splitlines()
        except (AttributeError, OSError):  # not Linux
            return None
        ticks = 0
        for line in lines:
            name, *counts = line.split()
            if name in allowed:
                user, nice, system, _idle, _wait, irq, softirq, steal = map(int, counts[:8])
                ticks += user + nice + system + irq + softirq + steal
        return time.monotonic(), ticks / os.sysconf("SC_CLK_TCK"), time.process_time()
