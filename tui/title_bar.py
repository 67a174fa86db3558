"""The row above the transcript: the conversation's name, what is special about it, the model."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Static

from hobnob.tui import sidebar
from hobnob.tui.talk import Talk


class TitleBar(Horizontal):
    def __init__(self) -> None:
        super().__init__(id="titlebar")

    def compose(self) -> ComposeResult:
        yield Static("Temporary, gone when you leave it", id="temporary", markup=False)
        yield Static(id="title", markup=False)
        yield Static(id="tuning", markup=False)
        yield Static(id="model", markup=False)

    def show(self, talk: Talk, *, opening: bool = False) -> None:
        """`opening`: a conversation is on its way here."""
        open = talk.conversation
        if open is not None:
            words = sidebar.title(open)
        else:
            words = "Opening the conversation…" if opening else "New conversation"
        if talk.temporary:  # which matters more than all else here, so it gets room first
            words = "" if open is None else f": {words}"
        self.set_class(talk.temporary, "temporary")
        self.query_one("#title", Static).update(Content(words))
        self.query_one("#tuning", Static).update(Content(talk.tuning.words))

    def say_model(self, words: str, *, failed: bool) -> None:
        model = self.query_one("#model", Static)
        model.update(Content(words))
        model.set_class(failed, "failed")
