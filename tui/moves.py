"""Ways from message to message that are not the next one: what vi's keys do in a text."""

from __future__ import annotations

from hobnob.tui.reading import Reading

NAMES = frozenset({"first", "last", "half_up", "half_down", "match", "match_back"})


async def move(what: str, reading: Reading) -> None:
    view, entries = reading.view, reading.talk.entries
    if what in ("match", "match_back"):  # as in the find bar, the next match is an older one
        reading.find_bar.again(1 if what == "match" else -1)
    elif what in ("half_up", "half_down"):
        half = view.size.height // 2
        view.scroll_relative(y=-half if what == "half_up" else half, animate=False)
    elif what == "first":
        reading.to_first()
    else:
        await view.go_to(len(entries) - 1)
        view.focus_message(entries[-1])
