"""The inline chat (`hobnob --inline`): the app, drawn below what it has printed.

Finished text is in the terminal's own scrollback, where its scrolling, copying and searching
work, and stays there at the end. The mouse is the terminal's.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any, ClassVar

from rich.console import RenderableType
from rich.control import Control
from textual import events
from textual._compositor import InlineUpdate
from textual.driver import Driver
from textual.geometry import Offset, Size
from textual.screen import Screen
from textual.strip import Strip

from hobnob.tui.app import HobnobApp
from hobnob.tui.chat import Chat
from hobnob.tui.inline_driver import (
    BEGIN,
    CLEAR_BELOW,
    END,
    WIPE,
    Frame,
    InlineDriver,
    Shape,
    bare,
    printed,
    rows_up,
)
from hobnob.tui.printed_view import PrintedView
from hobnob.tui.view import TranscriptView

SETTLE_SECONDS = 0.3


def _to_first_row(cursor: Offset) -> str:
    return f"\x1b[{cursor.y}A" if cursor.y else ""


class InlineChat(Chat):
    VIEW: ClassVar[type[TranscriptView]] = PrintedView

    async def on_mount(self) -> None:
        self.composer.cursor_blink = False  # each blink would be a frame

    def leave(self) -> None:
        super().leave()
        view = self.view
        if isinstance(view, PrintedView) and self.is_mounted:
            view.leave()

    def _show_welcome(self) -> None:
        """There is no room for it."""

    def action_find(self) -> None:
        self.app.notify("The terminal's own search finds what is printed; F3 searches everything.")


class InlineApp(HobnobApp):
    CSS_PATH: ClassVar[str | list[str | PurePath] | None] = ["app.tcss", "inline.tcss"]
    CHAT: ClassVar[type[Chat]] = InlineChat
    INLINE_PADDING = 0
    RUN: ClassVar[dict[str, Any]] = {"inline": True, "mouse": False}
    AGAIN: ClassVar[Sequence[str]] = ("--inline",)

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._above: list[Strip] = []
        self._rows: list[Strip] = []  # of the app, as they are on the screen
        self._cursor = Offset(0, 0)  # below and right of the first of them
        self._drawn: Shape | None = None  # the terminal at the last frame; None: none is on it
        self._seen: Shape | None = None
        self._settled_at = 0.0

    def print_above(self, rows: Sequence[Strip]) -> None:
        """Put finished rows into the scrollback, with the next frame."""
        self._above += rows
        self.screen.refresh()

    @property
    def written(self) -> int:
        return self._driver.written if isinstance(self._driver, InlineDriver) else 0

    # ---- drawing ------------------------------------------------------------------------------

    def _build_driver(
        self, headless: bool, inline: bool, mouse: bool, size: tuple[int, int] | None
    ) -> Driver:
        if headless:
            return super()._build_driver(headless, inline, mouse, size)
        self._driver = InlineDriver(self, mouse=mouse, size=size)
        return self._driver

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        ready = self._running and not self._closed and not self._batch_count
        driver = self._driver
        if not (
            ready and isinstance(driver, InlineDriver) and isinstance(renderable, InlineUpdate)
        ):
            super()._display(screen, renderable)
            return
        shape, drawn = driver.shape, self._drawn
        if drawn and self._is_changing(shape):
            return
        size = shape.size
        changed = shape != drawn  # one that was lower, if only for a moment, may have cut rows off
        if drawn and size.width != drawn.size.width:
            lengths = [row.cell_length for row in self._rows]
            self._cursor = rows_up(lengths, self._cursor, size.width)
        ground = self.screen.rich_style
        # The app may not know yet that the terminal is lower: more rows would only scroll away.
        hidden = max(0, len(renderable.strips) - size.height)
        fitting = renderable.strips[hidden:]
        rows = [bare(strip.crop(0, size.width), ground) for strip in fitting]
        above, self._above = self._above, []
        if rows == self._rows and not above and not changed:
            return
        frame = Frame(
            rows,
            above,
            self._rows,
            clear=renderable.clear or changed or len(rows) < len(self._rows),
        )
        written = frame.render_segments(self.console)
        back = _to_first_row(self._cursor)
        self._cursor = self._wanted_cursor(Size(size.width, len(rows)), hidden)
        driver.write("".join([BEGIN, back, written, Control.move(*self._cursor).segment.text, END]))
        driver.show()
        self._rows = rows
        self._drawn = self._seen = shape
        self.post_display_hook()

    def _wanted_cursor(self, frame: Size, hidden: int) -> Offset:
        """Where the input says, which may have heard of another layout, but within the rows: below
        them the terminal might not let the cursor go, and the next frame would begin too high."""
        x, y = self.cursor_position - Offset(0, hidden)
        return Offset(max(0, min(x, frame.width - 1)), max(0, min(y, frame.height - 1)))

    def _is_changing(self, shape: Shape) -> bool:
        """Whether the terminal was made another size just now. What is drawn meanwhile could be
        wrapped or cut off by a terminal that is already another size than it says."""
        now = time.monotonic()
        if shape != self._seen:
            self._seen, self._settled_at = shape, now + SETTLE_SECONDS
            self.set_timer(SETTLE_SECONDS, lambda: self.screen.refresh())
        return now < self._settled_at

    def on_resize(self, event: events.Resize) -> None:
        """Textual lays out for another size only; the rows are also drawn anew after a size that
        came and went. Before the first frame there is nothing to mend."""
        if self._drawn:
            self.screen.refresh()

    def _leave_rows(self) -> None:
        """Take the app's rows off the screen, print what waits; the cursor is below it."""
        driver = self._driver
        if not isinstance(driver, InlineDriver):
            return
        above, self._above = self._above, []
        rows = printed(above, self.console)
        wiped = CLEAR_BELOW if rows else WIPE
        driver.write("".join([_to_first_row(self._cursor), "\r", *rows, wiped]))
        driver.show()
        self._cursor, self._drawn, self._rows = Offset(0, 0), None, []

    def leave_screen(self) -> None:
        self._leave_rows()

    # ---- stopping and going on ----------------------------------------------------------------

    def on_mount(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTSTP, self.action_suspend_process)

    def action_suspend_process(self) -> None:
        with self.suspend():
            os.kill(os.getpid(), signal.SIGSTOP)

    @contextmanager
    def suspend(self) -> Iterator[None]:
        self._leave_rows()
        with super().suspend():
            yield
        self.refresh(layout=True)
