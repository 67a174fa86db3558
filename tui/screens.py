"""The small screens over the chat: search in everything, and a question with one line to type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from hobnob.tui.clean import clean
from hobnob.tui.key_bar import Hints, KeyBar
from hobnob.tui.line import Line
from hobnob.tui.notice import ClientError
from hobnob.tui.records import Hit

SEARCH_PAUSE_SECONDS = 0.15
MOST_HITS = 50


@dataclass(frozen=True, slots=True)
class Chosen:
    conversation: str
    message: str


class SearchScreen(ModalScreen[Chosen | None]):
    """Full-text search; Enter opens the conversation at the message."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Close", id="search.close"),
        Binding("down", "to_hits", "Results", id="search.hits", show=False),
    ]
    key_hints: ClassVar[Hints] = (
        "Enter open",
        "search.hits results",
        "search.close close",
        "app.help keys",
    )
    HELP = "Words in any message; Enter opens the conversation there."

    def __init__(self, line: Line) -> None:
        super().__init__()
        self._line = line
        self._hits: list[Hit] = []

    def compose(self) -> ComposeResult:
        with Vertical(id="search"):
            yield Input(placeholder="Search all conversations", id="search-text")
            yield OptionList(id="hits", markup=False)
            yield Static("", id="search-state", markup=False)
        yield KeyBar()

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        self._search(event.value)

    @work(exclusive=True)
    async def _search(self, query: str) -> None:
        import asyncio

        await asyncio.sleep(SEARCH_PAUSE_SECONDS)  # the next key cancels this
        state = ""
        hits: list[Hit] = []
        if query.strip():
            try:
                client = await self._line.get()
                hits = await client.search(query, limit=MOST_HITS)
                state = "" if hits else "nothing found"
            except ClientError as error:
                state = error.message
        self._hits = hits
        found = self.query_one(OptionList)
        found.clear_options()
        found.add_options([Option(_shown(hit), id=str(n)) for n, hit in enumerate(hits)])
        if hits:
            found.highlighted = 0
        self.query_one("#search-state", Static).update(Content(one_line(state)))

    @on(Input.Submitted)
    def _enter(self, event: Input.Submitted) -> None:
        event.stop()
        at = self.query_one(OptionList).highlighted
        if at is not None:
            self._choose(at)

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._choose(event.option_index)

    def _choose(self, at: int) -> None:
        hit = self._hits[at]
        self.dismiss(Chosen(hit.conversation, hit.message))

    def action_to_hits(self) -> None:
        self.query_one(OptionList).focus()


def _shown(hit: Hit) -> Content:
    """Title, and the snippet with what matched in bold."""
    parts: list[tuple[str, str] | str] = [(one_line(hit.title) or "Untitled", "bold"), "\n"]
    for number, piece in enumerate(hit.snippet.split("\x02")):
        match, end, rest = piece.partition("\x03")
        if number and end:
            parts += [(one_line(match, ends=True), "$accent bold"), one_line(rest, ends=True)]
        else:
            parts.append(one_line(piece, ends=True))
    return Content.assemble(*parts)


def one_line(text: str, *, ends: bool = False) -> str:
    """Text for a single row, cleaned; with `ends` the spaces around it stay."""
    words = " ".join(clean(text).split())
    if not ends:
        return words
    if not words:
        return " " if text.isspace() else ""
    return (" " if text[:1].isspace() else "") + words + (" " if text[-1:].isspace() else "")


class AskScreen(ModalScreen[str | None]):
    """One line to type; Esc leaves it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Leave it", id="ask.close"),
    ]
    key_hints: ClassVar[Hints] = ("Enter take it", "ask.close leave it", "app.help keys")

    def __init__(self, question: str, value: str) -> None:
        super().__init__()
        self._question = question
        self._value = value

    def compose(self) -> ComposeResult:
        with Vertical(id="ask"):
            yield Static(self._question, markup=False)
            yield Input(self._value, select_on_focus=False)
        yield KeyBar()

    @on(Input.Submitted)
    def _answered(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(event.value.strip())
