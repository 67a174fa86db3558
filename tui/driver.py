"""The terminal under the full screen and the inline chat, as Textual's drivers have it, but read
through incoming.py."""

from __future__ import annotations

import os
import select
from threading import Event

from textual import events
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

from hobnob.tui.incoming import Incoming

READ_BYTES = 4096
LOOK_SECONDS = 0.1
"""How often the reading looks whether it is to end."""


class ReadingDriver(Driver):
    """Before one of Textual's: its thread that reads."""

    fileno: int
    exit_event: Event

    def run_input_thread(self) -> None:
        incoming = Incoming()
        while not self.exit_event.is_set():
            found: list[Message] = []
            if select.select([self.fileno], [], [], incoming.wait(LOOK_SECONDS))[0]:
                data = os.read(self.fileno, READ_BYTES)
                if not data:  # it has gone, and the signal that says so comes
                    self.exit_event.wait(LOOK_SECONDS)
                found = incoming.feed(data)
            for message in [*found, *incoming.lapse()]:
                self.process_message(message)


class FullDriver(ReadingDriver, LinuxDriver):
    def process_message(self, message: Message) -> None:
        """A size is only believed from a terminal that was asked for it."""
        if not isinstance(message, events.Resize) or self._in_band_window_resize:
            super().process_message(message)
