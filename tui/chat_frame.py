"""What stands around the chat's transcript: title, banner, welcome, the line of hints, the input.

Owns what these say. What it says it of belongs to the chat: what is typed, on its way or waits.
"""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from hobnob.tui.clean import clean
from hobnob.tui.commands import matching
from hobnob.tui.compacting import Compacting
from hobnob.tui.completions import Completions
from hobnob.tui.composer import Composer
from hobnob.tui.drafts import Drafts
from hobnob.tui.elsewhere import Elsewhere
from hobnob.tui.notices import Notices
from hobnob.tui.outlook import Outlook
from hobnob.tui.prompts import Prompts
from hobnob.tui.talk import Talk
from hobnob.tui.title_bar import TitleBar
from hobnob.tui.unsent import Unsent
from hobnob.tui.view import TranscriptView
from hobnob.tui.waiting import Waiting
from hobnob.tui.welcome import Welcome


class ChatFrame(Compacting):
    def __init__(self, talk: Talk, drafts: Drafts, prompts: Prompts, first: str | None) -> None:
        """`first`: a conversation that is going to be opened."""
        super().__init__(talk)
        self._prompts = prompts
        self._elsewhere = Elsewhere(talk, self._view)
        self._outlook = Outlook(talk, lambda words: self.composer.say_below(words))
        self._waiting = Waiting()
        self._unsent = Unsent(talk, drafts)
        self._opening = first
        self._between = first is not None  # what is typed belongs to what is being opened
        self._hint = ""
        self._runs = ""  # in the shell

    def compose(self) -> ComposeResult:
        yield TitleBar()
        with Vertical(id="head"):
            yield Static(id="banner", markup=False)
        yield Welcome()
        yield self._view
        with Vertical(id="foot"):
            yield self.find_bar
            yield Static(id="hint", classes="empty", markup=False)
            yield Notices()
            yield self._waiting
            completions = Completions()
            yield completions
            yield Composer(self._prompts, completions, shell=True)

    @on(TranscriptView.Moved)
    def _moved(self, event: TranscriptView.Moved) -> None:
        event.stop()
        self.call_after_refresh(self._show_hint)

    def _show_hint(self) -> None:
        hints = [f"{self._runs} runs: Esc stops it"] if self._runs else []
        hints += [self._elsewhere.hint] if self._elsewhere.hint else []
        if self._unsent.edit is not None:
            hints.append("editing an earlier message: Enter sends a new version, Esc leaves it")
        if self.coming is not None and self.coming.cancelled:
            hints.append("the reply will be stopped as soon as it begins")
        if self.talk.entries and not (self.view.following or self.view.at_end):
            new = self.talk.live is not None and self.talk.live.chars > 0
            hints.append("↓ new text: Ctrl+End" if new else "↓ Ctrl+End")
        if waiting := len(self._waiting.messages):
            hints.append(f"{waiting} waiting to be sent: Alt+W")
        words = " · ".join(hints)
        if words != self._hint:  # an update lays the whole screen out again
            self._hint = words
            hint = self.query_one("#hint", Static)
            hint.update(Content(words))
            hint.set_class(not words, "empty")

    def show_title(self) -> None:
        self.query_one(TitleBar).show(self.talk, opening=self._opening is not None)

    def tuned(self) -> None:
        """The conversation is asked with another system prompt, or other options."""
        self.show_title()
        self._ask_outlook()

    def _show_welcome(self) -> None:
        self.query_one(Welcome).show(self.talk)
        self.view.display = bool(self.talk.entries)

    def say_model(self, words: str, *, failed: bool, starter: bool) -> None:
        self.query_one(TitleBar).say_model(words, failed=failed)
        self.query_one(Welcome).say_model(self.talk, starter=starter)
        self._ask_outlook()

    def _ask_outlook(self) -> None:
        """What is typed, or where it would go, is another than it was."""
        typed, command = self.composer.message, self.composer.typed.command
        self._outlook.columns = self.composer.size.width
        nothing = self._between or matching(typed) or command
        self._outlook.ask("" if nothing else typed, self._unsent.edited)
        if command:
            self.composer.say_below(Content("Enter runs it in your shell"))

    def say_trouble(self, words: str) -> None:
        """A sentence above the transcript; empty to take it away."""
        banner = self.query_one("#banner", Static)
        banner.update(Content(clean(words).expandtabs(4)))
        banner.display = bool(words)
