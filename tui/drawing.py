"""An app whose words are only words, and that draws them in few bytes (see picture.py)."""

from __future__ import annotations

import os
from typing import Any

from rich.console import RenderableType
from textual import events
from textual.app import App, ScreenStackError
from textual.notifications import SeverityLevel
from textual.screen import Screen

from hobnob.tui.clean import clean
from hobnob.tui.driver import FullDriver, ReadingDriver
from hobnob.tui.notices import Notices
from hobnob.tui.picture import Picture, abilities

MOST_NOTICE_CHARS = 1000


class DrawingApp(App[int]):
    def __init__(self, *, ansi_color: bool | None = None) -> None:
        super().__init__(driver_class=FullDriver, ansi_color=ansi_color)
        self._picture = Picture(abilities(os.environ.get("TERM", "")))

    @property
    def written(self) -> int:
        """Characters written to the terminal so far."""
        return self._picture.written

    def let_go(self) -> None:
        """Give the terminal back at once; the process dies."""
        if isinstance(self._driver, ReadingDriver):
            self._driver.let_go()

    def on_mount(self) -> None:
        self.app_resume_signal.subscribe(self, lambda _: self._picture.forget())

    def on_resize(self, event: events.Resize) -> None:
        self._picture.forget()

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        super()._display(screen, self._picture.drawing(renderable))

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,
    ) -> None:
        """Tell something that may quote a server or a file; what does not fit is left out."""
        words = clean(message).expandtabs(4)
        if len(words) > MOST_NOTICE_CHARS:
            words = words[: MOST_NOTICE_CHARS - 1] + "…"
        super().notify(
            words,
            title=title,
            severity=severity,
            timeout=timeout,
            markup=markup,
        )

    def _refresh_notifications(self) -> None:
        """In the rows that the screen has for them; where it has none, over what is there."""
        try:
            rows = self.screen.query(Notices)
        except ScreenStackError:
            return
        for one in rows:
            self.call_later(one.show, self._notifications)
        if not rows:
            super()._refresh_notifications()
