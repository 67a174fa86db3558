"""Screens as Textual's compositor hands them over, and terminals that show what is written."""

from __future__ import annotations

from collections.abc import Sequence

import pyte
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.geometry import Region
from textual.strip import Strip

Look = list[list[tuple[str, str]]]
"""Rows of text and style, each as wide as the screen."""


class Coloured(pyte.Screen):
    """Fills what scrolls in with the background in use, as the terminals do that say `bce`."""

    def index(self) -> None:
        _, bottom = self.margins or pyte.screens.Margins(0, self.lines - 1)
        scrolls = self.cursor.y == bottom
        super().index()
        if scrolls:
            for x in range(self.columns):
                self.buffer[bottom][x] = self.cursor.attrs._replace(data=" ")


class Shown:
    """A terminal in memory."""

    def __init__(self, width: int, height: int, *, coloured: bool = False) -> None:
        self.screen = (Coloured if coloured else pyte.Screen)(width, height)
        self._stream = pyte.Stream(self.screen)

    def write(self, data: str) -> None:
        self._stream.feed(data)

    def resize(self, width: int, height: int) -> None:
        self.screen.resize(height, width)

    def rows(self) -> list[str]:
        """The text of each row."""
        return list(self.screen.display)

    def cells(self) -> list[list[tuple[object, ...]]]:
        """What is seen: of a blank only what is behind it."""
        return [
            [_seen(self.screen.buffer[y][x]) for x in range(self.screen.columns)]
            for y in range(self.screen.lines)
        ]


def _seen(char: pyte.screens.Char) -> tuple[object, ...]:
    behind = (char.data, char.bg, char.underscore, char.reverse, char.strikethrough)
    return behind if char.data == " " else (*behind, char.fg, char.bold, char.italics)


def strip(row: Sequence[tuple[str, str]]) -> Strip:
    return Strip([Segment(text, Style.parse(style)) for text, style in row])


def whole(look: Look, width: int) -> LayoutUpdate:
    """The update that draws everything."""
    return LayoutUpdate([[strip(row)] for row in look], Region(0, 0, width, len(look)))


def part(look: Look, width: int, rows: Sequence[int], cuts: Sequence[int] = ()) -> ChopsUpdate:
    """The update that draws some rows, each cut into pieces at some columns."""
    ends = [*cuts, width]
    starts = [0, *cuts]
    chops: list[dict[int, Strip | None]] = []
    for y, row in enumerate(look):
        pieces: Sequence[Strip | None] = [None] * len(ends)
        if y in rows:
            pieces = strip(row).divide(ends)
        chops.append(dict(zip(starts, pieces, strict=True)))
    spans = [(y, 0, width) for y in sorted(rows)]
    return ChopsUpdate(chops, spans, [ends] * len(look))
