"""Screenshots of a terminal app, one after the other, as one animated SVG.

A line of the screen that stays as it is is drawn once for all the time that it is there, so the
picture's size follows what changes and not how often it was looked at. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_STYLE = re.compile(r"\.(\S+-r\d+) \{ (.*?) \}")
_DRAWN = re.compile(
    r'<rect [^>]*shape-rendering[^>]*/>|<text class="[^"]+-r\d+" .*?</text>', re.DOTALL
)
_Y = re.compile(r' y="([\d.]+)"')
_CLASS = re.compile(r'class="([^"]+-r\d+)"')
_CLIP = re.compile(r' clip-path="url\(#[^"]*"')
_BOX = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')
_PLACE = re.compile(r'<g transform="([^"]*)" clip-path')
_MATRIX = re.compile(r"\.\S+-matrix \{(.*?)\}", re.DOTALL)

ROW_HEIGHT = 24.4
"""Of Rich's export_svg, whose layout this reads: a row's rectangles and texts carry its y."""


@dataclass(frozen=True, slots=True)
class Frame:
    at_s: float
    svg: str  # as Textual's export_screenshot gives it


def animated(frames: Sequence[Frame], *, end_s: float) -> str:
    """The frames as one picture that starts again after `end_s` seconds.

    Raises ValueError when there is no frame, or one that is not such a screenshot.
    """
    if not frames:
        raise ValueError("there is nothing to show")
    styles: dict[str, str] = {}  # declarations to class
    shown: dict[tuple[float, str], list[tuple[float, float]]] = {}  # row to spans of time
    for number, frame in enumerate(frames):
        until = frames[number + 1].at_s if number + 1 < len(frames) else end_s
        for row in _rows(frame.svg, styles).items():
            spans = shown.setdefault(row, [])
            if spans and spans[-1][1] == frame.at_s:
                spans[-1] = (spans[-1][0], until)
            else:
                spans.append((frame.at_s, until))
    return _document(frames[0].svg, styles, shown, end_s)


def _rows(svg: str, styles: dict[str, str]) -> dict[float, str]:
    """What is drawn in each row, by its number; `styles` grows with what is new."""
    own = dict(_STYLE.findall(svg))
    if not own:
        raise ValueError("this is not a screenshot of a terminal")
    rows: dict[float, str] = {}
    for drawn in _DRAWN.findall(svg):
        y = _Y.search(drawn)
        if y is None:
            continue
        row = float(y[1]) // ROW_HEIGHT  # a text's is its baseline, which lies in the row too
        rows[row] = rows.get(row, "") + _CLIP.sub("", _shared(drawn, own, styles))
    return rows


def _shared(drawn: str, own: Mapping[str, str], styles: dict[str, str]) -> str:
    """With the class that all frames share for such a style."""

    def named(found: re.Match[str]) -> str:
        return f'class="{styles.setdefault(own[found[1]], f"s{len(styles)}")}"'

    return _CLASS.sub(named, drawn)


def _document(
    first: str,
    styles: Mapping[str, str],
    shown: Mapping[tuple[float, str], Sequence[tuple[float, float]]],
    end_s: float,
) -> str:
    box, matrix, place = _BOX.search(first), _MATRIX.search(first), _PLACE.search(first)
    if box is None or matrix is None or place is None:
        raise ValueError("this is not a screenshot of a terminal")
    rules = "\n".join(f".{name} {{ {rule} }}" for rule, name in styles.items())
    groups = "\n".join(_group(drawn, spans, end_s) for (_, drawn), spans in shown.items())
    return (
        f'<svg viewBox="0 0 {box[1]} {box[2]}" xmlns="http://www.w3.org/2000/svg">\n'
        f"<style>\n.screen {{{matrix[1]}}}\n{rules}\n</style>\n"
        f"{_frame_of(first)}\n"
        f'<g class="screen" transform="{place[1]}">\n{groups}\n</g>\n</svg>\n'
    )


def _frame_of(svg: str) -> str:
    """The window around the screen: the first rectangle, with its colour and rounded corners."""
    found = re.search(r'<rect fill="[^"]*" stroke[^>]*rx="\d+"/>', svg)
    return found[0] if found else ""


def _group(drawn: str, spans: Sequence[tuple[float, float]], end_s: float) -> str:
    if list(spans) == [(0.0, end_s)]:
        return f"<g>{drawn}</g>"
    values, times = ["none"], [0.0]
    for begin, end in spans:
        for at, value in ((begin, "inline"), (end, "none")):
            share = round(min(1.0, at / end_s), 5)
            if share == times[-1]:
                values[-1] = value
            elif share < 1.0:
                values.append(value)
                times.append(share)
    listed = ";".join(f"{time:g}" for time in times)
    return (
        f'<g display="none">{drawn}<animate attributeName="display" values="{";".join(values)}" '
        f'keyTimes="{listed}" dur="{end_s:g}s" calcMode="discrete" repeatCount="indefinite"/></g>'
    )
