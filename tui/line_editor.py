"""The plain chat's input: one line from the terminal, by the system's own line editor.

Whoever set it up to their liking (inputrc, vi keys, a braille display) finds it so here. Where
Python was built without it, the terminal's own editing is what there is.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence

try:
    import readline
except ImportError:  # a Python without it
    readline = None  # type: ignore[assignment]

from hobnob.tui.clean import clean

MORE = "... "
"""Before the next line of a message that goes on."""

WAKE_SECONDS = 0.25
"""A signal that comes while a key is worked on is only seen when the wait for the next key is
interrupted: so it is, now and then."""

Complete = Callable[[str], list[str]]


class LineEditor:
    """Used from the main thread. `read` may be left by an exception of a signal's handler."""

    def __init__(self) -> None:
        self._choices: list[str] = []
        self._before = ""  # the lines above the one in hand
        self._asked = ""
        self._ahead: list[str] = []  # lines that were typed before there was an editor
        self._rest = ""  # and what came after the last one's Enter
        self.reading = False
        self._marks_pastes = os.environ.get("TERM", "dumb") != "dumb"
        signal.signal(signal.SIGALRM, lambda number, frame: None)
        if readline is None:
            return
        readline.set_auto_history(False)
        readline.set_completer_delims("")  # a command is completed as a whole
        if "libedit" in (readline.__doc__ or ""):
            readline.parse_and_bind("bind ^I rl_complete")
        else:
            readline.parse_and_bind("tab: complete")
            if self._marks_pastes:
                readline.parse_and_bind("set enable-bracketed-paste on")
            readline.parse_and_bind(r'"\C-j": "\C-v\C-j"')  # a new line in the message

    @property
    def edits(self) -> bool:
        """Whether there is a line editor."""
        return readline is not None

    @property
    def typed(self) -> str:
        """What is in hand now, not sent."""
        if readline is None or not self.reading:
            return self._before
        return self._before + readline.get_line_buffer()

    @property
    def unbracket(self) -> str:
        """What takes back the marks around pastes that the line editor asks the terminal for."""
        return "\x1b[?2004l" if self.edits and self._marks_pastes else ""

    @property
    def shown(self) -> str:
        """The row as it stands on the screen."""
        line = "" if readline is None else readline.get_line_buffer()
        return self._asked + line.rpartition("\n")[2]

    def take_ahead(self, typed: str) -> None:
        """What was typed before the first `read`, line by line."""
        *self._ahead, self._rest = typed.split("\n")

    def read(
        self,
        asked: str,
        text: str = "",
        *,
        history: Sequence[str] = (),
        complete: Complete | None = None,
    ) -> str:
        """A message, `text` being there to begin with. A backslash before Enter goes on with it.

        Raises EOFError (Ctrl+D on an empty line) and ValueError (what was typed is no text).
        """
        self._before = ""
        if self._ahead:
            print(asked + self._ahead[0])
            return self._ahead.pop(0)
        text, self._rest = text + self._rest, ""
        self._prepare(history, complete)
        line = self._line(asked, text)
        while line.endswith("\\"):
            self._before += line[:-1] + "\n"
            line = self._line(MORE, "")
        whole, self._before = self._before + line, ""
        return clean(whole)

    def _line(self, asked: str, text: str) -> str:
        self._asked = asked
        if readline is not None:
            readline.set_startup_hook(lambda: readline.insert_text(clean(text)))
        self.reading = True
        signal.setitimer(signal.ITIMER_REAL, WAKE_SECONDS, WAKE_SECONDS)
        try:
            return input(asked)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self.reading = False
            if readline is not None:
                readline.set_startup_hook(None)

    def _prepare(self, history: Sequence[str], complete: Complete | None) -> None:
        if readline is None:
            return
        readline.clear_history()
        for one in history:
            readline.add_history(clean(one))
        if complete is None:
            readline.set_completer(None)
            return

        def choice(text: str, number: int) -> str | None:
            if number == 0:
                self._choices = complete(text)
            return self._choices[number] if number < len(self._choices) else None

        readline.set_completer(choice)
