"""Seeded histories of faults: python -m tests.chaos.simulate --seed N (or --seeds N --from M).

One seed is replayed with what happened in it; many are spread over processes, and those that
break a promise are named.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from simulation import Simulation  # noqa: E402

SHARE = 200
"""Seeds given to a process at a time."""
SHOWN_FAILURES = 10


def broken(seeds: range) -> list[tuple[int, str]]:
    found = []
    for seed in seeds:
        try:
            Simulation(seed).run()
        except Exception as error:
            found.append((seed, f"{type(error).__name__}: {error}"))
    return found


def replay(seed: int) -> int:
    simulation = Simulation(seed)
    try:
        simulation.run()
    except Exception:
        print("\n".join(simulation.trace))
        traceback.print_exc()
        return 1
    print("\n".join(simulation.trace))
    return 0


def many(first: int, count: int, processes: int, at_most_s: float) -> int:
    shares = [
        range(start, min(start + SHARE, first + count))
        for start in range(first, first + count, SHARE)
    ]
    failures: list[tuple[int, str]] = []
    began, done = time.monotonic(), 0
    with ProcessPoolExecutor(processes) as pool:
        for share, found in zip(shares, pool.map(broken, shares), strict=False):
            done += len(share)
            failures += found
            for seed, what in found[:SHOWN_FAILURES]:
                print(f"seed {seed}: {what}", flush=True)
            if time.monotonic() - began > at_most_s:
                pool.shutdown(cancel_futures=True)
                break
    seconds = time.monotonic() - began
    print(f"{done} histories in {seconds:.0f} s, {len(failures)} broke a promise")
    return 1 if failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    if given.seed is not None:
        return replay(given.seed)
    return many(given.first, given.seeds, given.processes, given.seconds)


if __name__ == "__main__":
    sys.exit(main())
