"""The terminal under the full screen and the inline chat, as Textual's drivers have it, but read
through incoming.py."""

from __future__ import annotations

import os
import select
import termios
from contextlib import suppress
from threading import Event, main_thread
from typing import Any, ClassVar

from textual import events
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

from hobnob.tui.incoming import Incoming

READ_BYTES = 4096
SWITCHES_OFF = "".join(f"\x1b[?{mode}l" for mode in (2026, 2004, 1000, 1003, 1015, 1006, 1004))
LOOK_SECONDS = 0.1
"""How often the reading looks whether it is to end."""


class ReadingDriver(Driver):
    """Before one of Textual's: its thread that reads, and how the terminal is left in a hurry."""

    fileno: int
    exit_event: Event
    attrs_before: list[Any] | None
    _file: Any
    LEAVES: ClassVar[str] = ""

    def let_go(self) -> None:
        """Give the terminal back at once: the process dies, whatever state all else is in. So this
        waits for no thread and takes no lock."""
        if self.attrs_before is None:
            return
        out = f"{SWITCHES_OFF}\x1b[<u{self.LEAVES}\x1b[0m\x1b[?25h"
        with suppress(OSError):
            os.write(self._file.fileno(), out.encode())
        with suppress(termios.error):
            termios.tcsetattr(self.fileno, termios.TCSANOW, self.attrs_before)

    def run_input_thread(self) -> None:
        incoming = Incoming()
        # An app that ended in an error may not come to say so, and a process waits for its threads.
        while not self.exit_event.is_set() and main_thread().is_alive():
            found: list[Message] = []
            if select.select([self.fileno], [], [], incoming.wait(LOOK_SECONDS))[0]:
                data = os.read(self.fileno, READ_BYTES)
                if not data:  # it has gone, and the signal that says so comes
                    self.exit_event.wait(LOOK_SECONDS)
                found = incoming.feed(data)
            for message in [*found, *incoming.lapse()]:
                self.process_message(message)


class FullDriver(ReadingDriver, LinuxDriver):
    LEAVES = "\x1b[?2048l\x1b[?1016l\x1b[?7h\x1b[?1049l"

    def process_message(self, message: Message) -> None:
        """A size is only believed from a terminal that was asked for it."""
        if not isinstance(message, events.Resize) or self._in_band_window_resize:
            super().process_message(message)
