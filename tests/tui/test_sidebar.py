"""The list of conversations: days, titles, and that titles are only text."""

from __future__ import annotations

import asyncio
import datetime as dt
from pathlib import Path

import pytest
from fake_client import FakeClient
from support_app import running, screen_text, send, until
from support_documents import HOSTILE
from textual.app import App, ComposeResult
from textual.pilot import Pilot

from hobnob.tui.library import Library
from hobnob.tui.line import Line
from hobnob.tui.notice import ClientError
from hobnob.tui.records import Conversation, Hit
from hobnob.tui.sidebar import OPEN_SIGN, Sidebar, day_name, title

TODAY = dt.date(2026, 3, 15)


@pytest.mark.parametrize(
    ("day", "name"),
    [
        (dt.date(2026, 3, 16), "Today"),  # the clock of the server is a little ahead
        (dt.date(2026, 3, 15), "Today"),
        (dt.date(2026, 3, 14), "Yesterday"),
        (dt.date(2026, 3, 9), "Last 7 days"),
        (dt.date(2026, 2, 20), "Last 31 days"),
        (dt.date(2026, 1, 3), "January"),
        (dt.date(2025, 3, 15), "March 2025"),
    ],
)
def test_a_day_has_its_heading(day: dt.date, name: str) -> None:
    assert day_name(day, TODAY) == name


def test_a_title_is_one_harmless_line() -> None:
    shown = title(Conversation("c", HOSTILE + "\nsecond"))
    assert "\n" not in shown
    assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 for c in shown)
    assert title(Conversation("c", " \n ")) == "Untitled"


class Host(App[None]):
    def compose(self) -> ComposeResult:
        yield Sidebar()


async def test_refreshing_the_list_keeps_the_chosen_row() -> None:
    talks = [
        Conversation(f"c{n}", f"title {n}", updated_at=n * 86_400_000) for n in range(30, 0, -1)
    ]
    app = Host()
    async with app.run_test(size=(40, 20)) as pilot:
        app.query_one(Sidebar).show(talks, TODAY)
        rows = app.query_one(Sidebar).rows
        rows.focus()
        rows.highlighted = rows.get_option_index("c12")
        newer = [Conversation("new", "[/] new"), *talks]
        app.query_one(Sidebar).show(newer, TODAY)
        await pilot.pause()
        assert rows.get_option_at_index(rows.highlighted or 0).id == "c12"


async def test_pinned_ones_stand_first_under_a_heading_of_their_own() -> None:
    noon = int(dt.datetime(2026, 3, 15, 12).timestamp() * 1000)
    talks = [
        Conversation("old", "o", updated_at=0, pinned=True),
        Conversation("new", "n", updated_at=noon),
    ]
    app = Host()
    async with app.run_test(size=(40, 20)):
        sidebar = app.query_one(Sidebar)
        sidebar.show(talks, TODAY)
        rows = [sidebar.rows.get_option_at_index(n) for n in range(sidebar.rows.option_count)]
        assert [str(one.prompt).strip() for one in rows] == ["Pinned", "o", "", "Today", "n"]


async def test_headings_move_on_with_the_day_though_nothing_changed() -> None:
    noon = dt.datetime(2026, 3, 15, 12).timestamp() * 1000
    talks = [Conversation("c1", "t", updated_at=int(noon))]
    app = Host()
    async with app.run_test(size=(40, 20)):
        sidebar = app.query_one(Sidebar)
        for today, heading in ((TODAY, "Today"), (TODAY + dt.timedelta(1), "Yesterday")):
            sidebar.show(talks, today)
            assert str(sidebar.rows.get_option_at_index(0).prompt).strip() == heading


@pytest.mark.parametrize("updated", [0, -1, 10**18, 253_402_300_800_000])
async def test_an_absurd_date_hides_nothing(updated: int) -> None:
    app = Host()
    async with app.run_test(size=(40, 20)):
        app.query_one(Sidebar).show([Conversation("c1", "t", updated_at=updated)], TODAY)
        assert app.query_one(Sidebar).rows.get_option("c1")


def library(count: int) -> tuple[Library, FakeClient]:
    client, line = FakeClient(), Line()
    for number in range(count):
        client.talk(f"talk {number}")
    line.open(client)
    return Library(line), client


async def test_pages_follow_each_other_without_gap_or_double() -> None:
    books, client = library(120)
    await books.refresh()
    assert (len(books.shown), books.has_more) == (50, True)
    await books.more()
    await books.more()
    assert [one.change for one in books.shown] == list(range(120, 0, -1))
    assert not books.has_more
    client.talk("newest")
    await books.refresh()
    assert len(books.shown) == 120
    assert books.shown[0].title == "newest"


