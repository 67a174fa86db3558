"""Ends engine, server and client of the real program in mid-reply, and counts what survives.

    python -m tests.chaos.killers [engine|server|client|migration] [--rounds N] [--from SEED]
    python -m tests.chaos.killers server --seed SEED          (replays one round)

tests/support/killing.py says what a round is. With --log FILE rounds are added up over several
calls, and those in it are not run again. Prints a line for each way. The times want a quiet
machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from killing import WAYS, Homes, Outcome, Round  # noqa: E402


def table(outcomes: list[Outcome]) -> str:
    """A line for each way, and one for each victim."""
    ways = dict.fromkeys((one.victim, one.way) for one in outcomes)
    victims = dict.fromkeys(one.victim for one in outcomes)
    rows = [
        *((f"{v}: {w}", [o for o in outcomes if (o.victim, o.way) == (v, w)]) for v, w in ways),
        *((f"{v}: all", [o for o in outcomes if o.victim == v]) for v in victims),
    ]
    head = "| struck | rounds | complete | kept | equal | one row | to the next text |"
    return "\n".join([head, "| --- " * 7 + "|", *(_row(name, found) for name, found in rows)])


def _row(name: str, found: list[Outcome]) -> str:
    counts = [sum(getattr(o, what) for o in found) for what in ("complete", "kept", "equal")]
    once = sum(o.once for o in found)
    gaps = [o.gap_s for o in found if o.gap_s is not None]
    gap = f"{statistics.median(gaps):.2f} s ({len(gaps)})" if gaps else ""
    return "| " + " | ".join([name, str(len(found)), *map(str, counts), str(once), gap]) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("victim", nargs="?", choices=list(WAYS))
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--seed", type=int, help="only this round")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--threads", type=int, default=0, help="of each engine; 0: it chooses")
    parser.add_argument("--log", type=Path, help="a JSON line a round; the table is of all in it")
    given = parser.parse_args()
    seeds = (
        [given.seed] if given.seed is not None else range(given.first, given.first + given.rounds)
    )
    victims = [given.victim] if given.victim else list(WAYS)
    outcomes: list[Outcome] = []
    if given.log is not None and given.log.exists():
        outcomes = [Outcome(**json.loads(line)) for line in given.log.read_text().splitlines()]
    done = {(one.victim, one.seed) for one in outcomes}
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        homes = Homes(Path(folder), given.threads)
        try:
            for seed in seeds:
                for victim in victims:
                    if (victim, seed) in done or time.monotonic() - began > given.seconds:
                        continue
                    outcome = Round(homes, victim, seed).run()
                    outcomes.append(outcome)
                    if given.log is not None:
                        with given.log.open("a") as log:
                            log.write(json.dumps(asdict(outcome)) + "\n")
                    if not outcome.good:
                        print(f"{victim} --seed {seed}: {outcome}", flush=True)
        finally:
            homes.stop()
    print(table(outcomes))
    return 0 if all(outcome.good for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
