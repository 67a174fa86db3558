"""A match that broke off at a small change, and where it goes on after it. Pure.

Whoever copies a text with changes leaves out a token, puts one in or exchanges some, and then goes
on where the text does. A new match of the usual length would be found some tokens later; this one
is taken up again at the first token that stands close behind the break.
"""

from __future__ import annotations

from collections.abc import Sequence

BROKEN_TOKENS = 8
"""A match of so many was no accident: it is worth being taken up again."""
TRIES = 6
"""Tokens after the break that are looked for behind it."""
LEFT_OUT = 6
"""Tokens of the text that may have been left out."""


class Resumed:
    """Of one growing list of tokens, which is only ever added to."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens = tokens
        self._next = 0  # the token after the one that was matched last
        self._broken = 0  # the token that should have come when the match broke
        self._changed = 0  # tokens since then, none of which went on with the text
        self._tries = 0
        self.length = 0
        """Tokens of the match since it was taken up again; 0: there is none."""

    def broke(self, expected: int) -> None:
        """A match broke: this token, by its place, should have come and did not."""
        self._broken, self._changed, self._tries = expected, 0, TRIES
        self.length = 0

    def read(self, end: int) -> bool | None:
        """Takes the token before `end`. Whether the match foretold it; None when there was none."""
        token = self._tokens[end - 1]
        foretold = self._tokens[self._next] == token if self.length else None
        if foretold:
            self._next += 1
            self.length += 1
            return True
        if foretold is False and self.length > 1:
            self.broke(self._next)
        self.length = 0
        if self._tries:
            self._tries -= 1
            self._take_up(token, end)
            self._changed += 1
        return foretold

    def _take_up(self, token: int, end: int) -> None:
        """As many tokens exchanged as are new, or so many put in, or some left out."""
        places = [self._broken + self._changed]
        if self._changed:
            places.append(self._broken)
        places += range(self._broken + 1, self._broken + 1 + LEFT_OUT)
        for at in places:
            if at < end - 1 and self._tokens[at] == token:
                self._next, self.length = at + 1, 1
                return

    def draft(self, most: int) -> list[int]:
        """What follows in the text, as far as that was known."""
        return list(self._tokens[self._next : self._next + most]) if self.length else []