async def test_pinned_ones_come_first_however_far_down_they_would_be() -> None:
    books, client = library(120)
    for number in (1, 3, 119):
        await client.update_conversation(f"c{number:04d}", pinned=True)
    await books.refresh()
    first = ["c0119", "c0003", "c0001"]
    assert [one.id for one in books.shown][:4] == [*first, "c0120"]
    await books.more()
    await books.more()
    assert len(books.shown) == len({one.id for one in books.shown}) == 120
    assert [one.id for one in books.shown][:3] == first
    assert [one.change for one in books.shown[3:]] == sorted(
        (one.change for one in books.shown[3:]), reverse=True
    )
    books.query = "talk 11"  # 11 and 110 to 118, of which 118 is pinned
    await books.refresh()
    assert [one.id for one in books.shown][:2] == ["c0119", "c0120"]


async def test_what_others_pin_moves_to_the_top_and_back() -> None:
    books, client = library(3)
    await books.refresh()
    for pinned, order in ((True, "132"), (False, "132")):
        stale = client.talks["c0001"]
        client.changed_elsewhere("c0001", pinned=pinned)
        assert books.changed(client.talks["c0001"])
        assert books.changed(stale)  # it is overtaken
        assert "".join(one.id[-1] for one in books.shown) == order
        assert books.shown[0].pinned == pinned
    client.changed_elsewhere("c0002", pinned=True)
    client.changed_elsewhere("c0003", title="later")
    for id in ("c0002", "c0003"):
        assert books.changed(client.talks[id])
    assert "".join(one.id[-1] for one in books.shown) == "231"
    books.gone("c0002")
    assert [one.id for one in books.shown] == ["c0003", "c0001"]


async def test_a_deletion_is_undone_or_done() -> None:
    books, client = library(3)
    await books.refresh()
    books.delete_later("c0002")
    assert [one.id for one in books.shown] == ["c0003", "c0001"]
    books.undo()
    assert len(books.shown) == 3
    books.delete_later("c0002")
    await books.delete_due()
    assert "c0002" in client.talks
    await books.delete_all()
    assert "c0002" not in client.talks


async def test_two_deletions_that_fall_due_together_are_each_done_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And neither can be undone while the server is being told."""
    books, client = library(4)
    await books.refresh()
    delete, told = client.delete_conversation, asyncio.Event()
    asked: list[str] = []

    async def slowly(id: str) -> None:
        asked.append(id)
        await told.wait()
        if id == "c0003":
            raise ClientError("unreachable", "The server cannot be reached.")
        await delete(id)

    monkeypatch.setattr(client, "delete_conversation", slowly)
    monkeypatch.setattr(Library, "UNDO_SECONDS", 0.0)
    for id in ("c0002", "c0003", "c0004"):
        books.delete_later(id)
    both = [asyncio.create_task(books.delete_due()) for _ in range(2)]
    await asyncio.sleep(0)
    books.undo()
    assert [one.id for one in books.shown] == ["c0001"]
    told.set()
    with pytest.raises(ClientError):
        await both[0]
    await both[1]
    assert asked == ["c0002", "c0003", "c0004"]
    assert [one.id for one in books.shown] == ["c0003", "c0001"]
    assert sorted(client.talks) == ["c0001", "c0003"]


def marked(pilot: Pilot[int]) -> list[str]:
    """What is marked in the list as the open conversation, by what is on the screen."""
    signs = (row.partition(OPEN_SIGN)[2] for row in screen_text(pilot).split("\n"))
    return [sign[:20].strip() for sign in signs if sign]


async def test_the_open_conversation_has_a_sign_in_the_list_however_it_was_opened(
    tmp_path: Path,
) -> None:
    client = FakeClient()
    client.talk("Tides", "a", "b")
    client.talk("Maps", "needle", "b")
    async with running(client, tmp_path) as pilot:
        await until(pilot, lambda: "Maps" in screen_text(pilot))
        assert marked(pilot) == []
        await send(pilot, "Rivers")
        await until(pilot, lambda: marked(pilot) == ["Rivers"])
        rows = pilot.app.screen._compositor.render_strips()
        styles = [part.style for row in rows for part in row if "▸ Rivers" in part.text]
        assert [bool(style and style.bold) for style in styles] == [True]
        client.hits = [Hit("c0001", "c0001-m0", "Tides", "user", "a")]
        await pilot.press("f3", *"a")
        await until(pilot, lambda: pilot.app.screen.query_one("#hits").option_count > 0)
        await pilot.press("enter")
        await until(pilot, lambda: marked(pilot) == ["Tides"])
        await pilot.press("ctrl+s", "down")
        await pilot.pause()
        assert marked(pilot) == ["Tides"]  # wherever one looks
        await pilot.press("escape", "ctrl+n")
        await until(pilot, lambda: marked(pilot) == [])
