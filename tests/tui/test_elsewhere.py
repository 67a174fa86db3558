"""What another device does while the app is open: shown at once, and nothing taken away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_client import FakeClient
from support_app import running, screen_text, send, until
from textual.pilot import Pilot

from hobnob.server import wire
from hobnob.tui.joint import Joint, joint
from hobnob.tui.message import MessageView
from hobnob.tui.notice import ClientError, Notice, NoticeKind
from hobnob.tui.records import Branch, Conversation, Message
from hobnob.tui.transcript import entry


@pytest.fixture
def client() -> FakeClient:
    return FakeClient()


async def opened(pilot: Pilot[Any], count: int) -> None:
    await until(pilot, lambda: len(pilot.app.talk.entries) == count)
    await until(pilot, lambda: bool(pilot.app.chat.view.views))


async def test_a_message_of_another_device_and_its_reply_are_shown_as_they_come(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("t", "question", "answer")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await opened(pilot, 2)
        await pilot.press(*"half typed")
        client.said_elsewhere("c0001", "from the other", run="run9")
        await until(pilot, lambda: "from the other" in screen_text(pilot))
        await until(pilot, lambda: "run9" in client.scripts)
        script = client.scripts["run9"]
        script.start()
        script.text("so far")
        await until(pilot, lambda: "so far" in screen_text(pilot))
        assert pilot.app.talk.live is not None
        script.text(" and done")
        script.finish()
        await until(pilot, lambda: "so far and done" in screen_text(pilot))
        assert pilot.app.talk.live is None
        assert pilot.app.chat.composer.text == "half typed"
        assert pilot.app.focused is pilot.app.chat.composer
        assert client.cancelled == []


async def test_the_first_message_of_another_device_fills_an_empty_conversation(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("t")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: pilot.app.talk.id == "c0001")
        client.said_elsewhere("c0001", "hello from there", reply="hello back")
        await until(pilot, lambda: "hello back" in screen_text(pilot))


async def test_a_pin_of_another_device_moves_the_conversation_in_the_list(
    client: FakeClient, tmp_path: Path
) -> None:
    for title in ("one", "two", "three"):
        client.talk(title, "a", "b")
    async with running(client, tmp_path) as pilot:
        shown = pilot.app.sidebar
        await until(pilot, lambda: [one.title for one in shown.shown] == ["three", "two", "one"])
        client.changed_elsewhere("c0001", pinned=True)
        client.changed_elsewhere("c0002", title="two again")
        await until(
            pilot, lambda: [one.title for one in shown.shown] == ["one", "two again", "three"]
        )
        assert "Pinned" in screen_text(pilot)


async def test_what_is_being_read_stays_in_its_place(client: FakeClient, tmp_path: Path) -> None:
    client.talk("t", "question", "\n\n".join(f"paragraph {n}" for n in range(80)))
    async with running(client, tmp_path, conversation="c0001") as pilot:
        view = pilot.app.chat.view
        await until(pilot, lambda: view.max_scroll_y > 100)
        view.scroll_to(y=40, animate=False)
        await pilot.pause()
        client.said_elsewhere("c0001", "more\n\n" * 20, reply="more still")
        await opened(pilot, 4)
        await pilot.pause()
        assert view.scroll_y == 40
        await pilot.press("ctrl+end")
        await until(pilot, lambda: "more still" in screen_text(pilot))


async def test_a_message_that_has_the_focus_keeps_it(client: FakeClient, tmp_path: Path) -> None:
    client.talk("t", "question", "answer")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await opened(pilot, 2)
        await pilot.press("alt+up")
        focused = pilot.app.focused
        assert isinstance(focused, MessageView)
        client.said_elsewhere("c0001", "more", reply="more still")
        await opened(pilot, 4)
        assert pilot.app.focused is focused


async def test_a_reply_that_is_written_here_comes_first(client: FakeClient, tmp_path: Path) -> None:
    client.talk("t", "question", "answer")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await opened(pilot, 2)
        await send(pilot, "mine")
        client.script.start()
        client.script.text("mine answered")
        said = [
            Message("u1", "c0001", "c0001-m1", "user", "mine", "completed"),
            Message("r1", "c0001", "u1", "assistant", "mine answered", "completed"),
        ]
        client.stored["c0001"] += said
        client.said_elsewhere("c0001", "theirs", reply="theirs answered")
        await pilot.pause(0.05)
        assert len(pilot.app.talk.entries) == 4
        client.script.finish()
        await until(pilot, lambda: "theirs answered" in screen_text(pilot))
        assert [one.text for one in pilot.app.talk.entries][2:] == [
            "mine",
            "mine answered",
            "theirs",
            "theirs answered",
        ]


async def test_what_waits_here_follows_what_others_wrote(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("t", "question", "answer")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await opened(pilot, 2)
        client.said_elsewhere("c0001", "theirs", run="run9")
        await until(pilot, lambda: pilot.app.talk.live is not None)
        pilot.app.chat.composer.put("mine")
        await pilot.press("enter")
        await until(pilot, lambda: "1 waiting to be sent" in screen_text(pilot))
        assert client.sent == []
        client.scripts["run9"].start()
        client.scripts["run9"].finish()
        await until(pilot, lambda: len(client.sent) == 1)
        assert client.sent[0]["parent"] == pilot.app.talk.entries[3].id


async def test_another_version_is_shown_where_the_end_is_watched(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("t", "question", "answer")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await opened(pilot, 2)
        client.said_elsewhere("c0001", "better question", reply="better answer", after=0)
        await until(pilot, lambda: "better answer" in screen_text(pilot))
        assert [one.text for one in pilot.app.talk.entries] == ["better question", "better answer"]
        assert "‹ 2 of 2 ›" in screen_text(pilot)


async def test_another_version_is_only_announced_to_one_who_reads(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("t", "question", "\n\n".join(f"paragraph {n}" for n in range(80)))
    async with running(client, tmp_path, conversation="c0001") as pilot:
        view = pilot.app.chat.view
        await until(pilot, lambda: view.max_scroll_y > 100)
        view.scroll_to(y=40, animate=False)
        await pilot.pause()
        client.said_elsewhere("c0001", "better question", reply="better answer", after=0)
        await until(pilot, lambda: "another version is open elsewhere" in screen_text(pilot))
        assert view.scroll_y == 40
        assert pilot.app.talk.entries[0].text == "question"
        await pilot.press("ctrl+r")
        await until(pilot, lambda: "better answer" in screen_text(pilot))
        assert "another version" not in screen_text(pilot)


async def test_somebody_else_looking_at_an_older_version_moves_nothing_here(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("t", "question", "answer")
    client.siblings["c0001-m0"] = ["old", "c0001-m0"]
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await opened(pilot, 2)
        old = [
            Message("old", "c0001", None, "user", "old question", "completed"),
            Message("old2", "c0001", "old", "assistant", "old answer", "completed"),
        ]
        client.stored["c0001"] = old
        client.changed_elsewhere("c0001", head="old2", title="marker")
        await until(pilot, lambda: "marker" in screen_text(pilot))
        await pilot.pause(0.05)
        assert [one.id for one in pilot.app.talk.entries] == ["c0001-m0", "c0001-m1"]
        assert "another version" not in screen_text(pilot)


async def test_a_new_reply_asked_for_here_is_not_taken_for_that_of_another(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("t", "question", "answer")
    real = client.regenerate

    async def told_before_it_is_answered(*given: Any, **options: Any) -> Any:
        turn = await real(*given, **options)
        reply = Message("r1", "c0001", "c0001-m0", "assistant", "", "running", run="run1")
        client.stored["c0001"][1:] = [reply]
        client.changed_elsewhere("c0001", head="r1")
        await pilot.pause(0.05)
        return turn

    client.regenerate = told_before_it_is_answered  # type: ignore[method-assign]
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await opened(pilot, 2)
        pilot.app.chat.regenerate_last()
        await until(pilot, lambda: pilot.app.talk.live is not None)
        client.script.start()
        client.script.text("a better answer")
        client.script.finish()
        await until(pilot, lambda: "a better answer" in screen_text(pilot))
        assert len(pilot.app.chat.view.views) == 2
        assert "‹ 2 of 2 ›" in screen_text(pilot)


async def test_a_new_name_is_shown_and_said(client: FakeClient, tmp_path: Path) -> None:
    client.talk("old name", "question", "answer")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await opened(pilot, 2)
        client.changed_elsewhere("c0001", title="new [/] name")
        await until(pilot, lambda: screen_text(pilot).count("new [/] name") >= 3)
        assert "Renamed elsewhere: new [/] name" in screen_text(pilot)
        assert "old name" not in screen_text(pilot)


async def test_a_name_that_was_given_here_is_not_said_to_come_from_elsewhere(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("old name", "question", "answer")
    real = client.update_conversation

    async def told_before_it_is_answered(id: str, **changes: Any) -> Conversation:
        client.changed_elsewhere(id, **changes)
        await pilot.pause(0.05)
        return await real(id, **changes)

    client.update_conversation = told_before_it_is_answered  # type: ignore[method-assign]
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await opened(pilot, 2)
        pilot.app.chat.composer.put("/rename")
        await pilot.press("enter")
        await until(pilot, lambda: "New name" in screen_text(pilot))
        await pilot.press("end", *" two", "enter")
        await until(pilot, lambda: "old name two" in screen_text(pilot))
        assert "elsewhere" not in screen_text(pilot)


async def test_a_deletion_is_said_and_the_words_stay_on_the_screen(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("doomed", "question", "answer")
    client.talk("other", "a", "b")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await opened(pilot, 2)
        await until(pilot, lambda: len(pilot.app.sidebar.shown) == 2)
        await pilot.press(*"half typed")
        client.deleted_elsewhere("c0001")
        await until(pilot, lambda: "was deleted elsewhere" in screen_text(pilot))
        await until(pilot, lambda: len(pilot.app.sidebar.shown) == 1)
        assert "answer" in screen_text(pilot)
        assert pilot.app.chat.composer.text == "half typed"
        assert pilot.app.focused is pilot.app.chat.composer


async def test_the_list_follows_without_asking_again(client: FakeClient, tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        client.talk(name, "a", "b")
    async with running(client, tmp_path) as pilot:
        await until(pilot, lambda: len(pilot.app.sidebar.shown) == 3)
        await pilot.pause(0.05)
        real, asked = client.conversations, []

        async def counted(**options: Any) -> list[Conversation]:
            asked.append(options)
            return await real(**options)

        client.conversations = counted  # type: ignore[method-assign]
        made = client.talk("from there", "a", "b")
        client.changed_elsewhere(made.id)
        await until(pilot, lambda: "from there" in screen_text(pilot))
        client.changed_elsewhere("c0001", title="one again")
        await until(pilot, lambda: "one again" in screen_text(pilot))
        titles = [one.title for one in pilot.app.sidebar.shown]
        assert titles == ["one again", "from there", "three", "two"]
        client.deleted_elsewhere("c0002")
        await until(pilot, lambda: len(pilot.app.sidebar.shown) == 3)
        assert asked == []


async def test_a_filtered_list_asks_the_server_what_belongs_in_it(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("apples", "a", "b")
    async with running(client, tmp_path) as pilot:
        await until(pilot, lambda: len(pilot.app.sidebar.shown) == 1)
        await pilot.press("ctrl+s", "slash", *"apple")
        await until(pilot, lambda: pilot.app.library.query == "apple")
        client.changed_elsewhere(client.talk("pears", "a", "b").id)
        client.changed_elsewhere(client.talk("apple pie", "a", "b").id)
        await until(pilot, lambda: len(pilot.app.sidebar.shown) == 2)
        assert [one.title for one in pilot.app.sidebar.shown] == ["apple pie", "apples"]


async def test_the_row_that_was_chosen_stays_chosen(client: FakeClient, tmp_path: Path) -> None:
    for number in range(12):
        client.talk(f"talk {number}", "a", "b")
    async with running(client, tmp_path) as pilot:
        await until(pilot, lambda: len(pilot.app.sidebar.shown) == 12)
        await pilot.press("ctrl+s", "down", "down", "down")
        rows = pilot.app.sidebar.rows

        def chosen() -> str | None:
            at = rows.highlighted
            return None if at is None else rows.get_option_at_index(at).id

        before = chosen()
        client.changed_elsewhere("c0001", title="up")
        await until(pilot, lambda: pilot.app.sidebar.shown[0].title == "up")
        assert chosen() == before is not None
        assert rows.has_focus
        client.deleted_elsewhere(before)
        await until(pilot, lambda: len(pilot.app.sidebar.shown) == 11)
        assert chosen() is not None  # the next one: Enter and d still have something to act on
        assert rows.has_focus


async def test_where_changes_may_have_been_missed_everything_is_read_again(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("t", "question", "answer")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await opened(pilot, 2)
        feeds, client._feeds = client._feeds, []  # deaf for a while
        client.said_elsewhere("c0001", "missed", reply="missed too")
        client.talk("new one", "a", "b")
        client._feeds = feeds
        client.tell(wire.Position(client._change))
        await until(pilot, lambda: "missed too" in screen_text(pilot))
        await until(pilot, lambda: len(pilot.app.sidebar.shown) == 2)
        del client.talks["c0001"]
        client.tell(wire.Position(client._change))
        await until(pilot, lambda: "was deleted elsewhere" in screen_text(pilot))


async def test_a_reply_that_could_not_be_followed_is_read_again_when_the_line_is_back(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("t", "question", "answer")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await opened(pilot, 2)
        await send(pilot, "go")
        client.script.start()
        client.script.text("the beginning")
        client.script.put(ClientError("unreachable", "The server cannot be reached."))
        await until(pilot, lambda: "cannot be reached" in screen_text(pilot))
        client.stored["c0001"] += [
            Message("u1", "c0001", "c0001-m1", "user", "go", "completed"),
            Message("r1", "c0001", "u1", "assistant", "the beginning and the end", "completed"),
        ]
        client.changed_elsewhere("c0001")
        await until(pilot, lambda: "the beginning and the end" in screen_text(pilot))
        assert "cannot be reached" not in screen_text(pilot)
        assert len(pilot.app.chat.view.views) == 4


async def test_the_state_of_the_feed_is_said_in_words(client: FakeClient, tmp_path: Path) -> None:
    async with running(client, tmp_path) as pilot:
        client.tell(Notice(NoticeKind.RECONNECTING, "the server is stopping", 5.0))
        await until(pilot, lambda: "your next message starts the server" in screen_text(pilot))
        client.tell(Notice(NoticeKind.CONNECTED, "connected again"))
        await until(pilot, lambda: "your next message" not in screen_text(pilot))
        client.local = False
        client.tell(Notice(NoticeKind.RECONNECTING, "no connection to the server", 5.0))
        await until(pilot, lambda: "to the server · reconnecting…" in screen_text(pilot))


async def test_while_a_reply_is_written_a_lost_server_is_no_reason_to_write(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path) as pilot:
        await send(pilot, "go")
        client.script.start()
        client.script.text("the beginning")
        await until(pilot, lambda: "the beginning" in screen_text(pilot))
        client.tell(Notice(NoticeKind.RECONNECTING, "no connection to the server", 5.0))
        await until(pilot, lambda: "the reply goes on when it is back" in screen_text(pilot))


async def test_a_server_without_the_feed_is_no_trouble(client: FakeClient, tmp_path: Path) -> None:
    client.talk("t", "question", "answer")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await opened(pilot, 2)
        client.tell(ClientError("not_found", "Nothing is served here."))
        await pilot.pause(0.05)
        assert "Nothing is served here" not in screen_text(pilot)


# ---- where branches join ----------------------------------------------------------------------


def message(id: str, parent: str | None) -> Message:
    return Message(id, "c", parent, "user", id, "completed")


def chain(*ids: str) -> list[Message]:
    return [message(id, before) for id, before in zip(ids, (None, *ids), strict=False)]


SHOWN = [entry(one) for one in chain("a", "b", "c")]


@pytest.mark.parametrize(
    ("branch", "kept", "added"),
    [
        (chain("a", "b", "c"), 3, []),
        (chain("a", "b", "c", "d", "e"), 3, ["d", "e"]),
        (chain("a", "b", "c", "d", "e")[3:], 3, ["d", "e"]),
        (chain("a", "b", "x", "y"), 2, ["x", "y"]),
        (chain("a", "b"), 2, []),
        (chain("x", "y"), 0, ["x", "y"]),
    ],
)
def test_a_branch_joins_after_the_last_message_they_share(
    branch: list[Message], kept: int, added: list[str]
) -> None:
    there = joint(SHOWN, Branch(Conversation("c"), branch))
    assert there is not None
    assert (there.kept, [one.id for one in there.added]) == (kept, added)


def test_a_branch_that_begins_after_a_gap_does_not_join() -> None:
    ids = ("a", "b", "c", "d", "e")
    assert joint(SHOWN, Branch(Conversation("c"), chain(*ids)[4:])) is None
    assert joint(SHOWN, Branch(Conversation("c"), [])) is None
    assert joint([], Branch(Conversation("c"), chain("a", "b"))) == Joint(0, chain("a", "b"), {})


async def test_a_name_in_place_of_the_first_words_is_shown_and_not_said(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("how do I…", "how  do I tie a bowline", "so")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await opened(pilot, 2)
        client.changed_elsewhere("c0001", title="Bowlines")
        await until(pilot, lambda: screen_text(pilot).count("Bowlines") >= 2)
        assert "Renamed elsewhere" not in screen_text(pilot)
