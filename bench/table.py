"""Results as rows: for the terminal, and as the tables of docs/benchmarks.md."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.rounds import kept
from bench.scenario import Metric, Scenario
from bench.statistics import Spread, ratio

INFINITE = 1e299
HEAD = ("metric", "hobnob", "other", "its value", "ratio (min–max)", "bar", "")


@dataclass(frozen=True, slots=True)
class Row:
    metric: str
    ours: str
    peer: str
    theirs: str
    ratio: str
    bar: str
    met: str

    @property
    def cells(self) -> Sequence[str]:
        return self.metric, self.ours, self.peer, self.theirs, self.ratio, self.bar, self.met


def value(one: Mapping[str, Any], contestant: str, key: str) -> float:
    """Of one round; NaN where it was not measured."""
    found = one["values"].get(contestant, {}).get(key)
    if found is None:
        return math.nan
    return math.inf if found >= INFINITE else float(found)


def rows(scenario: Scenario, result: Mapping[str, Any]) -> list[Row]:
    """For each metric one row for each peer, or one without a peer."""
    rounds = kept(result["rounds"], result["wanted"])
    ours, *others = result["flags"]
    found = []
    for metric in scenario.metrics:
        own = Spread.of(value(one, ours, metric.key) for one in rounds)
        if own is None:
            continue
        compared = [
            peer for peer in others if Spread.of(value(one, peer, metric.key) for one in rounds)
        ]
        for number, peer in enumerate(compared or [""]):
            found.append(_row(metric, rounds, ours, peer, own, first=number == 0))
    return found


def _row(
    metric: Metric,
    rounds: Sequence[Mapping[str, Any]],
    ours: str,
    peer: str,
    own: Spread,
    *,
    first: bool,
) -> Row:
    theirs = Spread.of(value(one, peer, metric.key) for one in rounds) if peer else None
    ratios = Spread.of(
        ratio(value(one, ours, metric.key), value(one, peer, metric.key)) for one in rounds
    )
    bar, met = "", ""
    if metric.bar is not None and (not metric.bar.of_ratio or metric.bar.peer == peer):
        measured = ratios if metric.bar.of_ratio else own
        if measured is not None and (metric.bar.of_ratio or first):
            bar = metric.bar.shown + (" ×" if metric.bar.of_ratio else "")
            met = "met" if metric.bar.met(measured.median) else "missed"
    return Row(
        metric=f"{metric.title}{f', {metric.unit}' if metric.unit else ''}" if first else "",
        ours=_spread(own, metric.digits) if first else "",
        peer=peer,
        theirs=_spread(theirs, metric.digits) if theirs else "",
        ratio=f"{_spread(ratios, 2, '∞')} {_arrow(metric)}" if peer and ratios else "",
        bar=bar,
        met=met,
    )


def _arrow(metric: Metric) -> str:
    """Whether more or less of it is better."""
    return "↑" if metric.higher_is_better else "↓"


def _spread(spread: Spread, digits: int, infinite: str = "never") -> str:
    """Infinite values are times of what did not happen."""

    def shown(number: float) -> str:
        return infinite if math.isinf(number) else f"{number:,.{digits}f}"

    middle, low, high = shown(spread.median), shown(spread.low), shown(spread.high)
    return middle if low == high else f"{middle} ({low}–{high})"


def remarks(result: Mapping[str, Any]) -> list[str]:
    """What a reader must know beside the numbers."""
    rounds = kept(result["rounds"], result["wanted"])
    disturbed = sum(1 for one in result["rounds"] if one["busy"])
    used = sum(1 for one in rounds if one["busy"])
    found = [f"{len(rounds)} round{'s' * (len(rounds) != 1)}"]
    if disturbed:
        found[0] += (
            f"; {disturbed} of {len(result['rounds'])} were disturbed by other programs, "
            f"{used or 'none'} of these had to be used"
        )
    if result["quick"]:
        found.append("short version (--quick): not for conclusions")
    found += [f"{name}: {flags}" for name, flags in result["flags"].items() if flags != "defaults"]
    found += result["notes"]
    found += _different_prompts(rounds)
    found += _failures(rounds)
    return found


def _different_prompts(rounds: Sequence[Mapping[str, Any]]) -> list[str]:
    """The comparison is only fair where everybody read the same."""
    for one in rounds:
        counts = {name: count for name, count in one["prompt_tokens"].items() if count}
        if counts and max(counts.values()) > min(counts.values()) * 1.02:
            told = ", ".join(f"{name} {count}" for name, count in counts.items())
            return [f"prompts differ in tokens: {told}"]
    return []


def _failures(rounds: Sequence[Mapping[str, Any]]) -> list[str]:
    """One of each kind is enough."""
    found: dict[str, str] = {}
    for one in rounds:
        for name, notes in one["notes"].items():
            for note in notes:
                found.setdefault(name, note)
    return [f"{name} failed: {_short(note)}" for name, note in found.items()]


def _short(note: str) -> str:
    words = " ".join(note.split())
    return words if len(words) < 140 else f"{words[:139]}…"


def terminal(results: Iterable[tuple[Scenario, Mapping[str, Any]]]) -> str:
    """One table of everything, and under it what a reader must know."""
    blocks = [(scenario, [row.cells for row in rows(scenario, one)]) for scenario, one in results]
    body = [HEAD, *(cells for _, block in blocks for cells in block)]
    widths = [max(len(cells[n]) for cells in body) for n in range(len(HEAD))]

    def line(cells: Sequence[str]) -> str:
        return "  ".join(f"{c:{w}}" for c, w in zip(cells, widths, strict=True)).rstrip()

    lines = [line(HEAD), "-" * (sum(widths) + 2 * len(widths) - 2)]
    for scenario, block in blocks:
        lines += ["", scenario.title, *map(line, block)]
    return "\n".join(lines)


def footnotes(results: Iterable[tuple[Scenario, Mapping[str, Any]]]) -> str:
    return "\n".join(
        f"{scenario.name}: {remark}" for scenario, one in results for remark in remarks(one)
    )


def summary(results: Iterable[tuple[Scenario, Mapping[str, Any]]]) -> str:
    """What has a bar, in Markdown."""
    head = ("scenario", "metric", "hobnob", "other", "ratio (min–max)", "bar", "")
    lines = [_line(head), _line(["---"] * len(head))]
    for scenario, result in results:
        for row in rows(scenario, result):
            if row.bar:
                peer = f"{row.peer} {row.theirs}".strip()
                shown = (scenario.title, row.metric, row.ours, peer, row.ratio, row.bar, row.met)
                lines.append(_line(shown))
    return "\n".join([*lines, ""])


def markdown(scenario: Scenario, result: Mapping[str, Any]) -> str:
    """A section of docs/benchmarks.md."""
    lines = [f"### {scenario.title}", "", scenario.about, ""]
    lines += [_line(HEAD), _line(["---"] * len(HEAD))]
    lines += [_line(row.cells) for row in rows(scenario, result)]
    lines += ["", *(f"- {remark}" for remark in remarks(result)), *_tried(result)]
    return "\n".join(lines)


def _tried(result: Mapping[str, Any]) -> list[str]:
    """The flags that were tried before, with what each gave at the first metric."""
    found = []
    for name, attempts in result["tried"].items():
        if attempts:
            told = ", ".join(f"`{flags}` {_tried_value(number)}" for flags, number in attempts)
            found.append(f"- tried for {name}: {told}")
    return found


def _tried_value(number: float | None) -> str:
    if number is None:
        return "—"
    return "never" if number >= INFINITE else f"{number:.3g}"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
