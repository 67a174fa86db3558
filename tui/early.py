"""Keys that were typed before there was an input: none of them is lost or changes its place."""

from __future__ import annotations

from textual.events import Key
from textual.widget import Widget

from hobnob.tui.incoming import Incoming


class EarlyKeys:
    def __init__(self, typed: str = "") -> None:
        """`typed` is what the terminal sent before the app read it."""
        incoming = Incoming()
        found = [*incoming.feed(typed.encode()), *incoming.end()] if typed else []
        self._keys = [event for event in found if isinstance(event, Key)]
        self._input: Widget | None = None

    def take(self, key: Key) -> None:
        """A key that nothing had the focus for."""
        if self._input is None:
            self._keys.append(key)
        else:
            self._input.post_message(key)

    def give(self, input: Widget) -> None:
        """There is an input now."""
        self._input = input
        for key in self._keys:
            input.post_message(key)
        self._keys.clear()
