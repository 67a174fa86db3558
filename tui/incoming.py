"""What a terminal sends, as the app's events: keys, the mouse, pastes, its size. No byte of it is
an error, and what is none of these is dropped whole.

Textual's parser is given sequences that are complete, one at a time. By itself it ends the app at
a key that does not exist, and takes for typed what it does not know: a terminal's late answer to
a question for its colours would stand in the input, and the BEL at its end open the editor.
"""

from __future__ import annotations

import re
import time
from codecs import getincrementaldecoder
from collections.abc import Iterable

from textual import constants
from textual._xterm_parser import XTermParser
from textual.events import CursorPosition, Key, Paste
from textual.message import Message

ESC = b"\x1b"
PASTE_BEGINS, PASTE_ENDS = b"\x1b[200~", b"\x1b[201~"

PATIENCE_SECONDS = 1.0
"""For the rest of a sequence that cannot be a key somebody pressed."""
LONGEST_SEQUENCE = 32
"""Textual's parser takes a longer one for typed."""
LONGEST_BEGUN = 4096
MOST_CELLS, LONGEST_SIDE = 500_000, 4_000
"""Of a terminal that says how large it is: above that of a small font on the largest screens."""

_SEQUENCE = re.compile(rb"\x1b\[[0-?]*[ -/]*([@-~])?")
_SHIFTED = re.compile(rb"\x1b\[\d+\$")
"""Of rxvt's keys with Shift; all others are as the standard has them."""
_STRING = re.compile(rb"\x1b(?:\][0-9lL]|P[0-9<-?!]|_[!-~])")
"""How a terminal's answers in words begin: OSC, DCS, APC. Others are Alt and a letter."""
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
_SIZE = re.compile(rb"\x1b\[48;(\d+)[\d:]*;(\d+)[\d:]*;(\d+)[\d:]*;(\d+)[\d:]*t")
_KEPT = ("last_x", "last_y", "mouse_pixels", "terminal_size", "terminal_pixel_size")


