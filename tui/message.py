"""The widget of one message: a single widget however long the message is.

Draws rows on demand through Textual's line API, so finished rows cost nothing while the rest
streams. Owns focus, clicks and mouse selection of a message; what keys do is the chat's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from hobnob.tui import finding, looks
from hobnob.tui.growing import Growing
from hobnob.tui.inline import Span
from hobnob.tui.key_bar import Hints
from hobnob.tui.message_rows import MessageRows
from hobnob.tui.rows import EMPTY, Row
from hobnob.tui.transcript import USER, Entry

MINE: Hints = (
    "message.copy copy",
    "message.edit edit",
    "message.regenerate new reply",
    "message.leave input",
    "message.up/message.down others",
    "message.earlier/message.later versions",
    "message.find find",
    "app.help keys",
)
REPLY: Hints = (
    "message.copy copy",
    "message.copy_code copy code",
    "message.regenerate new reply",
    "message.leave input",
    "message.up/message.down others",
    "message.earlier/message.later versions",
    "message.fold thoughts",
    "app.help keys",
)


class MessageView(Growing, Widget, can_focus=True):
    ALLOW_SELECT = True
    FOCUS_ON_CLICK = False
    """Who clicks or selects goes on typing in the input; single keys are for who came by keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "wish('copy')", "Copy message", id="message.copy"),
        Binding("c", "wish('copy_code')", "Copy code", id="message.copy_code"),
        Binding("e", "wish('edit')", "Edit and resend", id="message.edit"),
        Binding("r", "wish('regenerate')", "New reply", id="message.regenerate"),
        Binding("m", "wish('go_on')", "More of a cut reply", id="message.go_on"),
        Binding("left", "wish('earlier')", "Version before", id="message.earlier"),
        Binding("right", "wish('later')", "Version after", id="message.later"),
        Binding("o,enter", "fold", "Open or close", id="message.fold"),
        Binding("up,k", "wish('up')", "Message above", id="message.up"),
        Binding("down,j", "wish('down')", "Message below", id="message.down"),
        Binding("g,home", "wish('first')", "First message", id="message.first"),
        Binding("G,end", "wish('last')", "Last message", id="message.last"),
        Binding("ctrl+u", "wish('half_up')", "Scroll up half a page", id="message.half_up"),
        Binding("ctrl+d", "wish('half_down')", "Scroll down half a page", id="message.half_down"),
        Binding("slash", "wish('find')", "Find", id="message.find"),
        Binding("n", "wish('match')", "Next match, an older one", id="message.match"),
        Binding("N", "wish('match_back')", "Match before, a newer one", id="message.match_back"),
        Binding("escape,i", "wish('leave')", "Back to the input", id="message.leave"),
    ]
    HELP = (
        "Its keys act on it alone. Copy code again: the block before. Esc goes back to the input."
    )

    @dataclass
    class Wish(Message):
        """The user wants something done with a message."""

        view: MessageView
        what: str

    @dataclass
    class CopyCode(Message):
        """A code block's copy label was clicked."""

        view: MessageView
        number: int

    def __init__(self, entry: Entry) -> None:
        self._keeps_rows = False  # while a layout changes the height alone
        super().__init__(classes="user" if entry.role == USER else "reply")
        self.entry = entry
        self._layout_rows: MessageRows | None = None
        self._drawn_rows: MessageRows | None = None  # those of the last layout
        self._strips: dict[int, Strip] = {}
        self._styles_of: dict[str, Style] = {}
        self._wanted: finding.Wanted | None = None
        self._current: int | None = None
        self._places: list[list[finding.Place]] | None = None  # None: not looked for yet
        self._places_in: dict[int, list[tuple[int, int, int]]] = {}
        """By row: the number of a match, and the columns of its part in that row."""

    @property
    def key_hints(self) -> Hints:
        return MINE if self.entry.role == USER else REPLY

    @property
    def rows(self) -> list[Row]:
        return self._layout_rows.rows if self._layout_rows else []

    @property
    def layout_rows(self) -> MessageRows | None:
        """The rows of the present width; None before the first layout."""
        return self._layout_rows

    def sync(self) -> None:
        """The entry has changed: draw what is new."""
        made = self._layout_rows
        if made is None:
            self.refresh(layout=True)
            return
        before = len(made.rows)
        first = made.update()
        self._places = None
        for y in range(first, before):
            self._strips.pop(y, None)
        changed = Region(0, first, self.size.width, max(before, len(made.rows)) - first)
        if len(made.rows) != before:
            self._set_dirty(changed)
            self.refresh(layout=True, repaint=False)
        elif first < before:
            self.refresh(changed)

    def set_left_out(self, left_out: bool) -> None:
        """Show whether the message was left out of the last prompt."""
        self.set_class(left_out, "left-out")
        if self._layout_rows and self._layout_rows.left_out != left_out:
            self._layout_rows.left_out = left_out
            self.sync()

    def mark(self, wanted: finding.Wanted | None, current: int | None = None) -> None:
        """Show every match of a text, one of them as the one that is looked at."""
        if (wanted, current) == (self._wanted, self._current):
            return
        if wanted is not self._wanted:
            self._places = None
        self._wanted, self._current = wanted, current
        if current is not None and self._layout_rows is not None and not self._layout_rows.whole:
            self._layout_rows.whole = True  # the match may be in what is not shown
            self.sync()
        self._strips.clear()
        self.refresh()

    def row_of_match(self, number: int) -> int | None:
        """The row in which a match begins; the last one's, when the rows have fewer."""
        places = self._found()
        return places[min(number, len(places) - 1)][0][0] if places else None

    def _found(self) -> list[list[finding.Place]]:
        made = self._layout_rows
        if self._wanted is None or made is None:
            return []
        if self._places is None:
            self._places = [
                place
                for low, high in made.texts
                for place in finding.places(made.rows[low:high], low, self._wanted)
            ]
            self._places_in = {}
            for number, parts in enumerate(self._places):
                for row, start, end in parts:
                    self._places_in.setdefault(row, []).append((number, start, end))
        return self._places

    def action_fold(self) -> None:
        """The thoughts of a reply; the rest of a long message."""
        made = self._layout_rows
        if made is None:
            return
        if self.entry.role == USER:
            made.whole = not made.whole
            for around in self.ancestors:
                if made.whole and isinstance(around, Widget):
                    around.release_anchor()  # who opens it reads here, not at the end
        else:
            made.folded = not made.folded if made.folded is not None else self.entry.live
        self.sync()

    def action_wish(self, what: str) -> None:
        self.post_message(self.Wish(self, what))

    # ---- drawing ------------------------------------------------------------------------------

    def get_content_width(self, container: Size, viewport: Size) -> int:
        return container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        self._fit(width)
        return max(len(self.rows), 1)

    def _fit(self, width: int) -> None:
        """Have the rows of a width."""
        made = self._layout_rows
        if made is not None and made.width == max(width, 1):
            return
        fresh = MessageRows(self.entry, width)
        fresh.whole = self._current is not None if made is None else made.whole
        if made is not None:
            fresh.folded = made.folded
        fresh.left_out = self.has_class("left-out")
        fresh.update()
        self._layout_rows = fresh
        self._places = None
        self._strips.clear()

    def _size_updated(
        self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True
    ) -> bool:
        """Only higher or lower: `sync` has said which rows are to be drawn again, and in a reply
        that streams these are few. Textual would take all of them for changed.

        Textual remembers the heights of widths it had before and does not ask again. The rows are
        then those of another width, and there may be more of them than when it asked."""
        self._keeps_rows = size.width == self._size.width
        updated = super()._size_updated(size, virtual_size, container_size, layout)
        self._keeps_rows = False
        if self._layout_rows is not None:
            self._fit(self.size.width)
        if self._layout_rows is not self._drawn_rows:
            self._drawn_rows = self._layout_rows
            self._set_dirty()
            if len(self.rows) > self.size.height:
                self.refresh(layout=True)
        return updated

    def _set_dirty(self, *regions: Region) -> None:
        if regions or not self._keeps_rows:
            super()._set_dirty(*regions)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._styles_of.clear()
        self._strips.clear()

    def render_line(self, y: int) -> Strip:
        if self.size.width < 1:
            return Strip([], 0)
        if y >= len(self.rows):
            return self._draw(EMPTY, None, [])
        row = self.rows[y]
        selection = self.text_selection
        span = selection.get_span(y) if selection is not None else None
        if span is not None:
            return self._draw(row, span, self._marks(y)).apply_offsets(0, y)
        strip = self._strips.get(y)
        if strip is None:
            strip = self._strips[y] = self._draw(row, None, self._marks(y)).apply_offsets(0, y)
        return strip

    def _marks(self, y: int) -> list[tuple[int, int, str]]:
        """What was found in a row, and how it is to look."""
        if self._wanted is None:
            return []
        found = self._found()
        current = None if self._current is None else min(self._current, len(found) - 1)
        return [
            (start, end, "found-now" if number == current else "found")
            for number, start, end in self._places_in.get(y, ())
        ]

    def _draw(
        self, row: Row, selected: tuple[int, int] | None, marks: list[tuple[int, int, str]]
    ) -> Strip:
        spans: Sequence[Span] = row.spans
        for start, end, style in marks:
            spans = _mark(spans, start, end, style)
        if selected is not None:
            spans = _mark(spans, *selected, "selected")
        segments = [Segment(text, self._style(style)) for text, style in spans if text]
        strip = Strip(segments)
        width = self.size.width
        return strip.adjust_cell_length(width, self._style(row.fill))

    def _style(self, names: str) -> Style:
        style = self._styles_of.get(names)
        if style is None:
            style = self.rich_style
            for name in names.split():
                if name == "selected":
                    style += self.screen.get_component_rich_style("screen--selection")
                else:
                    look = looks.PREFIX + name
                    style += self.screen.get_component_rich_style(look, partial=True)
            self._styles_of[names] = style
        return style

    # ---- mouse --------------------------------------------------------------------------------

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text, with rows that were only wrapped joined again."""
        parts: list[str] = []
        for y, row in enumerate(self.rows):
            span = selection.get_span(y)
            if span is None:
                continue
            start, end = span
            if parts:
                parts.append("\n" if row.join is None else row.join)
            parts.append(row.text[start : None if end == -1 else end])
        return ("".join(parts), "\n") if parts else None

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    def on_unmount(self) -> None:
        """Textual remembers each widget's cache long after (an lru_cache that holds `self`):
        a thousand of them with all that was drawn would be 100 MB."""
        self._styles_cache.clear()

    def on_click(self, event: events.Click) -> None:
        y = event.get_content_offset_capture(self).y
        row = self.rows[y] if 0 <= y < len(self.rows) else EMPTY
        if row.action == "fold":
            self.action_fold()
        elif row.action == "copy-code":
            before = sum(one.action == "copy-code" for one in self.rows[:y])
            self.post_message(self.CopyCode(self, before))


def _mark(spans: Sequence[Span], start: int, end: int, name: str) -> list[Span]:
    """The spans with some characters looking otherwise; -1 is the end."""
    out: list[Span] = []
    at = 0
    for text, style in spans:
        low = min(max(start - at, 0), len(text))
        high = len(text) if end == -1 else min(max(end - at, low), len(text))
        out += [(text[:low], style), (text[low:high], f"{style} {name}"), (text[high:], style)]
        at += len(text)
    return out
