"""A message on its way into the terminal's scrollback: what can be printed for good, and the rest.

What was printed cannot be changed any more, so a block is only given away when it is closed; the
rows given away while a reply streams are those of one that is loaded. Pure.
"""

from __future__ import annotations

from hobnob.tui import rows
from hobnob.tui.clean import clean
from hobnob.tui.message_rows import MessageRows, PartRows
from hobnob.tui.rows import EMPTY, Row, Tail
from hobnob.tui.transcript import REASONING, USER, Entry, Part, Phase


class Scrolled:
    """Owned by the view that prints it. The width may change between calls."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.begun = False
        """Something of it is printed."""
        self.done = False
        """All of it is."""
        self._part = 0  # the part in work
        self._block = 0  # its blocks that were given away
        self._tail: Tail | None = None
        self._thoughts: PartRows | None = None
        self._tail_width = 0

    def take(self, width: int) -> list[Row]:
        """The rows that are final now, each once, an empty one at the end of the message."""
        entry = self.entry
        if self.done or entry.phase is Phase.SENDING:
            return []
        made = self._user(width) if entry.role == USER else self._closed(width)
        if not entry.live:
            self.done = True
            made += [*MessageRows(entry, width).foot(), EMPTY]
        if made and not self.begun:
            self.begun = True
            made = MessageRows(entry, width).head() + made
        return made

    def rest(self, width: int) -> list[Row]:
        """The rows that may still change, with what is going on below them."""
        if self.done:
            return []
        whole = MessageRows(self.entry, width)
        made = [] if self.begun else whole.head()
        if self.entry.phase is Phase.SENDING:
            return [*made, *self._user(width)]
        return [*made, *self._open(width), *whole.foot()]

    def _user(self, width: int) -> list[Row]:
        return rows.plain(clean(self.entry.text), width)

    def _closed(self, width: int) -> list[Row]:
        parts = self.entry.parts
        made: list[Row] = []
        while self._part < len(parts):
            part = parts[self._part]
            if part.kind != REASONING:
                made += self._blocks(part, width)
            if not part.ended:
                break
            if part.kind == REASONING:
                words = len(part.text.split())
                made += rows.plain(f"▸ thoughts, {words} words", width, "fold")
            if self._part + 1 < len(parts):
                made.append(EMPTY)
            self._part, self._block, self._tail = self._part + 1, 0, None
        return made

    def _blocks(self, part: Part, width: int) -> list[Row]:
        made: list[Row] = []
        for block in part.closed[self._block :]:
            if block.gap:
                made.append(EMPTY)
            made += rows.render(block, width)
            self._block += 1
        return made

    def _thinking(self, part: Part, width: int) -> list[Row]:
        """All of it: when it is over, one row is left."""
        if self._thoughts is None or self._thoughts.part is not part or self._tail_width != width:
            self._thoughts, self._tail_width = PartRows(part, width), width
        self._thoughts.update()
        return self._thoughts.rows

    def _open(self, width: int) -> list[Row]:
        parts = self.entry.parts
        if self._part >= len(parts) or parts[self._part].ended:
            return []
        part = parts[self._part]
        if part.kind == REASONING:
            return self._thinking(part, width)
        if self._tail is None or self._tail_width != width:
            self._tail, self._tail_width = Tail(width), width
        made: list[Row] = []
        for block, drawn in self._tail.rows(self._block, part.open()):
            if block.gap:
                made.append(EMPTY)
            made += drawn
        return made
