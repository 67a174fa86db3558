"""Ways from message to message that are not the next one: what vi's keys do in a text."""

from __future__ import annotations

from collections.abc import Sequence

from hobnob.tui.find import FindBar
from hobnob.tui.transcript import Entry
from hobnob.tui.view import TranscriptView

NAMES = frozenset({"first", "last", "half_up", "half_down", "match", "match_back"})


async def move(what: str, view: TranscriptView, entries: Sequence[Entry], find: FindBar) -> None:
    if what in ("match", "match_back"):  # as in the find bar, the next match is an older one
        find.again(entries, -1 if what == "match" else 1)
    elif what in ("half_up", "half_down"):
        half = view.size.height // 2
        view.scroll_relative(y=-half if what == "half_up" else half, animate=False)
    else:
        at = 0 if what == "first" else len(entries) - 1
        await view.go_to(at)
        view.focus_message(entries[at])
