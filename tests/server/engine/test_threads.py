"""Threads give way to other programs, core by core, and come back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hobnob.server.engine.machine import OtherPrograms, memory_available, physical_cores
from hobnob.server.engine.threads import SAMPLE_SECONDS, Threads


class Load:
    """What others use, as the test says."""

    def __init__(self) -> None:
        self.cores: float | None = 0.0
        self.looks = 0

    def __call__(self) -> float | None:
        self.looks += 1
        return self.cores


def settle(threads: Threads, load: Load, cores: float | None, at: float) -> int:
    load.cores = cores
    for n in range(12):
        threads.choose(at + n)
    return threads.count


def test_all_threads_are_used_on_an_idle_machine() -> None:
    load = Load()
    assert settle(Threads(4, load), load, 0.1, 0.0) == 4


@pytest.mark.parametrize(("cores", "count"), [(0.3, 4), (1.0, 3), (2.0, 2), (3.5, 1), (9.0, 1)])
def test_each_core_that_others_use_costs_one_thread(cores: float, count: int) -> None:
    load = Load()
    assert settle(Threads(4, load), load, cores, 0.0) == count


def test_threads_come_back_when_the_others_are_done() -> None:
    load = Load()
    threads = Threads(2, load)
    assert settle(threads, load, 1.0, 0.0) == 1
    assert settle(threads, load, 0.0, 100.0) == 2


def test_what_others_used_while_the_engine_had_nothing_to_do_costs_no_thread() -> None:
    load = Load()
    threads = Threads(2, load)
    settle(threads, load, 0.0, 0.0)
    threads.rest()
    load.cores = 2.0
    assert threads.choose(100.0) == 2
    assert threads.choose(100.0 + 2 * SAMPLE_SECONDS) == 1  # but what they use now does


def test_a_use_between_the_two_borders_changes_nothing() -> None:
    load = Load()
    threads = Threads(2, load)
    assert settle(threads, load, 0.5, 0.0) == 2
    settle(threads, load, 1.0, 100.0)
    assert settle(threads, load, 0.5, 200.0) == 1


def test_the_kernel_is_not_asked_at_every_step() -> None:
    load = Load()
    threads = Threads(2, load)
    for n in range(100):
        threads.choose(n * SAMPLE_SECONDS / 10)
    assert load.looks <= 11


def test_where_the_use_is_unknown_the_number_stays() -> None:
    load = Load()
    assert settle(Threads(3, load), load, None, 0.0) == 3


def test_the_use_by_others_is_what_is_not_our_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat, tick = tmp_path / "stat", os.sysconf("SC_CLK_TCK")
    cpu = min(os.sched_getaffinity(0))

    def at(now: float, busy: float, own: float) -> None:
        stat.write_text(f"cpu 0 0 0 0\ncpu{cpu} {int(busy * tick)} 0 0 5 5 0 0 0 0 0\nintr 1\n")
        monkeypatch.setattr("time.monotonic", lambda: now)
        monkeypatch.setattr("time.process_time", lambda: own)

    at(100.0, 0.0, 1.0)
    others = OtherPrograms(stat)
    at(104.0, 3.0, 2.0)
    assert others() == pytest.approx((3.0 - 1.0) / 4.0)
    at(106.0, 3.5, 3.0)  # the counts lag: not less than nothing
    assert others() == 0.0


def test_a_machine_without_the_counters_is_no_error(tmp_path: Path) -> None:
    assert OtherPrograms(tmp_path / "absent")() is None


def test_hardware_threads_of_one_core_count_once_and_a_quota_is_respected(tmp_path: Path) -> None:
    for cpu in os.sched_getaffinity(0):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text("0-63\n")
    assert physical_cores(tmp_path, tmp_path) == 1
    assert physical_cores(tmp_path / "absent", tmp_path) == len(os.sched_getaffinity(0))
    (tmp_path / "cpu.max").write_text("100000 100000\n")
    assert physical_cores(tmp_path / "absent", tmp_path) == 1
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert physical_cores(tmp_path / "absent", tmp_path) == len(os.sched_getaffinity(0))


def test_the_memory_limit_of_a_container_is_respected(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9 kB\nMemAvailable:    1000 kB\n")
    assert memory_available(meminfo, tmp_path) == 1000 * 1024
    (tmp_path / "memory.max").write_text("500000\n")
    (tmp_path / "memory.current").write_text("100000\n")
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 50000\n")
    assert memory_available(meminfo, tmp_path) == 450_000
