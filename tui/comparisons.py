"""The comparisons that were made: messages with several replies, the newest first."""

from __future__ import annotations

from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from hobnob.tui.key_bar import Hints, KeyBar
from hobnob.tui.line import Line
from hobnob.tui.notice import ClientError
from hobnob.tui.records import Comparison
from hobnob.tui.screens import one_line

MOST = 200


class ComparisonsScreen(ModalScreen[Comparison | None]):
    """Enter opens one in the playground."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Close", id="comparisons.close"),
    ]
    key_hints: ClassVar[Hints] = ("Enter open", "comparisons.close close", "app.help keys")

    def __init__(self, line: Line) -> None:
        super().__init__()
        self._line = line
        self._found: list[Comparison] = []

    def compose(self) -> ComposeResult:
        with Vertical(id="comparisons"):
            yield Static("Messages with several replies", classes="form-title", markup=False)
            yield OptionList(id="hits", markup=False)
            yield Static("reading…", id="search-state", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self._read()

    @work(exclusive=True)
    async def _read(self) -> None:
        state = ""
        try:
            client = await self._line.get()
            self._found = await client.comparisons(limit=MOST)
            if not self._found:
                state = "There are none yet. Ctrl+L makes one."
        except ClientError as error:
            state = error.message
        listed = self.query_one(OptionList)
        listed.add_options([Option(_shown(one)) for one in self._found])
        if self._found:
            listed.highlighted = 0
        self.query_one("#search-state", Static).update(Content(one_line(state)))

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(self._found[event.option_index])


def _shown(one: Comparison) -> Content:
    text = (one_line(one.text) or "Untitled", "bold")
    return Content.assemble(text, f"\n{one.replies} replies · ", one_line(one.title) or "Untitled")