class Incoming:
    def __init__(self) -> None:
        self._parser = XTermParser()
        self._decode = getincrementaldecoder("utf-8")("replace").decode
        self._rest = b""  # of a sequence that is not whole yet
        self._in_string = False
        self._pasted: list[bytes] | None = None
        self._due: float | None = None

    def feed(self, data: bytes) -> list[Message]:
        """What was read, in pieces of any length."""
        data = self._rest + data
        found: list[Message] = []
        at = 0
        while at < len(data) and (end := self._next(data, at, found)) is not None:
            at = end
        self._rest = data[at:]
        self._due = None
        if self._pasted is None and (self._rest or self._in_string):
            is_key = len(self._rest) <= 2 and not self._in_string
            patience = constants.ESCAPE_DELAY if is_key else PATIENCE_SECONDS
            self._due = time.monotonic() + patience
        return found

    def lapse(self) -> list[Message]:
        """What is known because nothing more came: to be called now and then."""
        found: list[Message] = []
        if self._due is None or time.monotonic() < self._due:
            self._parse(self._parser.tick(), found)
            return found
        if self._rest == ESC and not self._in_string:
            found.append(_escape())
        elif len(self._rest) == 2 and not self._in_string:
            self._text(self._rest, found)  # Alt and a letter, when the parser has waited too
        self._rest, self._in_string, self._due = b"", False, None
        return found

    def wait(self, most: float) -> float:
        """Seconds until there is something to `lapse`, at most these."""
        return most if self._due is None else max(0.0, min(most, self._due - time.monotonic()))

    def end(self) -> list[Message]:
        """There will be nothing more."""
        if self._due is not None:
            self._due = 0.0
        found = self.lapse()
        self._parse(self._parser.feed(""), found)
        return found

    # ---- pieces -------------------------------------------------------------------------------

    def _next(self, data: bytes, at: int, found: list[Message]) -> int | None:
        """Where the piece at `at` ends; None where that is not known yet."""
        if self._pasted is not None:
            return self._paste(data, at, self._pasted, found)
        if self._in_string:
            return self._string(data, at)
        if not data.startswith(ESC, at):
            return self._until_escape(data, at, found)
        second = data[at + 1 : at + 2]
        if second == b"[":
            return self._sequence(data, at, found)
        if second == ESC:
            found.append(_escape())
            return at + 1
        if begun := _STRING.match(data, at):
            self._in_string = True
            return begun.end()
        if len(data) == at + 1 or (len(data) == at + 2 and second in b"]P_"):
            return None
        return self._until_escape(data, at, found)

    def _until_escape(self, data: bytes, at: int, found: list[Message]) -> int:
        end = data.find(ESC, at + 1)
        if end < 0:
            end = len(data)
        self._text(data[at:end], found, final=end < len(data))
        return end

    def _paste(self, data: bytes, at: int, pasted: list[bytes], found: list[Message]) -> int | None:
        end = data.find(PASTE_ENDS, at)
        if end < 0:
            sure = len(data) - len(PASTE_ENDS) + 1
            if sure <= at:
                return None
            pasted.append(data[at:sure])
            return sure
        whole = b"".join([*pasted, data[at:end]])
        found.append(Paste(whole.decode("utf-8", "replace").replace("\0", "")))
        self._pasted = None
        return end + len(PASTE_ENDS)

    def _string(self, data: bytes, at: int) -> int | None:
        """An answer in words: up to BEL or ST. Any other control is a key that was pressed."""
        control = _CONTROL.search(data, at)
        if control is None:
            return len(data)
        if control.group() == ESC and control.end() == len(data):
            return control.start() if control.start() > at else None
        self._in_string = False
        if control.group() == b"\a":
            return control.end()
        is_end = data.startswith(b"\x1b\\", control.start())
        return control.start() + (2 if is_end else 0)

    def _sequence(self, data: bytes, at: int, found: list[Message]) -> int | None:
        if data.startswith(b"\x1b[M", at):  # the mouse as old terminals have it: three bytes
            return at + 6 if len(data) >= at + 6 else None
        if data.startswith(b"\x1b[[", at):  # the first five function keys of a Linux console
            end = at + 4
            if len(data) < end:
                return None
        else:
            match = _SHIFTED.match(data, at) or _SEQUENCE.match(data, at)
            assert match is not None
            end = match.end()
            if match.re is _SEQUENCE and match.group(1) is None:
                if end == len(data):
                    return None if end - at < LONGEST_BEGUN else end
                if end == at + 2:  # Alt+[
                    self._text(data[at:end], found)
                return end
        self._whole(data[at:end], found)
        return end

    def _whole(self, sequence: bytes, found: list[Message]) -> None:
        if sequence == PASTE_BEGINS:
            self._pasted = []
            return
        known = _believed(sequence)
        if len(known) > LONGEST_SEQUENCE:
            return
        before = len(found)
        self._text(known, found)
        if len(found) == before:
            self._forget()  # the parser would take it for the beginning of another

    def _text(self, data: bytes, found: list[Message], *, final: bool = True) -> None:
        if text := self._decode(data, final):
            self._parse(self._parser.feed(text), found)

    # ---- the parser ---------------------------------------------------------------------------

    def _parse(self, events: Iterable[Message], found: list[Message]) -> None:
        try:
            found += [event for event in events if _is_meant(event)]
        except (ValueError, OverflowError):  # a key that does not exist; the parser is dead now
            self._forget()

    def _forget(self) -> None:
        """Of the parser everything but where the mouse is and how large the terminal."""
        before, self._parser = self._parser, XTermParser()
        for name in _KEPT:
            setattr(self._parser, name, getattr(before, name))


def _escape() -> Key:
    return Key("escape", "\x1b")


def _is_meant(event: Message) -> bool:
    """Nobody asks where the cursor is, and half a character is none."""
    if isinstance(event, Key):
        return not any("\ud800" <= part <= "\udfff" for part in event.key + (event.character or ""))
    return not isinstance(event, CursorPosition)


def _believed(sequence: bytes) -> bytes:
    """A sequence; nothing where it says that the terminal is of a size that none has. One that does
    not know its pixels says 0, which the parser would divide by."""
    match = _SIZE.fullmatch(sequence)
    if match is None:
        return sequence
    rows, columns, high, wide = (int(number) for number in match.groups())
    if not 0 < rows <= LONGEST_SIDE or not 0 < columns <= LONGEST_SIDE:
        return b""
    if rows * columns > MOST_CELLS:
        return b""
    return b"\x1b[48;%d;%d;%d;%dt" % (rows, columns, high or rows, wide or columns)
