"""What an empty conversation shows in place of messages."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from hobnob.tui.clean import one_line
from hobnob.tui.talk import Talk

BEGIN = "Type below and press Enter."

HERE = "Everything stays on this machine"
THERE = "What you write goes to the server at {url}"

KEPT = """\
Every reply is on disk before you see it:
quit at any time, it goes on without you."""
PASSING = """\
This conversation is temporary: it is in no list,
and it is deleted when you leave it or quit."""

KEYS = """\
Ctrl+N  new conversation      Ctrl+S  your conversations
Ctrl+F  find                  Ctrl+P  all commands
Esc     stop a reply          F1      keys"""

STARTER = """


The bundled starter model is answering. It is tiny and often wrong;
`hobnob models list` shows what else is on this machine."""


class Welcome(Static):
    def __init__(self) -> None:
        super().__init__(id="welcome", markup=False)
        self._starter = False

    def show(self, talk: Talk) -> None:
        self.display = not talk.entries
        self._write(talk)

    def say_model(self, talk: Talk, *, starter: bool) -> None:
        self._starter = starter
        self._write(talk)

    def _write(self, talk: Talk) -> None:
        self.update(Content(words(talk) + (STARTER if self._starter else "")))


def words(talk: Talk) -> str:
    place = HERE if talk.server is None else THERE.format(url=one_line(talk.server))
    return "\n\n".join([BEGIN, f"{place}.\n{PASSING if talk.temporary else KEPT}", KEYS])
