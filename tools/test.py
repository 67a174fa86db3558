"""The whole test suite, in two parts: `python tools/test.py [pytest's arguments]`.

First what needs one core, three tests at once for each core, because a test of the app or of a
process waits a third of its time; then, with nothing beside them, the tests that compute on every
core themselves (marked `alone`). A model's threads wait for each other awake, so that with
anything beside them they would be many times slower.
"""

from __future__ import annotations

import os
import subprocess
import sys

WORKERS = (os.cpu_count() or 1) * 3
PARTS = (
    ("-n", str(WORKERS), "--dist", "worksteal", "-m", "not alone"),
    ("-m", "alone"),
)
"""`worksteal` leaves the tests of a module together, whose model is then loaded once."""
INTERRUPTED = 2
NO_TESTS = 5
"""What pytest exits with when it ran none: no failure of a part, if the other part ran some."""


def main(arguments: list[str]) -> int:
    codes = []
    for part in PARTS:
        codes.append(_pytest(*part, *arguments))
        if codes[-1] == INTERRUPTED:
            break
    failed = [code for code in codes if code not in (0, NO_TESTS)]
    return failed[0] if failed else min(codes)


def _pytest(*arguments: str) -> int:
    command = [sys.executable, "-m", "pytest", "-q", *arguments]
    # Where no bytecode is kept, each worker compiles all tests again and each program that a test
    # starts all of hobnob: a quarter of a second for each of some hundred.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
