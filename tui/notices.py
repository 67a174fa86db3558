"""What was told a moment ago, in rows of its own above the input: it lies over no text.

Mostly in the row of hints, which is empty most of the time: then nothing on the screen moves.
"""

from __future__ import annotations

from textual.content import Content
from textual.notifications import Notification, Notifications
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Static

MOST_SHOWN = 3
SOON_SECONDS = 0.05
LOOKS = {"information": "", "warning": "$warning", "error": "$error"}


class Notices(Static):
    def __init__(self) -> None:
        super().__init__(id="notices", markup=False)
        self.display = False
        self._expiry: Timer | None = None

    def show(self, told: Notifications) -> None:
        """The newest that have not had their time, until they have."""
        newest = {_words(one): one for one in told}  # the same twice is one
        shown = list(newest.values())[-MOST_SHOWN:]
        if not shown and not self.display:
            return
        self.update(Content("\n").join([_drawn(one) for one in shown]))
        self.display = bool(shown)
        if isinstance(self.parent, Widget):
            self.parent.set_class(self.display, "told")
        if self._expiry is not None:
            self._expiry.stop()
        if shown:
            soonest = max(min(one.time_left for one in shown), SOON_SECONDS)
            self._expiry = self.set_timer(soonest, lambda: self.show(told))

    def on_click(self) -> None:
        self.app.clear_notifications()


def _words(one: Notification) -> str:
    return f"{one.title}: {one.message}" if one.title else one.message


def _drawn(one: Notification) -> Content:
    return Content.styled(_words(one), LOOKS[one.severity])
