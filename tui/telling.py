"""A reply told line after line: its text in whole sentences, and in words what is waited for.

For screen readers and terminals that only know how to add to what they show: nothing that was
told is ever taken back. Pure: the time is given, and what to write goes to a function.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from hobnob.tui import words
from hobnob.tui.clean import Cleaner, one_line
from hobnob.tui.transcript import REASONING, Entry, Part, Phase

PATIENCE_SECONDS = 1.0
"""What is over sooner than this is not worth a word."""
REPEAT_SECONDS = 5.0
"""A state that lasts is told again, if its words have changed, not more often than this."""
LONG_CHARS = 300
"""A sentence longer than this is told in parts, between words."""

_SENTENCE = re.compile(r"[.!?…:;][\"'”’»)\]*_`]*[ \t]+|[。！？；：][」』”’]?")


def whole(text: str) -> int:
    """How much of a growing text makes whole lines and sentences by now."""
    at = text.rfind("\n") + 1
    for found in _SENTENCE.finditer(text, at):
        at = found.end()
    if len(text) - at > LONG_CHARS:
        at = max(at, text.rfind(" ") + 1) if " " in text[at:] else len(text)
    return at


class Telling:
    """One reply from its acceptance to its end. `write` gets harmless text, a piece at a time."""

    def __init__(self, entry: Entry, write: Callable[[str], None]) -> None:
        self._entry = entry
        self._write = write
        self._cleaner = Cleaner()
        self._held = ""  # text that does not make a whole sentence yet
        self._at_start = True  # of a line
        self._named = False
        self._read: dict[int, tuple[Part, int, int]] = {}
        self._told: set[str] = set()
        self._trouble = ""
        self._phase: Phase | None = None
        self._phase_since = 0.0
        self._state = ""
        self._state_at = float("-inf")

    def update(self, now: float) -> None:
        """Tell what is new. To be called at each change, and now and then between."""
        self._tell_state(now)
        self._tell_notes()
        self._held += self._cleaner.push(self._new_text())
        self._text(whole(self._held))

    def pass_over(self) -> None:
        """What there is of the reply is not to be told. Before anything else."""
        self._new_text()

    def finish(self) -> None:
        """The reply has ended, or is followed no longer: what is left, and how it ended."""
        self._held += self._cleaner.push(self._new_text()) + self._cleaner.flush()
        self._text(len(self._held))
        self._tell_notes()
        self._end_line()
        if thoughts := self.thoughts:
            self._say(f"it thought for {len(thoughts.split())} words; /thoughts tells them")
        if self._entry.live:
            return
        for sentence in (words.failure(self._entry), words.stop(self._entry)):
            if sentence:
                self._say(sentence)
        if self._entry.cut:
            self._say("/continue goes on with it")

    @property
    def thoughts(self) -> str:
        return "".join(part.text for part in self._entry.parts if part.kind == REASONING)

    # ---- the text -----------------------------------------------------------------------------

    def _new_text(self) -> str:
        out = []
        for number, part in enumerate(self._entry.parts):
            if part.kind != REASONING:
                out.append(self._fresh(number, part))
        return "".join(out)

    def _fresh(self, number: int, part: Part) -> str:
        """What a part has got since it was read last. It may be another one with the same text:
        a reply that was opened from the history is read from the log a second time."""
        known, pieces, chars = self._read.get(number, (part, 0, 0))
        if known is part:
            text, pieces = part.since(pieces)
        else:
            text, pieces = part.text[chars:], part.since(0)[1]
        self._read[number] = (part, pieces, chars + len(text))
        return text

    def _text(self, length: int) -> None:
        text, self._held = self._held[:length], self._held[length:]
        if not text:
            return
        if not self._named:
            self._named = True
            self._write(f"{one_line(self._entry.model or 'Assistant')}: ")
        self._write(text)
        self._at_start = text.endswith("\n")

    # ---- what happens -------------------------------------------------------------------------

    def _tell_state(self, now: float) -> None:
        entry = self._entry
        if entry.trouble:
            if entry.trouble != self._trouble:
                self._say(words.state(entry))
            self._trouble = entry.trouble
            return
        if self._trouble:
            self._trouble = ""
            self._say("connected again")
        if entry.phase is not self._phase:
            self._phase, self._phase_since = entry.phase, now
            self._state, self._state_at = "", float("-inf")
        if entry.phase is Phase.WRITING:
            state = "thinking…" if self._only_thoughts() else ""
        else:
            state = words.state(entry)
        lasts = now - self._phase_since >= PATIENCE_SECONDS
        if state and lasts and state != self._state and now - self._state_at >= REPEAT_SECONDS:
            self._state, self._state_at = state, now
            self._say(state)

    def _only_thoughts(self) -> bool:
        return bool(self._entry.parts) and self._entry.parts[-1].kind == REASONING

    def _tell_notes(self) -> None:
        entry = self._entry
        notes = list(entry.notes)
        if entry.not_saved:
            notes.append(f"the reply is not being saved: {entry.not_saved}")
        if entry.context is not None and entry.context.left_out:
            notes.append(_left_out(len(entry.context.left_out)))
        for note in notes:
            if note not in self._told:
                self._told.add(note)
                self._say(note)

    def _say(self, sentence: str) -> None:
        """Words of ours, on a line of their own."""
        self._end_line()
        self._write(f"hobnob: {one_line(sentence)}\n")

    def _end_line(self) -> None:
        if not self._at_start:
            self._write("\n")
            self._at_start = True


def _left_out(count: int) -> str:
    if count == 1:
        return "the oldest message had no room and is not in the prompt"
    return f"the oldest {count} messages had no room and are not in the prompt"
