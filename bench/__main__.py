"""`python -m bench [SCENARIO…] [--pairs N] [--quick] [--write]`: see README.md."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from bench import document, machine, rounds, table
from bench.peers import WORK
from bench.scenarios import ALL
from bench.texts import Texts, starter_model

RESULTS = WORK / "results"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="hobnob beside other servers, in the same run."
    )
    parser.add_argument("scenario", nargs="*", help="names as --list shows them; none: all")
    parser.add_argument("--list", action="store_true", help="what scenarios there are")
    parser.add_argument("--pairs", type=int, default=5, metavar="N", help="rounds (5)")
    parser.add_argument("--quick", action="store_true", help="short replies, one round")
    parser.add_argument("--write", action="store_true", help="docs/benchmarks.md from all results")
    parser.add_argument("--no-run", action="store_true", help="show what was measured before")
    parser.add_argument("--no-peers", action="store_true", help="hobnob alone")
    parser.add_argument("--model", type=Path, help="a GGUF file (the starter model)")
    parser.add_argument("--threads", type=int, default=machine.cores(), metavar="N")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000, metavar="N")
    given = parser.parse_args()
    unknown = [name for name in given.scenario if name not in ALL]
    if unknown:
        parser.error(f"no such scenario: {unknown[0]} (--list shows them)")
    return given


def main() -> int:
    given = parse()
    if given.list:
        for scenario in ALL.values():
            print(f"{scenario.name:16} {scenario.title}")
        return 0
    names = given.scenario or [name for name, scenario in ALL.items() if scenario.plain]
    failed = [] if given.no_run else asyncio.run(measure(names, given))
    results = saved()
    shown = names if given.scenario or not given.no_run else list(results)
    pairs = [(ALL[name], results[name]) for name in shown if name in results]
    print(f"{table.terminal(pairs)}\n\n{table.footnotes(pairs)}")
    if given.write:
        print(f"\nwritten: {document.write(results)}")
    for line in failed:
        print(line, file=sys.stderr)
    return 1 if failed else 0


async def measure(names: list[str], given: argparse.Namespace) -> list[str]:
    """Each result is kept as soon as it is there. Returns what could not be measured."""
    model = (given.model or starter_model()).resolve()
    settings = rounds.Settings(
        model=model,
        texts=Texts(model),
        threads=given.threads,
        rounds=1 if given.quick and given.pairs == 5 else given.pairs,
        quick=given.quick,
        seed=given.seed,
        peers=not given.no_peers,
    )
    say(machine.describe())
    failed = []
    for name in names:
        started = time.monotonic()
        say(f"{name}: {ALL[name].title}")
        try:
            result = await rounds.run(ALL[name], settings, say)
        except rounds.NothingMeasured as error:
            failed.append(f"{name}: {error}")
            continue
        save(name, result)
        say(f"  {time.monotonic() - started:.0f} s")
    return failed


def save(name: str, result: dict[str, Any]) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1))


def saved() -> dict[str, dict[str, Any]]:
    """The newest result of each scenario, in the order of the table."""
    paths = {name: RESULTS / f"{name}.json" for name in ALL}
    return {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
