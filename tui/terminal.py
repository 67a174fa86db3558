"""The terminal under the plain chat: its modes as they were found, whatever happens.

Nothing is echoed but by the line editor, so that what is typed during a reply does not stand in
its text; it is there when the input comes back. Ctrl+Z hands the modes back before it stops us.
"""

from __future__ import annotations

import os
import select
import signal
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hobnob.tui.clean import clean

_IFLAG, _LFLAG, _CC = 0, 3, 6


class Terminal:
    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._found = termios.tcgetattr(descriptor)

    def restore(self) -> None:
        """The modes as they were found; safe to call twice, and when the terminal has gone."""
        self._set(self._found)

    def quieten(self) -> None:
        """Keys are kept for later, unseen; the keys that signal (Ctrl+C, Ctrl+Z) still do."""
        self._set(self._modes(echo=False))

    def typed_ahead(self) -> str:
        """What was typed before `quieten`, Enter being a line feed then."""
        found = b""
        while select.select([self._descriptor], [], [], 0)[0]:
            if not (more := os.read(self._descriptor, 4096)):
                break
            found += more
        return clean(found.decode("utf-8", "replace"))

    @contextmanager
    def echoing(self) -> Iterator[None]:
        """The line editor's: it shows what is typed only where the terminal would."""
        self._set(self._modes(echo=True))
        try:
            yield
        finally:
            self.quieten()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Another program's for a while."""
        now = self._get()
        self.restore()
        try:
            yield
        finally:
            self._set(now)

    def stop_process(self) -> None:
        """What Ctrl+Z asks for: the shell gets its terminal as it was, and we get ours back."""
        with self.lent():
            before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTSTP)
            signal.signal(signal.SIGTSTP, before)  # we were continued

    def _modes(self, *, echo: bool) -> list[Any]:
        modes = [*self._found[:_CC], list(self._found[_CC])]
        modes[_LFLAG] &= ~termios.ICANON
        if not echo:
            modes[_LFLAG] &= ~termios.ECHO
        modes[_IFLAG] &= ~termios.ICRNL  # Enter stays what the line editor knows as Enter
        modes[_CC][termios.VMIN], modes[_CC][termios.VTIME] = 1, 0
        return modes

    def _get(self) -> list[Any]:
        try:
            return termios.tcgetattr(self._descriptor)
        except termios.error:
            return self._found

    def _set(self, modes: list[Any]) -> None:
        try:
            termios.tcsetattr(self._descriptor, termios.TCSANOW, modes)
        except termios.error:
            return  # it is gone
