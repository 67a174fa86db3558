"""Drawing below the scrollback: what is finished goes above the app's rows and stays there.

Textual's inline driver draws the app where the cursor is. Here it can also be stopped and
continued, does not wipe the screen at a resize, and writes each frame in one piece.
"""

from __future__ import annotations

import asyncio
import io
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType
from typing import Any, NamedTuple

from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual._compositor import InlineUpdate
from textual.drivers.linux_inline_driver import LinuxInlineDriver
from textual.geometry import Offset, Size
from textual.message import Message
from textual.strip import Strip

from hobnob.tui.driver import ReadingDriver

BEGIN, END = "\x1b[?2026h", "\x1b[?2026l"
"""Around a frame: a terminal that knows them shows it as one change."""
CLEAR_LINE, CLEAR_BELOW = "\x1b[K", "\x1b[J"
"""The second only ever below a row: tmux moves what it clears from the screen's very first cell
into its history, where a frame would stay."""


class Shape(NamedTuple):
    """Of the terminal. One that was lower for a moment is as high as before, but without the rows
    that it has cut off; so the resizes are counted."""

    size: Size
    resizes: int


class InlineDriver(ReadingDriver, LinuxInlineDriver):
    LEAVES = f"\r{CLEAR_BELOW}"

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        descriptor = sys.__stdout__.fileno() if sys.__stdout__ else 1
        raw = io.FileIO(descriptor, "w", closefd=False)
        self._file = io.TextIOWrapper(
            io.BufferedWriter(raw, 1 << 20), "utf-8", errors="replace", newline=""
        )

        self.written = 0
        """Characters so far."""
        self._resizes = 0

    def write(self, data: str) -> None:
        self.written += len(data)
        super().write(data)

    @property
    def can_suspend(self) -> bool:
        return True

    @property
    def shape(self) -> Shape:
        """As it is now; the app hears of a change a little later."""
        return Shape(Size(*self._get_terminal_size()), self._resizes)

    def process_message(self, message: Message) -> None:
        """The terminal was not asked to tell its size here."""
        if not isinstance(message, events.Resize):
            super().process_message(message)

    def show(self) -> None:
        """Let the terminal have what was written."""
        assert self._file is not None
        self._file.flush()

    def start_application_mode(self) -> None:
        super().start_application_mode()
        loop = asyncio.get_running_loop()

        def resized(number: int, frame: FrameType | None) -> None:
            self._resizes += 1
            size = Size(*self._get_terminal_size())
            message = events.Resize(size, size)
            asyncio.run_coroutine_threadsafe(self._app._post_message(message), loop)

        signal.signal(signal.SIGWINCH, resized)


WIPE = f"{CLEAR_LINE}\r\n{CLEAR_BELOW}\x1b[1A"
"""Clears the cursor's row and all below."""


class Frame(InlineUpdate):
    """One frame: finished rows, and below them the app, whose first row the cursor is at again.

    Of the app's rows only what is not as in the rows `before` is written.
    """

    def __init__(
        self, app: Sequence[Strip], above: Sequence[Strip], before: Sequence[Strip], *, clear: bool
    ) -> None:
        super().__init__(list(app), clear)
        self._above = above
        self._before = () if clear or above else before

    def render_segments(self, console: Console) -> str:
        out = ["\r", *printed(self._above, console)]
        if self._above:
            out.append(CLEAR_BELOW)
        elif self.clear:
            out.append(WIPE)
        at = 0
        for number, row in enumerate(self.strips):
            before = self._before[number] if number < len(self._before) else Strip([])
            if number < len(self._before) and before == row:
                continue
            kept = alike(before, row)
            skipped = f"\x1b[{kept}C" if kept else ""
            new = row.crop(kept).render(console)
            out += [self._down(at, number), "\r", skipped, CLEAR_LINE, new]
            at = number
        out.append(f"\x1b[{at}A\r" if at else "\r")
        return "".join(out)

    def _down(self, at: int, to: int) -> str:
        """From row to row: those that are there already are passed, the others made."""
        there = max(at, min(to, len(self._before) - 1))
        passed = f"\x1b[{there - at}B" if there > at else ""
        return passed + "\r\n" * (to - there)


def alike(one: Strip, other: Strip) -> int:
    """How many cells at the beginning of two rows are the same. Only up to the first character
    that terminals might not agree on the width of."""
    count = 0
    for (a, style), (b, other_style) in zip(_letters(one), _letters(other), strict=False):
        if a != b or style != other_style or not a.isascii():
            break
        count += 1
    return count


def _letters(strip: Strip) -> Iterator[tuple[str, Style | None]]:
    for text, style, _ in strip:
        for letter in text:
            yield letter, style


def printed(strips: Iterable[Strip], console: Console) -> list[str]:
    """Rows as they go into the scrollback."""
    return [f"{CLEAR_LINE}{strip.render(console)}\r\n" for strip in strips]


def bare(strip: Strip, ground: Style | None = None) -> Strip:
    """Without empty cells at the end of the row, so that a terminal that becomes narrower has
    nothing to wrap; and without the background, where that is `ground`'s if one is given."""
    segments = [_without_background(segment, ground) for segment in strip]
    while segments and _is_empty(segments[-1]):
        segments.pop()
    if segments and not _is_seen(segments[-1].style):
        text, style, control = segments[-1]
        segments[-1] = Segment(text.rstrip(" "), style, control)
    return Strip(segments)


def _without_background(segment: Segment, ground: Style | None) -> Segment:
    style = segment.style
    if style is None or (ground is not None and style.bgcolor != ground.bgcolor):
        return segment
    return Segment(segment.text, style.without_color + Style(color=style.color))


def _is_empty(segment: Segment) -> bool:
    return not segment.text.strip(" ") and not _is_seen(segment.style)


def _is_seen(style: Style | None) -> bool:
    """Whether empty cells of this style look like something."""
    if style is None:
        return False
    return bool(style.bgcolor or style.reverse or style.underline or style.strike)


def rows_up(lengths: Sequence[int], cursor: Offset, width: int) -> Offset:
    """Where the cursor is below the first of some rows after the terminal has become `width`
    wide and has wrapped those that no longer fit."""
    width = max(width, 1)
    above = sum(max(1, -(-length // width)) for length in lengths[: cursor.y])
    return Offset(cursor.x % width, above + cursor.x // width)
