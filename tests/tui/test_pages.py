"""Long conversations in the app: the end at once, the rest when it is wanted, never a part as if
it were the whole."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from fake_client import FakeClient
from support_app import running, screen_text, send, until

from hobnob.tui.line import Line
from hobnob.tui.notice import ClientError
from hobnob.tui.records import Hit, Message
from hobnob.tui.talk import FIRST_MESSAGES, LARGEST_PAGE, PAGE, Talk
from hobnob.tui.transcript import Part


@pytest.fixture
def client() -> FakeClient:
    return FakeClient()


def long(client: FakeClient, count: int) -> None:
    client.talk("long", *(f"message {n}" for n in range(count)))


async def talk_of(client: FakeClient, at: str | None = None) -> Talk:
    line = Line()
    line.open(client)  # type: ignore[arg-type]
    talk = Talk(line)
    await talk.open("c0001", at)
    return talk


def numbers(talk: Talk) -> list[int]:
    return [int(one.text.split()[1]) for one in talk.entries]


async def test_opening_reads_the_end_only(client: FakeClient) -> None:
    long(client, 5000)
    talk = await talk_of(client)
    assert client.pages == [(None, FIRST_MESSAGES)]
    assert numbers(talk) == list(range(5000 - FIRST_MESSAGES, 5000))
    assert talk.earlier == 5000 - FIRST_MESSAGES


async def test_pages_join_without_gap_or_double_to_the_first_message(client: FakeClient) -> None:
    long(client, 330)
    talk = await talk_of(client)
    sizes = []
    while size := await talk.read_earlier():
        sizes.append(size)
        assert talk.earlier + len(talk.entries) == 330
    assert numbers(talk) == list(range(330))
    assert sizes == [PAGE, PAGE, PAGE, 10]


async def test_a_message_asked_for_is_reached_in_large_pages(client: FakeClient) -> None:
    long(client, 5000)
    client.branches["c0001-m7"] = client.stored["c0001"]
    talk = await talk_of(client, "c0001-m7")
    assert "c0001-m7" in [one.id for one in talk.entries]
    assert len(client.pages) == 1 + 10
    assert {limit for _, limit in client.pages[1:]} == {LARGEST_PAGE}


async def test_two_who_want_more_at_once_put_it_in_once(client: FakeClient) -> None:
    long(client, 400)
    talk = await talk_of(client)
    real = client.branch

    async def slow(*given: Any, **options: Any) -> Any:
        await asyncio.sleep(0.01)
        return await real(*given, **options)

    client.branch = slow  # type: ignore[method-assign]
    counts = await asyncio.gather(talk.read_earlier(), talk.read_earlier())
    assert sorted(counts) == [0, PAGE]
    assert numbers(talk) == list(range(400 - FIRST_MESSAGES - PAGE, 400))


async def test_what_arrives_for_a_conversation_that_was_left_is_dropped(
    client: FakeClient,
) -> None:
    long(client, 400)
    client.talk("other", "a", "b")
    talk = await talk_of(client)
    real, gate = client.branch, asyncio.Event()

    async def slow(id: str, *given: Any, **options: Any) -> Any:
        found = await real(id, *given, **options)
        if options.get("before"):
            await gate.wait()
        return found

    client.branch = slow  # type: ignore[method-assign]
    reading = asyncio.create_task(talk.read_earlier())
    await asyncio.sleep(0)
    await talk.open("c0002")
    gate.set()
    assert await reading == 0
    assert [one.text for one in talk.entries] == ["a", "b"]


async def test_the_number_of_earlier_messages_is_on_the_screen_and_scrolling_brings_them(
    client: FakeClient, tmp_path: Path
) -> None:
    long(client, 160)
    async with running(client, tmp_path, size=(80, 100), conversation="c0001") as pilot:
        view = pilot.app.chat.view
        await until(pilot, lambda: "message 159" in screen_text(pilot))
        await until(pilot, lambda: view.max_scroll_y > 0)
        seen = set()
        while view.views[0].entry.id != "c0001-m0":
            top = view.views[0].entry.text
            unseen = int(top.split()[1])
            seen.add(unseen)
            assert str(view.query_one("#earlier").render()) == f"↑ {unseen} earlier messages"
            view.scroll_home(animate=False)
            await until(pilot, lambda t=top: view.views[0].entry.text != t)
            view.scroll_to(y=view.scroll_y + 5, animate=False)
            await pilot.pause()
        assert len(seen) > 3
        assert not view.query_one("#earlier").display


async def test_what_is_read_stays_in_its_place_when_older_ones_come(
    client: FakeClient, tmp_path: Path
) -> None:
    long(client, 300)
    async with running(client, tmp_path, conversation="c0001") as pilot:
        view = pilot.app.chat.view
        await until(pilot, lambda: "message 299" in screen_text(pilot))
        view.scroll_home(animate=False)
        await until(pilot, lambda: len(view.views) == 40)
        await until(pilot, lambda: "message 280" in screen_text(pilot))


async def test_a_high_screen_is_filled_and_still_follows(
    client: FakeClient, tmp_path: Path
) -> None:
    long(client, 300)
    async with running(client, tmp_path, size=(80, 200), conversation="c0001") as pilot:
        view = pilot.app.chat.view
        await until(pilot, lambda: view.max_scroll_y > 0)
        assert len(view.views) > 40
        assert view.following
        await until(pilot, lambda: "message 299" in screen_text(pilot))


async def test_older_messages_that_cannot_be_read_are_said_and_can_be_asked_for_again(
    client: FakeClient, tmp_path: Path
) -> None:
    long(client, 300)
    real, broken = client.branch, True

    async def breaking(id: str, *given: Any, **options: Any) -> Any:
        if broken and options.get("before"):
            raise ClientError("unreachable", "The server [/] is away.")
        return await real(id, *given, **options)

    client.branch = breaking  # type: ignore[method-assign]
    async with running(client, tmp_path, conversation="c0001") as pilot:
        view = pilot.app.chat.view
        await until(pilot, lambda: "message 299" in screen_text(pilot))
        view.scroll_home(animate=False)
        await until(
            pilot, lambda: "could not be read: The server [/] is away." in screen_text(pilot)
        )
        assert str(view.query_one("#earlier").render()) == "↑ 280 earlier messages"
        broken = False
        await pilot.press("pageup", "pageup")
        await until(pilot, lambda: len(view.views) == 40)
        assert "could not be read" not in screen_text(pilot)


async def test_the_first_message_that_was_read_can_be_edited(
    client: FakeClient, tmp_path: Path
) -> None:
    long(client, 300)
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: "message 299" in screen_text(pilot))
        view = pilot.app.chat.view
        view.views[0].focus(scroll_visible=False)
        await pilot.press("e")
        assert pilot.app.chat.composer.text == "message 280"
        await pilot.press("enter")
        await until(pilot, lambda: bool(client.sent))
        assert client.sent[0]["parent"] == "c0001-m279"
        # What is before it comes to fill the screen.
        await until(pilot, lambda: len(view.views) > 2)
        texts = [one.text for one in pilot.app.talk.entries]
        assert texts[-3:] == ["message 279", "message 280", ""]


async def test_a_reply_streams_below_while_older_ones_come_above(
    client: FakeClient, tmp_path: Path
) -> None:
    long(client, 300)
    async with running(client, tmp_path, conversation="c0001") as pilot:
        view = pilot.app.chat.view
        await until(pilot, lambda: "message 299" in screen_text(pilot))
        await send(pilot, "go")
        client.script.start()
        client.script.text("one ")
        view.scroll_home(animate=False)
        await until(pilot, lambda: len(view.views) > 40)
        client.script.text("two")
        client.script.finish()
        await until(pilot, lambda: pilot.app.talk.live is None)
        assert pilot.app.talk.entries[-1].text == "one two"
        assert [one.entry for one in view.views] == pilot.app.talk.entries[-len(view.views) :]


async def test_a_search_hit_in_another_version_opens_that_version(
    client: FakeClient, tmp_path: Path
) -> None:
    long(client, 100)
    other = [
        Message("o0", "c0001", None, "user", "the other version", "completed"),
        Message("o1", "c0001", "o0", "assistant", "its answer", "completed"),
    ]
    client.branches["o0"] = other
    client.hits = [Hit("c0001", "long", "o0", "user", "the \x02other\x03 version", 0)]
    async with running(client, tmp_path) as pilot:
        await pilot.press("f3", *"other")
        await until(pilot, lambda: "the other version" in screen_text(pilot))
        await pilot.press("enter")
        await until(pilot, lambda: "its answer" in screen_text(pilot))


async def test_many_messages_of_another_device_join_without_a_gap(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("t", "question", "answer")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: len(pilot.app.talk.entries) == 2)
        feeds, client._feeds = client._feeds, []
        for number in range(40):
            client.said_elsewhere("c0001", f"q{number}", reply=f"a{number}")
        client._feeds = feeds
        client.changed_elsewhere("c0001")
        await until(pilot, lambda: "a39" in screen_text(pilot))
        assert len(pilot.app.talk.entries) == 82


def test_a_message_is_taken_apart_when_it_is_looked_at_and_not_before() -> None:
    part = Part("text", "one\n\ntwo", ended=True)
    assert part._splitter is None
    assert (part.text, part.chars) == ("one\n\ntwo", 8)
    assert [block.text for block in part.closed] == ["one", "two"]
    late = Part("text")
    for piece in ("one\n", "\ntw", "o"):
        late.add(piece)
    late.end()
    assert late.closed == part.closed
