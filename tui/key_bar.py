"""The row at the foot of a screen that names keys: as many as there is room for, each whole."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widget import Widget

BETWEEN = "   "


class KeyBar(Widget):
    def __init__(self, hints: Sequence[str]) -> None:
        super().__init__(id="keys")
        self._hints = hints

    def render(self) -> Content:
        return Content(fitting(self._hints, self.content_size.width))


def fitting(hints: Sequence[str], width: int) -> str:
    """The last one, which leads to all others, and from the first on what fits beside it."""
    *others, last = hints
    room = width - len(last)
    if room < 0:
        return ""
    shown = []
    for hint in others:
        if len(hint) + len(BETWEEN) <= room:
            room -= len(hint) + len(BETWEEN)
            shown.append(hint)
    return BETWEEN.join([*shown, last])
