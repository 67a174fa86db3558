"""Small plots as SVG, written by hand: no library, readable on light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 720
COLOURS = ("#2a78d6", "#e0812b", "#7a7f87", "#3a9d5d")
INK = "#7a7f87"
FONT = 'font-family="system-ui, sans-serif" font-size="12"'


def bars(title: str, unit: str, groups: Mapping[str, Mapping[str, float]]) -> str:
    """For each group one horizontal bar for each series; numbers at the ends."""
    series = list(dict.fromkeys(name for values in groups.values() for name in values))
    largest = max((v for values in groups.values() for v in values.values()), default=1.0)
    left, right, row = 190, 70, 16
    parts, y = [_text(0, 16, title, weight="bold"), *_legend(series, 36)], 52
    for label, values in groups.items():
        parts.append(_text(left - 8, y + row * len(values) / 2 + 4, label, anchor="end"))
        for name, number in values.items():
            length = (WIDTH - left - right) * number / largest
            colour = COLOURS[series.index(name) % len(COLOURS)]
            parts.append(
                f'<rect x="{left}" y="{y + 2}" width="{length:.1f}" height="{row - 4}" '
                f'fill="{colour}"/>'
            )
            parts.append(_text(left + length + 5, y + row - 4, f"{number:,.4g} {unit}"))
            y += row
        y += 10
    return _svg(parts, y)


@dataclass(frozen=True, slots=True)
class Axis:
    title: str
    low: float
    high: float
    logarithmic: bool = False

    @classmethod
    def over(cls, title: str, values: Sequence[float], *, logarithmic: bool = False) -> Axis:
        low, high = min(values, default=1.0), max(values, default=1.0)
        if logarithmic:
            return cls(title, low / 1.2, high * 1.2, True)
        return cls(title, low, high if high > low else low + 1.0)

    def share(self, value: float) -> float:
        """Where between its ends a value lies, 0..1."""
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    @property
    def ticks(self) -> list[float]:
        """Round numbers inside the range."""
        if self.logarithmic:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            marks = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
            return [mark for mark in marks if self.low <= mark <= self.high]
        rough = (self.high - self.low) / 6
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [round(n * step, 10) for n in range(first, last + 1)]


def cloud(
    title: str,
    x: Axis,
    y: Axis,
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    radius: float = 1.8,
    mark: tuple[float, str] | None = None,
) -> str:
    """Dots, those of the first series on top; `mark` is a horizontal line with its name."""
    left, top, width, height = 56, 68, WIDTH - 72, 220

    def across(value: float) -> float:
        return left + x.share(value) * width

    def up(value: float) -> float:
        return top + height * (1 - y.share(value))

    parts = [_text(0, 16, title, weight="bold"), *_legend(list(series), 36)]
    for tick in y.ticks:
        parts.append(_rule(left, up(tick), left + width, up(tick)))
        parts.append(_text(left - 6, up(tick) + 4, f"{tick:,.4g}", anchor="end"))
    for tick in x.ticks:
        parts.append(_text(across(tick), top + height + 16, f"{tick:,.4g}", anchor="middle"))
    parts.append(_text(left + width, top + height + 34, x.title, anchor="end"))
    parts.append(_text(left, top - 8, y.title))
    for number, points in reversed(list(enumerate(series.values()))):
        colour = COLOURS[number % len(COLOURS)]
        parts += [
            f'<circle cx="{across(a):.1f}" cy="{up(b):.1f}" r="{radius}" fill="{colour}"/>'
            for a, b in points
        ]
    if mark is not None:
        parts.append(_rule(left, up(mark[0]), left + width, up(mark[0]), dash="5 4"))
        parts.append(_text(left + width, up(mark[0]) - 4, mark[1], anchor="end"))
    return _svg(parts, top + height + 40)


def _legend(series: Sequence[str], y: float) -> list[str]:
    parts, x = [], 0.0
    for number, name in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{colour}"/>')
        parts.append(_text(x + 15, y, name))
        x += 30 + 7 * len(name)
    return parts


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "") -> str:
    bold = f' font-weight="{weight}"' if weight else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{INK}"{bold}>'
        f"{escape(text)}</text>"
    )


def _rule(x1: float, y1: float, x2: float, y2: float, *, dash: str = "") -> str:
    style = f' stroke-dasharray="{dash}"' if dash else ' stroke-opacity="0.25"'
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{INK}"{style}/>'


def _svg(parts: Sequence[str], height: float) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" '
        f'viewBox="0 0 {WIDTH} {height:.0f}" {FONT}>'
    )
    return "\n".join([head, *parts, "</svg>", ""])
