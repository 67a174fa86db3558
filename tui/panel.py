"""The F2 panel: what the server does at this moment. Asks once a second, only while it is open.

A column beside the chat; where there is no room for one, a few rows above it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from textual import work
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Static

from hobnob.tui.facts import Section, bar, sections
from hobnob.tui.line import Line
from hobnob.tui.notice import ClientError
from hobnob.tui.transcript import Entry

POLL_SECONDS = 1.0
NAME_COLUMNS = 11


class Panel(VerticalScroll, can_focus=False):
    class Toggled(Message):
        """It was opened or closed."""

    def __init__(
        self, line: Line, reply: Callable[[], Entry | None], connection: Callable[[], str]
    ) -> None:
        """`reply`: the one that is being written; `connection`: its state in words."""
        super().__init__(id="panel")
        self.display = False
        self._line = line
        self._reply = reply
        self._connection = connection
        self._status: dict[str, Any] | None = None
        self._told_at = 0.0
        self._trouble = ""
        self._drawing: Timer | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="facts", markup=False)

    def toggle(self) -> None:
        self.display = not self.display
        if self.display:
            self._status, self._trouble = None, ""
            self._ask()
            self._drawing = self.set_interval(POLL_SECONDS, self._draw)
            self._draw()
        else:
            self.workers.cancel_group(self, "panel")
            if self._drawing is not None:
                self._drawing.stop()
        self.post_message(self.Toggled())

    def on_resize(self) -> None:
        self._draw()

    @work(exclusive=True, group="panel")
    async def _ask(self) -> None:
        """One question at a time; a slow answer makes the next one later, not two."""
        while True:
            try:
                client = await self._line.get()
                self._status = await client.glance()
                self._told_at, self._trouble = time.monotonic(), ""
            except ClientError as error:
                self._trouble = error.message
            self._draw()
            await asyncio.sleep(POLL_SECONDS)

    def _draw(self) -> None:
        found = sections(
            self._status,
            reply=self._reply(),
            connection=self._connection(),
            trouble=self._trouble,
            age_s=time.monotonic() - self._told_at,
        )
        low = self.app.is_inline or self.app.has_class("narrow")
        self.query_one("#facts", Static).update(in_rows(found) if low else in_a_column(found))


def in_rows(found: list[Section]) -> Content:
    """As few as there can be: each section goes on in its row."""
    lines = []
    for section in found:
        facts = " · ".join(f"{row.name} {row.words}".strip() for row in section.rows)
        lines.append(Content.assemble((f"{section.title}  ", "bold $primary"), facts))
    return Content("\n").join(lines)


def in_a_column(found: list[Section]) -> Content:
    lines: list[Content] = []
    for section in found:
        if lines:
            lines.append(Content(""))
        lines.append(Content.styled(section.title, "bold $primary"))
        for row in section.rows:
            name = (row.name.ljust(NAME_COLUMNS) + " ", "$muted") if row.name else ("", "")
            lines.append(Content.assemble(name, row.words))
            if row.filled is not None:
                lines.append(Content.styled(bar(row.filled), "$accent"))
    return Content("\n").join(lines)
