"""Find in the open conversation: the count, the marks, the way between them, and what was not
read yet."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from fake_client import FakeClient
from hypothesis import given
from hypothesis import strategies as st
from support_app import running, screen_text, send, until
from support_documents import DOCUMENTS
from textual.pilot import Pilot

from hobnob.tui import finding
from hobnob.tui.finding import Finder, pattern, places, shown_text
from hobnob.tui.message_rows import MessageRows
from hobnob.tui.notice import ClientError
from hobnob.tui.transcript import Entry, Part


@pytest.fixture
def client() -> FakeClient:
    return FakeClient()


def reply(text: str, role: str = "assistant") -> Entry:
    return Entry("r", role, [Part("text", text, ended=True)])


def count(text: str, entry: Entry) -> int:
    finder = Finder()
    finder.want(text)
    return len(finder.matches(entry))


def marked(entry: Entry, text: str, width: int) -> list[str]:
    """What is marked in the rows, match by match."""
    made = MessageRows(entry, width)
    made.update()
    wanted = pattern(text)
    assert wanted is not None
    return [
        "".join(made.rows[row].text[start:end] for row, start, end in parts)
        for low, high in made.texts
        for parts in places(made.rows[low:high], low, wanted)
    ]


# ---- what is found ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "text", "number"),
    [
        ("one two one", "one", 2),
        ("One ONE oNe", "one", 3),
        ("some **bold** words", "bold words", 1),
        ("some `code` here", "some code here", 1),
        ("# Title\n\ntext", "title", 1),
        ("- item one\n- item two", "item", 2),
        ("> quoted\n> twice quoted", "quoted twice", 1),
        ("```py\nx = 1\n```", "x = 1", 1),
        ("```needle\nx\n```", "needle", 0),  # the name of a language is no text
        ("a\tb in `c`", "a b", 1),
        ("| a | b |\n| - | - |\n| needle | x |", "needle", 1),
        ("[here](http://needle.example)", "needle.example", 1),
        ("AT&amp;T", "AT&T", 1),
        ("**nothing**", "**", 0),
        ("[x](y) .* [", "[x", 0),
        ("any", ".*", 0),
        ("Straße", "straße", 1),
        ("", "x", 0),
    ],
)
def test_what_one_reads_is_found_and_nothing_else(source: str, text: str, number: int) -> None:
    assert count(text, reply(source)) == number
    assert len(marked(reply(source), text, 60)) == number


def test_a_users_text_is_found_as_it_was_typed() -> None:
    assert count("**bold**", reply("is **bold**?", "user")) == 1
    assert marked(reply("is **bold**?", "user"), "**BOLD**", 40) == ["**bold**"]


def test_thoughts_are_not_found() -> None:
    parts = [Part("reasoning", "needle", ended=True), Part("text", "hay", ended=True)]
    assert count("needle", Entry("r", "assistant", parts)) == 0


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_nothing_is_not_looked_for(text: str) -> None:
    assert pattern(text) is None
    assert count(text, reply("some words")) == 0


@pytest.mark.parametrize("width", [8, 12, 20, 40, 200])
def test_a_match_may_go_over_the_end_of_a_row(width: int) -> None:
    text = "alpha beta gamma delta epsilon zeta eta theta " * 3
    found = marked(reply(text), "gamma delta epsilon", width)
    assert [one.replace(" ", "") for one in found] == ["gammadeltaepsilon"] * 3
    long = "```\n" + "x" * 30 + "needle" + "y" * 30 + "\n```"
    assert marked(reply(long), "needle", width) == ["needle"]


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_the_count_is_that_of_the_marks(name: str) -> None:
    if "table" in name:
        pytest.skip("a cell that is wrapped stands in rows between those of others")
    entry = reply(DOCUMENTS[name])
    words = {word for word in shown_text(entry).split() if len(word) < 20}
    for word in sorted(words)[:60]:
        number = count(word, entry)
        assert number > 0, word
        for width in (30, 90):
            assert len(marked(entry, word, width)) == number, (word, width)


@given(st.text(), st.text(min_size=1, max_size=5))
def test_any_text_can_be_looked_for_in_any_text(source: str, text: str) -> None:
    entry = reply(source)
    wanted = pattern(text)
    if wanted is not None:
        assert count(text, entry) == len(list(wanted.finditer(shown_text(entry))))
        marked(entry, text, 20)


def test_a_message_that_cannot_match_is_not_taken_apart() -> None:
    entry = reply("some **words** here")
    finder = Finder()
    finder.want("nowhere")
    assert finder.matches(entry) == []
    assert entry.parts[0]._splitter is None


# ---- in the app -------------------------------------------------------------------------------


def in_reverse(pilot: Pilot[Any]) -> list[str]:
    """The texts that stand out as the match that is looked at."""
    strips = pilot.app.screen._compositor.render_strips()
    return [
        segment.text
        for strip in strips
        for segment in strip
        if segment.style is not None and segment.style.reverse and segment.style.bold
    ]


async def find(pilot: Pilot[Any], text: str) -> None:
    await pilot.press("ctrl+f", *text)


async def test_matches_are_counted_marked_and_gone_through_newest_first(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("t", *(f"needle {n} and needle" if n % 30 == 0 else f"hay {n}" for n in range(90)))
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: "hay 89" in screen_text(pilot))
        await find(pilot, "NEEDLE")
        await until(pilot, lambda: "6 of 6" in screen_text(pilot))
        await until(pilot, lambda: "needle 60 and needle" in screen_text(pilot))
        await until(pilot, lambda: in_reverse(pilot) == ["needle"])
        for key, number, text in (
            ("enter", 5, "needle 60"),
            ("up", 4, "needle 30"),
            ("down", 5, "needle 60"),
            ("enter", 4, "needle 30"),
            ("enter", 3, "needle 30"),
            ("enter", 2, "needle 0"),
            ("enter", 1, "needle 0"),
            ("enter", 6, "needle 60"),
            ("down", 1, "needle 0"),
        ):
            await pilot.press(key)
            await until(pilot, lambda n=number: f"{n} of 6" in screen_text(pilot))
            await until(pilot, lambda t=text: t in screen_text(pilot))
            await until(pilot, lambda: in_reverse(pilot) == ["needle"])
        await pilot.press("escape")
        await until(pilot, lambda: in_reverse(pilot) == [])
        assert pilot.app.focused is pilot.app.chat.composer
        assert "needle 0" in screen_text(pilot)  # the place is kept


async def test_messages_that_were_not_read_yet_are_searched_too(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("t", *(f"needle {n}" if n % 1000 == 7 else f"hay {n}" for n in range(5000)))
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: "hay 4999" in screen_text(pilot))
        assert len(pilot.app.talk.entries) == 20
        await find(pilot, "needle")
        await until(pilot, lambda: "5 of 5" in screen_text(pilot))
        await until(pilot, lambda: "needle 4007" in screen_text(pilot))
        assert "not searched" not in screen_text(pilot)
        await pilot.press("down")
        await until(pilot, lambda: "1 of 5" in screen_text(pilot))
        await until(pilot, lambda: "needle 7" in screen_text(pilot))
        assert len(pilot.app.chat.view.views) <= 160


async def test_what_could_not_be_searched_is_said(client: FakeClient, tmp_path: Path) -> None:
    client.talk("t", *(f"needle {n}" for n in range(300)))
    real = client.branch

    async def breaking(id: str, *given: Any, **options: Any) -> Any:
        if options.get("before"):
            raise ClientError("unreachable", "away")
        return await real(id, *given, **options)

    client.branch = breaking  # type: ignore[method-assign]
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: "needle 299" in screen_text(pilot))
        await find(pilot, "needle")
        words = "20 of 20 · 280 earlier messages not searched"
        await until(pilot, lambda: words in screen_text(pilot))
        await find(pilot, "nowhere")
        await until(
            pilot,
            lambda: "no match · 280 earlier messages not searched" in screen_text(pilot),
        )


async def test_while_older_ones_are_read_that_is_said_and_the_first_match_is_there(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("t", *(f"needle {n}" for n in range(300)))
    real, gate = client.branch, asyncio.Event()

    async def slow(id: str, *given: Any, **options: Any) -> Any:
        if options.get("before"):
            await gate.wait()
        return await real(id, *given, **options)

    client.branch = slow  # type: ignore[method-assign]
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: "needle 299" in screen_text(pilot))
        await find(pilot, "needle")
        words = "20 of 20 · searching 280 earlier messages…"
        await until(pilot, lambda: words in screen_text(pilot))
        assert in_reverse(pilot) == ["needle"]
        await pilot.press("down")  # what is before the first one is not known yet
        assert "20 of 20" in screen_text(pilot)
        gate.set()
        await until(pilot, lambda: "300 of 300" in screen_text(pilot))


async def test_what_is_said_meanwhile_is_found_with_the_next_step(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("t", "question", "one needle")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: "one needle" in screen_text(pilot))
        await send(pilot, "go")
        client.script.start()
        await find(pilot, "needle")
        await until(pilot, lambda: "1 of 1" in screen_text(pilot))
        client.script.text("and another needle")
        await until(pilot, lambda: "and another needle" in screen_text(pilot))
        await pilot.press("down")
        await until(pilot, lambda: "2 of 2" in screen_text(pilot))
        client.script.finish()
        await until(pilot, lambda: pilot.app.talk.live is None)


async def test_a_match_in_the_middle_of_a_long_reply_is_brought_into_sight(
    client: FakeClient, tmp_path: Path
) -> None:
    lines = [f"line {n}" + (" needle" if n in (50, 150) else "") for n in range(200)]
    client.talk("t", "question", "\n\n".join(lines))
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: "line 199" in screen_text(pilot))
        await find(pilot, "needle")
        await until(pilot, lambda: "line 150 needle" in screen_text(pilot))
        await pilot.press("enter")
        await until(pilot, lambda: "line 50 needle" in screen_text(pilot))
        place = pilot.app.chat.view.scroll_y
        await pilot.press("end", "backspace")
        await until(pilot, lambda: "2 of 2" in screen_text(pilot))
        assert place != pilot.app.chat.view.scroll_y


async def test_another_conversation_closes_the_search_and_its_marks(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("one", "needle", "needle")
    client.talk("two", "needle", "needle too")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: "needle" in screen_text(pilot))
        await find(pilot, "needle")
        await until(pilot, lambda: "2 of 2" in screen_text(pilot))
        pilot.app.chat.open("c0002")
        await until(pilot, lambda: "needle too" in screen_text(pilot))
        await until(pilot, lambda: in_reverse(pilot) == [])
        assert "2 of 2" not in screen_text(pilot)


@pytest.mark.parametrize("text", ["[/b]", "(", "\\", "$^"])
async def test_signs_are_looked_for_as_they_are(
    client: FakeClient, tmp_path: Path, text: str
) -> None:
    client.talk("t", f"a {text} b", "ok")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: "ok" in screen_text(pilot))
        await pilot.press("ctrl+f")
        pilot.app.chat.find_bar.query_one("Input").value = text
        await until(pilot, lambda: "1 of 1" in screen_text(pilot))
        assert in_reverse(pilot) == [text]


async def test_more_matches_than_one_can_go_through_are_not_counted(
    client: FakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hobnob.tui.find.MOST_MATCHES", 50)
    client.talk("t", *(["a a a a a"] * 40))
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: len(pilot.app.talk.entries) == 20)
        await find(pilot, "a")
        await until(pilot, lambda: "50 of 50+" in screen_text(pilot))
        assert finding.pattern("a") is not None
