"""The list of conversations: the pinned ones, then the others under the days they were last used.

Shows what it is given; asks for more when its end comes into sight. Titles are only text.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from hobnob.tui.clean import clean
from hobnob.tui.key_bar import Hints
from hobnob.tui.moment import moment
from hobnob.tui.records import Conversation

UNTITLED = "Untitled"
PINNED = "Pinned"
OPEN_SIGN = "▸"
"""Before the conversation that is open: a shade alone is not seen in every terminal."""


class ConversationList(OptionList):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", "Down", id="list.down"),
        Binding("k", "cursor_up", "Up", id="list.up"),
        Binding("g", "first", "First", id="list.first"),
        Binding("G", "last", "Last", id="list.last"),
        Binding("r,f2", "wish('rename')", "Rename", id="list.rename"),
        Binding("p", "wish('pin')", "Pin, or no longer", id="list.pin"),
        Binding("d,delete", "wish('delete')", "Delete", id="list.delete"),
        Binding("u", "wish('undo')", "Undo delete", id="list.undo"),
        Binding("slash", "wish('filter')", "Filter", id="list.filter"),
        Binding("escape", "wish('leave')", "Back to the input", id="list.leave"),
    ]
    key_hints: ClassVar[Hints] = (
        "Enter open",
        "list.filter filter",
        "list.leave back",
        "list.rename rename",
        "list.pin pin",
        "list.delete delete",
        "app.help keys",
    )
    HELP = "Your conversations. Enter opens one; type / to filter by title and text."

    @dataclass
    class Wish(Message):
        what: str
        conversation: str | None

    def _size_updated(
        self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True
    ) -> bool:
        """A layout in which something else has grown: Textual would draw the scroll bar again."""
        if size == self._size:
            return False
        return super()._size_updated(size, virtual_size, container_size, layout)

    def action_wish(self, what: str) -> None:
        at = self.highlighted
        chosen = None if at is None else self.get_option_at_index(at).id
        self.post_message(self.Wish(what, chosen))


class Sidebar(Vertical):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "to_list", "To the list", id="filter.list"),
        Binding("escape", "leave", "Back to the input", id="filter.leave"),
    ]
    HELP = "Words of a title or a text; Enter or ↓ goes to what was found."
    key_hints: ClassVar[Hints] = (
        "Enter to the list",
        "filter.leave back",
        "app.help keys",
    )

    @dataclass
    class Opened(Message):
        conversation: str

    @dataclass
    class Filtered(Message):
        query: str

    class MoreWanted(Message):
        """The end of the list is in sight."""

    def __init__(self) -> None:
        super().__init__(id="sidebar")
        self._shown: list[Conversation] = []
        self._drawn: tuple[dt.date, str] | None = None
        self._current: str | None = None

    def compose(self) -> ComposeResult:
        yield Input(placeholder="Filter", id="filter", select_on_focus=True)
        yield ConversationList(id="conversations", markup=False)

    @property
    def rows(self) -> ConversationList:
        return self.query_one(ConversationList)

    @property
    def shown(self) -> Sequence[Conversation]:
        return self._shown

    def show(
        self,
        conversations: Sequence[Conversation],
        today: dt.date | None = None,
        *,
        nothing: str = "",
    ) -> None:
        """Replace the list; the chosen row and the place are kept where they can be. `nothing`:
        what stands in place of an empty one."""
        drawn = (today or dt.date.today(), nothing)
        if list(conversations) == self._shown and drawn == self._drawn:
            return
        self._drawn = drawn
        before, self._shown = self._shown, list(conversations)
        rows = self.rows
        chosen = None if rows.highlighted is None else rows.get_option_at_index(rows.highlighted).id
        place = rows.scroll_y
        rows.clear_options()
        rows.add_options(_options(self._shown, drawn[0], self._current))
        if nothing and not self._shown:
            rows.add_option(Option(_heading(nothing), disabled=True))
        if chosen is not None:
            self._highlight(_nearest(chosen, before, self._shown))
            rows.scroll_to(y=place, animate=False)
        self.mark(self._current)

    def mark(self, conversation: str | None) -> None:
        """This is the open one: move the highlight there, unless the user is choosing."""
        before, self._current = self._current, conversation
        for one in self._shown if before != conversation else ():
            if one.id in (before, conversation):
                self.rows.replace_option_prompt(one.id, _row(one, conversation))
        if conversation is not None and not self.rows.has_focus:
            self._highlight(conversation)

    def choose(self, conversation: str) -> None:
        """Move the highlight there, whoever has the focus."""
        self._highlight(conversation)

    def _highlight(self, conversation: str | None) -> None:
        if conversation and any(one.id == conversation for one in self._shown):
            self.rows.highlighted = self.rows.get_option_index(conversation)

    @on(OptionList.OptionSelected)
    def _open(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if event.option_id is not None:
            self.post_message(self.Opened(event.option_id))

    @on(OptionList.OptionHighlighted)
    def _near_end(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        if event.option_index >= self.rows.option_count - 5:
            self.post_message(self.MoreWanted())

    @on(Input.Changed, "#filter")
    def _filter(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Filtered(event.value))

    @on(Input.Submitted, "#filter")
    def _to_list(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_to_list()

    def action_to_list(self) -> None:
        self.rows.focus()
        if self.rows.highlighted is None:
            self.rows.action_first()

    def action_leave(self) -> None:
        self.post_message(ConversationList.Wish("leave", None))


def day_name(day: dt.date, today: dt.date) -> str:
    """The heading that a day belongs under."""
    age = (today - day).days
    if age <= 0:
        return "Today"
    if age == 1:
        return "Yesterday"
    if age < 7:
        return "Last 7 days"
    if age < 31:
        return "Last 31 days"
    if day.year == today.year:
        return day.strftime("%B")
    return day.strftime("%B %Y")


def _nearest(
    chosen: str, before: Sequence[Conversation], now: Sequence[Conversation]
) -> str | None:
    """The row that was chosen; where it has gone, the one below it or else above it."""
    ids = [one.id for one in before]
    at = ids.index(chosen) if chosen in ids else len(ids)
    left = {one.id for one in now}
    return next((id for id in (*ids[at:], *reversed(ids[:at])) if id in left), None)


def _heading(words: str) -> Content:
    return Content.styled(f"  {words}", "$muted")


def _row(one: Conversation, current: str | None) -> Content:
    if one.id == current:
        return Content.styled(f"{OPEN_SIGN} {title(one)}", "bold")
    return Content(f"  {title(one)}")


def _options(
    conversations: Sequence[Conversation], today: dt.date, current: str | None
) -> list[Option]:
    options: list[Option] = []
    heading = ""
    for one in conversations:
        name = PINNED if one.pinned else day_name(_day(one.updated_at), today)
        if name != heading:
            if heading:
                options.append(Option(Content(""), disabled=True))
            options.append(Option(_heading(name), disabled=True))
            heading = name
        options.append(Option(_row(one, current), id=one.id))
    return options


def _day(milliseconds: int) -> dt.date:
    when = moment(milliseconds)
    return when.date() if when else dt.date.min


def title(conversation: Conversation) -> str:
    """One line of text, safe to show."""
    words = " ".join(clean(conversation.title).split())
    return words or UNTITLED
