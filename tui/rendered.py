"""A reply's Markdown as a terminal shows it: block after block, each when it is complete. Pure.

What was printed is never touched again: no cursor moves, so it is as good over SSH, in tmux and in
a log of the terminal. Colours are the terminal's own sixteen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hobnob.tui.blocks import Block, Splitter
from hobnob.tui.reply_text import Complete
from hobnob.tui.rows import Row, render

MOST_COLUMNS = 104
"""Rows longer than this are hard to read."""

_STYLES = {
    "heading1": "1;4",
    "heading2": "1",
    "heading3": "1",
    "strong": "1",
    "em": "3",
    "quote": "3",
    "strike": "9",
    "link": "4",
    "table-head": "1",
}
_COLOURS = {
    "code": "36",
    "math": "36",
    "marker": "34",
    "url": "34",
    "rule": "90",
    "code-label": "90",
    "code-keyword": "35",
    "code-string": "32",
    "code-number": "33",
    "code-comment": "90",
    "code-name": "34",
    "code-deleted": "31",
}


class Rendered:
    """Fed with the reply piece by piece; what it gives back is printed at once."""

    def __init__(self, columns: Callable[[], int], environ: Mapping[str, str]) -> None:
        """`columns` is asked for each block: the terminal may have another width by then."""
        self._columns = columns
        self._complete = Complete(Splitter())
        self._begun = False
        self._looks = _STYLES if environ.get("NO_COLOR") else _STYLES | _COLOURS

    def feed(self, text: str) -> str:
        return self._drawn(self._complete.feed(text))

    def end(self) -> str:
        return self._drawn(self._complete.end())

    def _drawn(self, blocks: list[Block]) -> str:
        width = max(1, min(self._columns() - 1, MOST_COLUMNS))  # no terminal wraps a full row
        lines = []
        for block in blocks:
            if block.gap and self._begun:
                lines.append("")
            lines += [self._line(row) for row in render(block, width)]
            self._begun = True
        return "".join(f"{line}\n" for line in lines)

    def _line(self, row: Row) -> str:
        # There is nothing to click on, and no background to fill.
        spans = [(text, style) for text, style in row.spans if "code-copy" not in style]
        while spans and not spans[-1][0].rstrip():
            spans.pop()
        if spans:
            spans[-1] = (spans[-1][0].rstrip(), spans[-1][1])
        return "".join(self._styled(text, style) for text, style in spans)

    def _styled(self, text: str, style: str) -> str:
        codes = ";".join(self._looks[name] for name in style.split() if name in self._looks)
        return f"\x1b[{codes}m{text}\x1b[0m" if codes and text else text
