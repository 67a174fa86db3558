"""The widget of one message: what it draws, what is selected in it, and what clicks do."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar

import pytest
from support_documents import DOCUMENTS
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.geometry import Offset
from textual.pilot import Pilot
from textual.screen import Screen
from textual.selection import SELECT_ALL, Selection

from hobnob.server.wire import Status
from hobnob.tui import finding, looks
from hobnob.tui.message import MessageView
from hobnob.tui.message_rows import MessageRows
from hobnob.tui.transcript import Entry, Part, Phase


class Lit(Screen[None]):
    COMPONENT_CLASSES: ClassVar[set[str]] = set(looks.COMPONENT_CLASSES)


class Host(App[None]):
    CSS_PATH = None

    def __init__(self, entry: Entry) -> None:
        super().__init__()
        self.entry = entry
        self.copied: list[int] = []

    def get_default_screen(self) -> Screen[None]:
        return Lit()

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield MessageView(self.entry)

    def on_message_view_copy_code(self, event: MessageView.CopyCode) -> None:
        self.copied.append(event.number)


def reply(text: str, *, ended: bool = True) -> Entry:
    phase = Phase.ENDED if ended else Phase.WRITING
    status = Status.COMPLETED if ended else Status.RUNNING
    return Entry("r", "assistant", [Part("text", text, ended=ended)], phase, status=status)


@asynccontextmanager
async def shown(entry: Entry, width: int = 40) -> AsyncIterator[tuple[Pilot[None], MessageView]]:
    app = Host(entry)
    # The looks are the real app's; a bare host only needs the widget to be as high as its rows.
    app.CSS = "MessageView { height: auto; }"
    async with app.run_test(size=(width, 40)) as pilot:
        await pilot.pause()
        yield pilot, app.query_one(MessageView)


async def test_it_is_as_high_as_its_rows_at_any_width() -> None:
    async with shown(reply("word " * 50)) as (pilot, view):
        assert view.size.height == len(view.rows)
        high = view.size.height
        await pilot.resize_terminal(20, 40)
        await pilot.pause()
        assert view.size.height == len(view.rows) > high


async def on_screen(pilot: Pilot[None], view: MessageView) -> list[str]:
    """What is on the screen, and is the same as what a new widget would draw."""
    await pilot.pause()
    drawn = [
        "".join(segment.text for segment in strip).rstrip()
        for strip in view.screen._compositor.render_strips()
    ]
    afresh = MessageRows(view.entry, view.size.width)
    afresh.update()
    assert drawn[: len(afresh.rows)] == [row.text.rstrip() for row in afresh.rows]
    return drawn


async def test_it_fits_a_width_that_it_had_before() -> None:
    entry = reply("word " * 50, ended=False)
    async with shown(entry) as (pilot, view):
        before = await on_screen(pilot, view)
        for width in (90, 40, 60, 90, 40):
            await pilot.resize_terminal(width, 40)
            after = await on_screen(pilot, view)
        assert after == before


async def test_it_fits_a_width_that_it_had_before_also_where_text_comes_meanwhile() -> None:
    entry = reply("", ended=False)
    async with shown(entry) as (pilot, view):
        for n in range(36):
            await pilot.resize_terminal((90, 40, 60, 40, 90, 60)[n % 6], 40)
            entry.parts[0].add(f"word{n} ")
            view.sync()
            await on_screen(pilot, view)


async def test_a_row_that_came_at_another_width_is_below_the_others_at_the_one_before() -> None:
    entry = reply("word " * 43, ended=False)
    async with shown(entry) as (pilot, view):
        high = view.size.height
        await pilot.resize_terminal(90, 40)
        await pilot.pause()
        rows = len(view.rows)
        entry.parts[0].add("more " * 8)
        view.sync()
        assert len(view.rows) == rows  # so that nobody has asked for a layout
        await pilot.resize_terminal(40, 40)
        await on_screen(pilot, view)
        await pilot.pause()
        assert view.size.height == len(view.rows) > high


async def test_a_growing_reply_keeps_the_strips_of_its_finished_rows() -> None:
    entry = reply("first\n\nsecond\n\n", ended=False)
    async with shown(entry) as (pilot, view):
        before = view.render_line(1)
        for _ in range(20):
            entry.parts[0].add("more text here ")
            view.sync()
            await pilot.pause()
        assert view.render_line(1) is before


async def test_growing_thoughts_keep_the_strips_of_their_finished_rows() -> None:
    entry = Entry("r", "assistant", [Part("reasoning", "first\n\nsecond\n\n")], Phase.WRITING)
    entry.status = Status.RUNNING
    async with shown(entry) as (pilot, view):
        before, row = view.render_line(2), view.rows[2]
        assert "first" in row.text
        for _ in range(5):  # no more than there is room for: a scroll bar would change the width
            entry.parts[0].add("more thoughts\n\n")
            view.sync()
            await pilot.pause()
        assert view.rows[2] is row
        assert view.render_line(2) is before
        entry.parts[0].end()
        entry.parts.append(Part("text", "Yes."))
        view.sync()
        assert view.rows[1].text == "▸ thoughts, 12 words"


async def test_a_reply_that_becomes_shorter_leaves_no_old_row() -> None:
    entry = reply("one\n\ntwo\n\nthree", ended=False)
    async with shown(entry) as (pilot, view):
        high = len(view.rows)
        lines(view)
        entry.parts[:] = [Part("text", "one")]
        view.sync()
        await pilot.pause()
        assert len(view.rows) < high
        assert view.render_line(high - 1).text.strip() == ""
        entry.parts[:] = [Part("text", "one\n\nfour\n\nfive")]
        view.sync()
        await pilot.pause()
        assert [row.text for row in view.rows[1:6]] == ["one", "", "four", "", "five"]
        drawn = [view.render_line(y).text.strip() for y in range(len(view.rows))]
        assert drawn == [row.text.strip() for row in view.rows]


async def test_selected_text_joins_what_was_only_wrapped() -> None:
    async with shown(reply("alpha beta gamma delta epsilon zeta eta\n\nnext"), 20) as (_, view):
        text = view.get_selection(SELECT_ALL)
        assert text is not None
        assert "alpha beta gamma delta epsilon zeta eta\n\nnext" in text[0]


async def test_part_of_a_row_can_be_selected() -> None:
    async with shown(reply("alpha beta")) as (_, view):
        text = view.get_selection(Selection(Offset(6, 1), Offset(10, 1)))
        assert text is not None
        assert text[0] == "beta"


async def test_a_selection_is_kept_while_the_reply_streams() -> None:
    entry = reply("alpha beta\n\n", ended=False)
    async with shown(entry) as (pilot, view):
        pilot.app.screen.selections = {view: Selection(Offset(0, 1), Offset(5, 1))}
        for _ in range(10):
            entry.parts[0].add("more and more\n\n")
            view.sync()
            await pilot.pause()
        assert pilot.app.screen.get_selected_text() == "alpha"


async def test_a_click_on_copy_names_the_code_block() -> None:
    text = "a\n```\nx\n```\nb\n```py\ny\n```"
    async with shown(reply(text)) as (pilot, view):
        rows = [n for n, row in enumerate(view.rows) if row.action == "copy-code"]
        await pilot.click(view, offset=(3, rows[1]))
        await pilot.pause()
        assert pilot.app.copied == [1]  # type: ignore[attr-defined]


async def test_a_click_on_thoughts_shows_and_hides_them() -> None:
    entry = Entry(
        "r",
        "assistant",
        [Part("reasoning", "because", ended=True), Part("text", "Yes.", ended=True)],
    )
    async with shown(entry) as (pilot, view):
        assert not any("because" in row.text for row in view.rows)
        await pilot.click(view, offset=(2, 1))
        await pilot.pause()
        assert any("because" in row.text for row in view.rows)


async def test_a_long_message_shows_its_beginning_until_it_is_opened() -> None:
    text = "\n".join(f"line {n}" for n in range(435))
    entry = Entry("u", "user", [Part("text", text, ended=True)])
    async with shown(entry) as (pilot, view):
        assert [row.text for row in view.rows[-2:]] == ["line 19", "▸ 415 more lines"]
        await pilot.click(view, offset=(3, len(view.rows) - 1))
        await pilot.pause()
        assert [row.text for row in view.rows[-2:]] == ["line 434", "▾ only the beginning"]
        view.focus()
        await pilot.press("o")
        assert view.rows[-1].text == "▸ 415 more lines"
        await pilot.press("o")
        await pilot.resize_terminal(30, 24)
        assert len(view.rows) > 400


async def test_a_match_opens_the_long_message_that_it_is_in() -> None:
    text = "\n".join(f"line {n}." for n in range(435))
    entry = Entry("u", "user", [Part("text", text, ended=True)])
    async with shown(entry) as (_, view):
        wanted = finding.pattern("line 300.")
        view.mark(wanted)
        assert len(view.rows) < 30
        view.mark(wanted, 0)
        assert view.row_of_match(0) == 301


@pytest.mark.parametrize("lines", [1, 40])
async def test_a_message_that_is_not_long_is_shown_whole(lines: int) -> None:
    entry = Entry("u", "user", [Part("text", "a\n" * (lines - 1) + "z", ended=True)])
    async with shown(entry) as (_, view):
        assert view.rows[-1].text == "z" and len(view.rows) == lines + 1


@pytest.mark.parametrize("width", [1, 2, 5, 12, 300])
async def test_every_width_can_be_drawn(width: int) -> None:
    async with shown(reply("".join(DOCUMENTS.values())), width) as (_, view):
        for y in range(len(view.rows) + 2):
            assert view.render_line(y).cell_length == view.size.width


def lines(view: MessageView) -> list[list[tuple[str, str]]]:
    """All rows as they are drawn: texts and styles."""
    strips = [view.render_line(y) for y in range(len(view.rows))]
    plain = [[(s.text, s.style.clear_meta_and_links()) for s in one if s.style] for one in strips]
    return [[(text, str(style)) for text, style in row] for row in plain]


async def test_after_a_stream_in_any_pieces_the_screen_is_that_of_a_fresh_load() -> None:
    chance = random.Random(20)
    async with shown(reply("")) as (pilot, _):
        column = pilot.app.query_one(VerticalScroll)
        for name, document in DOCUMENTS.items():
            entry = reply("", ended=False)
            streamed, loaded = MessageView(entry), MessageView(reply(document))
            await column.remove_children()
            await column.mount_all([streamed, loaded])
            at, most = 0, max(8, len(document) // 20)
            while at < len(document):
                size = chance.randint(1, most)
                entry.parts[-1].add(document[at : at + size])
                at += size
                streamed.sync()
                if chance.random() < 0.2:
                    await pilot.pause()
                    lines(streamed)
            entry.fail("x", "")
            entry.status = Status.COMPLETED
            streamed.sync()
            await pilot.pause()
            assert lines(streamed) == lines(loaded), name
