"""The widget of one column: its name, its reply, and on demand what differs from another one.

Owns the keys of a column; what they do is the playground's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from hobnob.tui.clean import clean
from hobnob.tui.compare import Column, Mark, Stretch, label, sameness
from hobnob.tui.key_bar import Hints
from hobnob.tui.message import MessageView
from hobnob.tui.painter import Painter
from hobnob.tui.transcript import Entry
from hobnob.tui.view import TranscriptView

NOT_ASKED = "not asked yet"
LOOKS = {Mark.SAME: "", Mark.REMOVED: "$error strike", Mark.ADDED: "$success bold underline"}
SIGNS = {Mark.SAME: ("", ""), Mark.REMOVED: ("[-", "-]"), Mark.ADDED: ("{+", "+}")}
"""Where there are no colours."""


class ColumnView(Vertical, can_focus=True):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "wish('keep')", "Keep this reply", id="column.keep"),
        Binding("w", "wish('keep_all')", "Keep it with its settings", id="column.keep_all"),
        Binding("e", "wish('edit')", "Settings", id="column.edit"),
        Binding("a", "wish('add')", "Another column", id="column.add"),
        Binding("x,delete", "wish('remove')", "Take it away", id="column.remove"),
        Binding("r", "wish('again')", "New reply", id="column.again"),
        Binding("d", "wish('differ')", "What differs", id="column.differ"),
        Binding("y", "wish('copy')", "Copy the reply", id="column.copy"),
        Binding("c", "wish('copy_code')", "Copy code", id="column.copy_code"),
        Binding("m", "wish('export')", "Export all as Markdown", id="column.export"),
        Binding("o", "fold", "Show or hide thoughts", id="column.fold"),
        Binding("left,h", "wish('before')", "Column before", id="column.before"),
        Binding("right,l", "wish('after')", "Column after", id="column.after"),
        Binding("up,k", "scroll_rows(-1)", "Scroll up", id="column.up"),
        Binding("down,j", "scroll_rows(1)", "Scroll down", id="column.down"),
        Binding("home", "to_edge(-1)", "To its beginning", id="column.home"),
        Binding("end", "to_edge(1)", "To its end", id="column.end"),
        Binding("i", "wish('leave')", "Back to the prompt", id="column.leave"),
    ]
    key_hints: ClassVar[Hints] = (
        "column.keep keep",
        "column.edit settings",
        "column.add add",
        "column.differ differs",
        "column.again new reply",
        "column.leave prompt",
        "column.remove take away",
        "app.help keys",
    )
    HELP = "Enter makes its reply the conversation's; the others stay its versions."

    @dataclass
    class Wish(Message):
        """The user wants something done with a column."""

        view: ColumnView
        what: str

    def __init__(self, column: Column) -> None:
        super().__init__(classes="column")
        self.column = column
        self.letter = ""
        self._transcript = TranscriptView()
        self._painter = Painter(self._transcript)
        self._shown: Entry | None = None
        self._showing = asyncio.Lock()
        self._against = ""

    def compose(self) -> ComposeResult:
        yield Static(classes="column-name", markup=False)
        yield Static(classes="column-state", markup=False)
        yield self._transcript
        with VerticalScroll(classes="difference", can_focus=False):
            yield Static(classes="difference-text", markup=False)

    def on_mount(self) -> None:
        self.query_one(".difference").display = False

    # ---- what is shown ------------------------------------------------------------------------

    async def show(self) -> None:
        """Bring the widget up to its column."""
        self.show_name()
        column = self.column
        async with self._showing:
            if column.reply is not self._shown:
                self._shown = column.reply
                self._painter.forget()
                self.show_difference("", ())
                await self._transcript.show([] if column.reply is None else [column.reply])
                for view in self._transcript.views:
                    view.can_focus = False  # the column has the keys

    def show_name(self) -> None:
        column = self.column
        name = Content.assemble((f" {self.letter} ", "bold $primary"), f" {label(column)}")
        self.query_one(".column-name", Static).update(name)
        state = column.trouble
        if column.posting:
            state = "sending…"
        elif not state and column.reply is None:
            state = NOT_ASKED
        line = self.query_one(".column-state", Static)
        line.update(Content(clean(state)))
        line.display = bool(state)
        line.set_class(bool(column.trouble) and not column.posting, "trouble")

    def touch(self, reply: Entry) -> None:
        """The reply has grown."""
        self._painter.touch(reply)

    def flush(self) -> None:
        self._painter.flush()

    @property
    def against(self) -> str:
        """The letter of the column that differences are shown from; empty for none."""
        return self._against

    def show_difference(self, against: str, stretches: Sequence[Stretch]) -> None:
        """What differs from another column, in place of the reply; nothing: the reply again."""
        self._against = against
        box = self.query_one(".difference", VerticalScroll)
        box.display = bool(against)
        self._transcript.display = not against
        if against:
            share = f"{sameness(stretches):.0%} of the words are in both"
            head = f"What differs from {against}: {share}\n\n"
            marked = [_marked(one, signs=self.app.no_color) for one in stretches]
            text = Content.assemble((head, "$muted"), *marked)
            self.query_one(".difference-text", Static).update(text)
            box.scroll_home(animate=False)

    # ---- keys ---------------------------------------------------------------------------------

    def action_wish(self, what: str) -> None:
        self.post_message(self.Wish(self, what))

    def action_fold(self) -> None:
        for view in self._transcript.views:
            view.action_fold()

    @property
    def message_view(self) -> MessageView | None:
        views = self._transcript.views
        return views[0] if views else None

    @property
    def _box(self) -> VerticalScroll:
        return self.query_one(".difference", VerticalScroll) if self._against else self._transcript

    def action_scroll_rows(self, rows: int) -> None:
        self._box.scroll_relative(y=rows, animate=False)

    def action_scroll_page(self, direction: int) -> None:
        if direction < 0:
            self._box.scroll_page_up(animate=False)
        else:
            self._box.scroll_page_down(animate=False)

    def action_to_edge(self, direction: int) -> None:
        if direction < 0:
            self._box.scroll_home(animate=False)
        else:
            self._box.scroll_end(animate=False)


def _marked(stretch: Stretch, *, signs: bool) -> tuple[str, str]:
    mark, text = stretch
    text = clean(text)
    if signs and mark is not Mark.SAME:
        before, after = SIGNS[mark]
        words = text.lstrip()
        text = f"{text[: len(text) - len(words)]}{before}{words}{after}"
    return text, LOOKS[mark]
