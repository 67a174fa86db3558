"""What the help shows: every part of the app that has keys of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from textual.app import App
from textual.binding import BindingType
from textual.widget import Widget

from hobnob.tui.chat import Chat
from hobnob.tui.column_view import ColumnView
from hobnob.tui.composer import Composer
from hobnob.tui.find import FindBar
from hobnob.tui.help import Part, nearest_first
from hobnob.tui.message import MessageView
from hobnob.tui.playground import Playground
from hobnob.tui.reading import Reading
from hobnob.tui.screens import AskScreen, SearchScreen
from hobnob.tui.sidebar import ConversationList, Sidebar
from hobnob.tui.waiting import Waiting


def help_parts(focused: Widget | None, everywhere: Sequence[BindingType]) -> list[Part]:
    """What the focus is in comes first."""
    parts: list[tuple[type[Any], Part]] = [
        (Composer, ("The input", Composer.HELP, Composer.BINDINGS)),
        (MessageView, ("A message", MessageView.HELP, MessageView.BINDINGS)),
        (Waiting, ("Messages that wait", Waiting.HELP, Waiting.BINDINGS)),
        (ConversationList, ("The list", ConversationList.HELP, ConversationList.BINDINGS)),
        (Sidebar, ("The list's filter", Sidebar.HELP, Sidebar.BINDINGS)),
        (FindBar, ("Find", FindBar.HELP, FindBar.BINDINGS)),
        (SearchScreen, ("Search everything", SearchScreen.HELP, SearchScreen.BINDINGS)),
        (AskScreen, ("A question", "", AskScreen.BINDINGS)),
        (ColumnView, ("A column of the playground", ColumnView.HELP, ColumnView.BINDINGS)),
        (Playground, ("The playground", Playground.HELP, Playground.BINDINGS)),
        (Chat, ("The chat", "", [*Chat.BINDINGS, *Reading.BINDINGS])),
        (App, ("Everywhere", "", everywhere)),
    ]
    return nearest_first(parts, focused)
