"""The app as a user meets it, on a screen in memory and against a scripted client."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_client import FakeClient
from support_app import make_app, running, screen_text, send, until
from support_documents import DOCUMENTS, HOSTILE
from textual.pilot import Pilot

from hobnob.server import wire
from hobnob.tui.app import HobnobApp
from hobnob.tui.help import HelpScreen
from hobnob.tui.message import MessageView
from hobnob.tui.notice import ClientError, Notice, NoticeKind
from hobnob.tui.records import Hit


@pytest.fixture
def client() -> FakeClient:
    return FakeClient()


async def test_the_input_is_there_before_anything_is_connected(tmp_path: Path) -> None:
    gate = asyncio.Event()

    @asynccontextmanager
    async def connect(hear):
        hear(Notice(NoticeKind.STARTING))
        await gate.wait()
        yield FakeClient()

    app = make_app(FakeClient(), tmp_path)
    app._connect_with = connect
    async with app.run_test() as pilot:
        await until(pilot, lambda: "starting the server" in screen_text(pilot))
        await pilot.press(*"hi")
        assert app.chat.composer.text == "hi"
        await pilot.press("enter")
        await until(pilot, lambda: "sending…" in screen_text(pilot) or bool(app.talk.entries))
        gate.set()
        await until(pilot, lambda: app.talk.live is not None)


async def test_the_line_that_says_that_a_server_starts_goes_when_it_has(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path) as pilot:
        app = pilot.app
        for last in (NoticeKind.CONNECTED, NoticeKind.RESTARTED):
            app._hear(Notice(NoticeKind.STARTING))
            await until(pilot, lambda: "starting the server" in screen_text(pilot))
            app._hear(Notice(last))
            await until(pilot, lambda: "starting the server" not in screen_text(pilot))


async def test_a_server_that_cannot_be_reached_is_said_and_tried_again(tmp_path: Path) -> None:
    tries = 0

    @asynccontextmanager
    async def connect(hear):
        nonlocal tries
        tries += 1
        if tries == 1:
            raise ClientError("unreachable", "The server [/] did not answer.")
        yield FakeClient()

    app = make_app(FakeClient(), tmp_path)
    app._connect_with = connect
    async with app.run_test() as pilot:
        await until(pilot, lambda: "The server [/] did not answer." in screen_text(pilot))
        await pilot.press("ctrl+r")
        await until(pilot, lambda: app.line.client is not None)
        assert "did not answer" not in screen_text(pilot)


async def test_a_message_is_sent_and_its_reply_shown_with_its_facts(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path) as pilot:
        await send(pilot, "What is *this*?")
        client.script.start()
        client.script.text("It is **bold**.", size=3)
        client.script.finish()
        await until(pilot, lambda: pilot.app.talk.live is None)
        shown = screen_text(pilot)
        for words in (
            "What is *this*?",
            "It is bold.",
            "Test-Model-1B",
            "1204 prompt tokens (1100 cached) · first after 0.4 s · 88 tokens at 31.1/s",
        ):
            assert words in shown
        assert pilot.app.chat.composer.text == ""


async def test_user_text_is_shown_as_typed(client: FakeClient, tmp_path: Path) -> None:
    text = "Line A\nLine B\n    indented\n# not a title\n1. one\n5. five\na_b_c *x"
    client.talk("typed", text, "ok")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: "Line A" in screen_text(pilot))
        rows = [row.text for row in pilot.app.chat.view.views[0].rows]
        assert rows[1:] == text.split("\n")


@pytest.mark.parametrize("name", ["fence in a list", "table", "cjk", "hostile", "unclosed"])
async def test_the_screen_after_a_stream_is_that_of_a_fresh_load(
    client: FakeClient, tmp_path: Path, name: str
) -> None:
    document = DOCUMENTS[name]
    async with running(client, tmp_path, size=(60, 60)) as pilot:
        await send(pilot, "go")
        client.script.start()
        client.script.text(document, size=2)
        client.script.finish(facts=False)
        await until(pilot, lambda: pilot.app.talk.live is None)
        streamed = [row.text for row in pilot.app.chat.view.views[-1].rows]
        client.talk("stored", "go", document)
        pilot.app.chat.open("c0002")
        await until(pilot, lambda: pilot.app.talk.id == "c0002" and len(streamed) > 0)
        await pilot.pause()
        loaded = [row.text for row in pilot.app.chat.view.views[-1].rows]
        assert streamed[1:] == loaded[1:]


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (wire.Loading("M", 0.4), "loading the model… 40%"),
        (wire.Queued(2, 14.0), "number 2 in the queue · about 14 s"),
        (wire.Prefill(100, 400), "reading the prompt… 100 of 400 tokens"),
        (Notice(NoticeKind.RECONNECTING, "the connection was cut", 1.0), "reconnecting…"),
        (wire.NotSaved("the disk is full"), "not saved: the disk is full"),
        (wire.Restarted("signal 9"), "the engine was restarted (signal 9)"),
    ],
)
async def test_what_is_going_on_is_said_in_words(
    client: FakeClient, tmp_path: Path, item: wire.Payload | Notice, words: str
) -> None:
    async with running(client, tmp_path) as pilot:
        await send(pilot, "go")
        client.script.put(item)
        await until(pilot, lambda: words in screen_text(pilot))


async def test_a_reply_goes_on_after_the_connection_was_lost(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path) as pilot:
        await send(pilot, "go")
        client.script.start()
        client.script.text("before ")
        client.script.put(Notice(NoticeKind.RECONNECTING, "cut", 1.0))
        await until(pilot, lambda: "reconnecting…" in screen_text(pilot))
        client.script.put(Notice(NoticeKind.CONNECTED))
        client.script.text("after")
        client.script.finish()
        await until(pilot, lambda: "before after" in screen_text(pilot))
        assert "reconnecting" not in screen_text(pilot)


async def test_a_reply_can_be_stopped_after_the_connection_was_lost(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path) as pilot:
        await send(pilot, "go")
        client.script.start()
        client.script.text("before ")
        client.script.put(Notice(NoticeKind.RECONNECTING, "cut", 1.0))
        client.script.put(Notice(NoticeKind.CONNECTED))
        client.script.text("after")
        await until(pilot, lambda: "before after" in screen_text(pilot))
        await pilot.press("escape")
        await until(pilot, lambda: client.cancelled == ["run1"])
        client.script.finish("cancelled", "cancelled")
        await until(pilot, lambda: pilot.app.talk.live is None)
        assert "before after" in screen_text(pilot)


async def test_escape_stops_the_reply_and_keeps_its_text(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path) as pilot:
        await send(pilot, "go")
        client.script.start()
        client.script.text("so far")
        await until(pilot, lambda: "so far" in screen_text(pilot))
        await pilot.press("escape")
        await until(pilot, lambda: client.cancelled == ["run1"])
        client.script.finish("cancelled", "cancelled")
        await until(pilot, lambda: "stopped" in screen_text(pilot))
        assert "so far" in screen_text(pilot)


@pytest.mark.parametrize(
    "code",
    [
        "unreachable",
        "unauthorized",
        "body_too_large",
        "context_length_exceeded",
        "server_overloaded",
        "model_not_found",
    ],
)
async def test_a_message_that_was_not_accepted_is_back_in_the_input(
    client: FakeClient, tmp_path: Path, code: str
) -> None:
    async with running(client, tmp_path) as pilot:
        client.refuse = ClientError(code, "No [/] room.")
        pilot.app.chat.composer.put("ten\nlines")
        await pilot.press("enter")
        await until(pilot, lambda: "Not sent: No [/] room." in screen_text(pilot))
        assert pilot.app.chat.composer.text == "ten\nlines"
        assert pilot.app.talk.entries == []
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.talk.live is not None)
        assert len(client.sent) == 1
        assert len(pilot.app.chat.view.views) == 2


async def test_sending_again_uses_the_same_key_so_that_it_is_one_turn(
    client: FakeClient, tmp_path: Path
) -> None:
    keys = []
    real = client.send

    async def lost(conversation, text, **options):
        keys.append(options["key"])
        if len(keys) == 1:
            raise ClientError("unreachable", "The answer was lost.")
        return await real(conversation, text, **options)

    client.send = lost
    async with running(client, tmp_path) as pilot:
        pilot.app.chat.composer.put("once")
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.chat.composer.text == "once")
    async with running(client, tmp_path) as pilot:  # even after a restart of the app
        assert pilot.app.chat.composer.text == "once"
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.talk.live is not None)
    assert keys[0] == keys[1]


async def test_a_draft_belongs_to_its_conversation(client: FakeClient, tmp_path: Path) -> None:
    client.talk("one", "a", "b")
    async with running(client, tmp_path) as pilot:
        pilot.app.chat.composer.put("for a new one")
        pilot.app.chat.open("c0001")
        await until(pilot, lambda: pilot.app.talk.id == "c0001")
        assert pilot.app.chat.composer.text == ""
        pilot.app.chat.composer.put("for one")
        await pilot.press("ctrl+n")
        await until(pilot, lambda: pilot.app.chat.composer.text == "for a new one")
        await pilot.press("ctrl+q")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: pilot.app.chat.composer.text == "for one")


async def test_what_is_typed_while_a_conversation_opens_is_kept(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("one", "a", "b")
    gate, real = asyncio.Event(), client.branch

    async def slow(id, *given, **options):
        await gate.wait()
        return await real(id, *given, **options)

    client.branch = slow
    async with running(client, tmp_path) as pilot:
        pilot.app.chat.composer.put("old draft")
        pilot.app.chat.open("c0001")
        await pilot.press(*"typed")
        gate.set()
        await until(pilot, lambda: pilot.app.talk.id == "c0001")
        assert pilot.app.chat.composer.text == "typed"
        await pilot.press("ctrl+n")
        await until(pilot, lambda: pilot.app.chat.composer.text == "old draft")


async def test_quitting_while_a_reply_streams_is_immediate_and_stops_nothing(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path) as pilot:
        await send(pilot, "go")
        client.script.start()
        client.script.text("half")
        await pilot.press("ctrl+q")
    assert client.cancelled == []
    assert client.closed
    assert client.script.readers == 0


async def test_hostile_content_is_only_text_everywhere(client: FakeClient, tmp_path: Path) -> None:
    client.talk(HOSTILE, HOSTILE, HOSTILE)
    client.state["model"]["name"] = HOSTILE
    async with running(client, tmp_path, size=(140, 50)) as pilot:
        await until(pilot, lambda: bool(pilot.app.sidebar.shown))
        pilot.app.chat.open("c0001")
        await until(pilot, lambda: len(pilot.app.chat.view.views) == 2)
        await send(pilot, HOSTILE)
        client.script.start()
        client.script.text(HOSTILE)
        client.script.put(Notice(NoticeKind.RECONNECTING, HOSTILE, 1.0))
        await until(pilot, lambda: "reconnecting…" in screen_text(pilot))
        client.script.put(ClientError("failed", HOSTILE))
        await until(pilot, lambda: pilot.app.talk.live is None)
        shown = screen_text(pilot)
        assert not any(c != "\n" and (ord(c) < 32 or 0x7F <= ord(c) < 0xA0) for c in shown)
        assert not any("\ud800" <= c <= "\udfff" or c == "\u202e" for c in shown)
        assert "[@click=app.quit]here[/]" in shown.replace("\n", "")
        for view in pilot.app.chat.view.views:
            await pilot.click(view, offset=(5, 1))
        assert pilot.app.is_running
        pilot.app.chat.composer.focus()
        client.refuse = ClientError("x", HOSTILE)
        pilot.app.chat.composer.put("x")
        await pilot.press("enter")
        await until(pilot, lambda: "Not sent" in screen_text(pilot))


async def test_what_was_left_out_of_the_prompt_is_marked(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("long", "old question", "old answer")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: len(pilot.app.talk.entries) == 2)
        await send(pilot, "new question")
        client.script.start(left_out=["c0001-m0", "c0001-m1"])
        client.script.text("new answer")
        client.script.finish()
        await until(pilot, lambda: screen_text(pilot).count("not in the prompt") == 2)


async def test_the_starter_model_is_named_as_such(client: FakeClient, tmp_path: Path) -> None:
    client.state["model"]["starter"] = True
    async with running(client, tmp_path, size=(140, 40)) as pilot:
        await until(pilot, lambda: "starter model" in screen_text(pilot))


async def test_a_model_that_cannot_load_is_said_and_history_still_opens(
    client: FakeClient, tmp_path: Path
) -> None:
    client.state["engine"] = {"state": "failed", "failure": {"message": "The file is cut short."}}
    client.talk("old", "question", "answer")
    async with running(client, tmp_path, size=(140, 40), conversation="c0001") as pilot:
        await until(pilot, lambda: "The file is cut short." in screen_text(pilot))
        assert "answer" in screen_text(pilot)


async def test_following_lets_go_when_the_user_scrolls(client: FakeClient, tmp_path: Path) -> None:
    async with running(client, tmp_path) as pilot:
        view = pilot.app.chat.view
        await send(pilot, "go")
        client.script.start()
        client.script.text("line\n\n" * 60)
        await until(pilot, lambda: view.max_scroll_y > 60 and view.scroll_y == view.max_scroll_y)
        await pilot.press("pageup")
        place = view.scroll_y
        client.script.text("more\n\n" * 60)
        await until(pilot, lambda: view.max_scroll_y > 180)
        assert view.scroll_y == place
        await until(pilot, lambda: "↓ new text" in screen_text(pilot))
        await pilot.press("ctrl+end")
        await until(pilot, lambda: view.scroll_y == view.max_scroll_y)
        client.script.text("last\n\n" * 20)
        await until(pilot, lambda: view.max_scroll_y > 220 and view.scroll_y == view.max_scroll_y)
        assert "↓" not in screen_text(pilot).replace("Ctrl", "")


async def test_the_conversation_is_scrolled_from_the_input(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("long", "q", "\n\n".join(f"paragraph {n}" for n in range(60)))
    async with running(client, tmp_path, conversation="c0001") as pilot:
        view, composer = pilot.app.chat.view, pilot.app.chat.composer
        await until(pilot, lambda: view.max_scroll_y > 60 and view.scroll_y == view.max_scroll_y)
        await pilot.press(*"draft")
        places = [view.scroll_y]
        for key in ("shift+up", "pageup", "shift+down", "pagedown"):
            await pilot.press(key)
            await until(pilot, lambda: view.scroll_y != places[-1])
            places.append(view.scroll_y)
        assert places[2] < places[1] < places[0] and places[2] < places[3] < places[4]
        assert pilot.app.focused is composer and composer.text == "draft"


async def test_a_resize_keeps_what_is_being_read(client: FakeClient, tmp_path: Path) -> None:
    text = "\n\n".join(f"paragraph {n} " + "words " * 30 for n in range(60))
    client.talk("long", "q", text)
    async with running(client, tmp_path, conversation="c0001") as pilot:
        view = pilot.app.chat.view
        await until(pilot, lambda: view.max_scroll_y > 100)
        view.scroll_to(y=70, animate=False)
        await pilot.pause()
        top = next(row for row in screen_text(pilot).split("\n") if "paragraph" in row)
        name = " ".join(top[top.index("paragraph") :].split()[:2])
        for width in (60, 130, 80):
            await pilot.resize_terminal(width, 30)
            await pilot.pause()
            await pilot.pause()
        assert name in screen_text(pilot)


async def test_a_long_conversation_opens_with_its_end_and_brings_the_rest_on_demand(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("long", *(f"message {n}" for n in range(600)))
    async with running(client, tmp_path, conversation="c0001") as pilot:
        view = pilot.app.chat.view
        await until(pilot, lambda: len(view.views) == 20)
        assert "message 599" in screen_text(pilot)
        view.scroll_home(animate=False)
        await until(pilot, lambda: len(view.views) == 40)
        assert view.scroll_y > 0
        for _ in range(9):
            before = len(view.views), view.views[0].entry.id
            view.scroll_home(animate=False)
            await until(pilot, lambda b=before: (len(view.views), view.views[0].entry.id) != b)
        assert len(view.views) <= 160
        assert "later" in str(view.query_one("#later").render())
        await pilot.press("ctrl+end")
        await until(pilot, lambda: "message 599" in screen_text(pilot))


async def test_edge_of_a_long_conversation_says_how_much_is_not_shown(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("long", *(f"message {n}" for n in range(100)))
    async with running(client, tmp_path, size=(80, 100), conversation="c0001") as pilot:
        view = pilot.app.chat.view
        await until(pilot, lambda: bool(view.views))
        await pilot.pause()
        unseen = int(view.views[0].entry.text.split()[1])
        assert unseen > 0
        assert str(view.query_one("#earlier").render()) == f"↑ {unseen} earlier messages"


@pytest.mark.parametrize("size", [(1, 1), (10, 3), (500, 200), (2, 40), (200, 2)])
async def test_any_size_of_screen_will_do(
    client: FakeClient, tmp_path: Path, size: tuple[int, int]
) -> None:
    client.talk("t", "question", DOCUMENTS["table"] + DOCUMENTS["fence in a list"])
    async with running(client, tmp_path, size=size, conversation="c0001") as pilot:
        await until(pilot, lambda: len(pilot.app.talk.entries) == 2)
        await pilot.press(*"abc")
        await pilot.resize_terminal(90, 30)
        await until(pilot, lambda: "abc" in screen_text(pilot))


async def test_a_storm_of_resizes_during_a_stream_loses_nothing(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path) as pilot:
        await send(pilot, "go")
        client.script.start()
        for number in range(30):
            client.script.text(f"word{number} ")
            await pilot.resize_terminal(10 + number * 3, 5 + number)
        client.script.finish()
        await until(pilot, lambda: pilot.app.talk.live is None)
        shown = " ".join(row.text for row in pilot.app.chat.view.views[-1].rows).split()
        assert [f"word{n}" for n in range(30)] == [w for w in shown if w.startswith("word")]


async def test_messages_typed_while_a_reply_streams_wait_their_turn(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path) as pilot:
        await send(pilot, "first")
        client.script.start()
        pilot.app.chat.composer.put("second")
        await pilot.press("enter")
        await until(pilot, lambda: "1 waiting to be sent" in screen_text(pilot))
        assert len(client.sent) == 1
        client.script.finish()
        await until(pilot, lambda: len(client.sent) == 2)
        assert client.sent[1]["text"] == "second"
        assert client.sent[1]["parent"] == "r1"


async def test_stopping_brings_what_waits_back_into_the_input(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path) as pilot:
        await send(pilot, "first")
        pilot.app.chat.composer.put("second")
        await pilot.press("enter", "escape")
        await until(pilot, lambda: client.cancelled == ["run1"])
        assert pilot.app.chat.composer.text == "second"


async def test_a_new_reply_stands_beside_the_old_one(client: FakeClient, tmp_path: Path) -> None:
    client.talk("t", "question", "first answer")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: len(pilot.app.talk.entries) == 2)
        await pilot.press("alt+up", "r")
        await until(pilot, lambda: pilot.app.talk.live is not None)
        assert client.sent == [{"regenerate": "c0001-m0"}]
        client.script.start()
        client.script.text("second answer")
        client.script.finish()
        await until(pilot, lambda: "‹ 2 of 2 ›" in screen_text(pilot))
        assert "first answer" not in screen_text(pilot)
        client.branches["c0001-m1"] = client.stored["c0001"]
        client.siblings["c0001-m1"] = ["c0001-m1", "r1"]
        await pilot.press("left")
        await until(pilot, lambda: "first answer" in screen_text(pilot))
        assert client.heads == ["c0001-m1"]


async def asked_anew(client: FakeClient, pilot: Pilot[Any]) -> None:
    """A second reply to the same question is being written."""
    await until(pilot, lambda: len(pilot.app.talk.entries) == 2)
    await pilot.press("alt+up", "r")
    await until(pilot, lambda: pilot.app.talk.live is not None)
    client.script.start()
    client.script.text("second ans")
    await until(pilot, lambda: "second ans" in screen_text(pilot))
    old = client.stored["c0001"]
    client.branches["c0001-m1"] = old
    client.branches["r1"] = [
        old[0],
        replace(old[1], id="r1", text="", status="running", run="run1"),
    ]
    client.siblings["c0001-m1"] = client.siblings["r1"] = ["c0001-m1", "r1"]


async def test_the_reply_before_is_looked_at_while_another_is_written_and_goes_on(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("t", "question", "first answer")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await asked_anew(client, pilot)
        assert pilot.app.focused is pilot.app.chat.view.views[-1]
        await pilot.press("left")
        await until(pilot, lambda: "first answer" in screen_text(pilot))
        assert "second ans" not in screen_text(pilot)
        await until(pilot, lambda: client.script.readers == 0)
        client.script.text("wer")
        await pilot.press("right")
        await until(pilot, lambda: "second answer" in screen_text(pilot))
        client.script.finish()
        await until(pilot, lambda: pilot.app.talk.live is None)
        assert client.heads == ["c0001-m1", "r1"]
        assert client.cancelled == []


async def test_what_waits_for_a_reply_is_in_the_input_when_another_version_is_shown(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("t", "question", "first answer")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await asked_anew(client, pilot)
        await pilot.press("i", *"then", "enter")
        await until(pilot, lambda: "1 waiting to be sent" in screen_text(pilot))
        await pilot.press("alt+up", "left")
        await until(pilot, lambda: "first answer" in screen_text(pilot))
        assert pilot.app.chat.composer.text == "then"
        assert len(client.sent) == 1


def cut_talk(client: FakeClient) -> None:
    client.talk("t", "question", "half an ans")
    stored = client.stored["c0001"]
    stored[-1] = replace(stored[-1], status="length", stop_reason="max_tokens")


@pytest.mark.parametrize("keys", [["alt+up", "m"], [*"/continue", "enter"]])
async def test_a_reply_that_was_cut_goes_on_as_another_version(
    client: FakeClient, tmp_path: Path, keys: list[str]
) -> None:
    cut_talk(client)
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(
            pilot, lambda: "cut at the token limit · /continue goes on" in screen_text(pilot)
        )
        await pilot.press(*keys)
        await until(pilot, lambda: pilot.app.talk.live is not None)
        assert client.sent == [{"continue": "c0001-m1"}]
        await until(pilot, lambda: "half an ans" in screen_text(pilot))
        client.script.start()
        client.script.text("half an ans")
        client.script.text("wer")
        client.script.finish()
        await until(pilot, lambda: "‹ 2 of 2 ›" in screen_text(pilot))
        await until(pilot, lambda: "half an answer" in screen_text(pilot))
        assert "/continue goes on" not in screen_text(pilot)


async def test_why_a_reply_does_not_go_on_is_said_and_it_stays(
    client: FakeClient, tmp_path: Path
) -> None:
    cut_talk(client)
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: "/continue goes on" in screen_text(pilot))
        client.refuse = ClientError("conflict", "The reply has ended by itself.")
        await pilot.press("alt+up", "m")
        await until(pilot, lambda: "The reply has ended by itself." in screen_text(pilot))
        assert "half an ans" in screen_text(pilot)


async def test_an_edited_message_is_sent_as_a_new_version(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("t", "question", "answer", "second question", "second answer")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: len(pilot.app.talk.entries) == 4)
        await pilot.press("alt+up", "alt+up", "e")
        assert pilot.app.chat.composer.text == "second question"
        assert "editing an earlier message" in screen_text(pilot)
        pilot.app.chat.composer.put("better question")
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.talk.live is not None)
        assert client.sent[0]["parent"] == "c0001-m1"
        texts = [entry.text for entry in pilot.app.talk.entries]
        assert texts == ["question", "answer", "better question", ""]
        await until(pilot, lambda: len(pilot.app.chat.view.views) == 4)
        assert "‹ 2 of 2 ›" in screen_text(pilot)


async def test_the_last_message_can_be_edited_by_a_command(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("t", "question", "answer", "second question", "second answer")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: len(pilot.app.talk.entries) == 4)
        pilot.app.chat.composer.put("/edit")
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.chat.composer.text == "second question")
        await pilot.press("enter")
        await until(pilot, lambda: bool(client.sent))
        assert client.sent[0]["parent"] == "c0001-m1"


async def test_editing_the_first_message_begins_a_branch_at_the_root(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("t", "question", "answer")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: len(pilot.app.talk.entries) == 2)
        await pilot.press("alt+up", "alt+up", "e", "enter")
        await until(pilot, lambda: bool(client.sent))
        assert client.sent[0]["parent"] == "root"


async def test_an_edit_that_was_not_accepted_leaves_the_branch_and_is_sent_again_in_its_place(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("t", "question", "answer")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: len(pilot.app.talk.entries) == 2)
        await pilot.press("alt+up", "alt+up", "e")
        client.refuse = ClientError("server_overloaded", "No room.")
        await pilot.press("enter")
        await until(pilot, lambda: "Not sent: No room." in screen_text(pilot))
        assert [entry.text for entry in pilot.app.talk.entries] == ["question", "answer"]
        assert "answer" in screen_text(pilot)
        assert pilot.app.chat.composer.text == "question"
        await pilot.press("enter")
        await until(pilot, lambda: bool(client.sent))
        assert client.sent[0]["parent"] == "root"


async def test_words_found_side_by_side_keep_the_space_between_them(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("a talk", "q", "a")
    snippet = "a \x02lighthouse\x03 \x02keeper\x03 by the sea"
    client.hits = [Hit("c0001", "found", "c0001-m0", "user", snippet, 0)]
    async with running(client, tmp_path) as pilot:
        await pilot.press("f3", *"keeper")
        await until(pilot, lambda: "by the sea" in screen_text(pilot))
        assert "a lighthouse keeper by the sea" in screen_text(pilot)


async def test_search_opens_the_conversation_at_the_message(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("found", *(f"text {n}" for n in range(200)))
    client.hits = [Hit("c0001", "found [/]", "c0001-m50", "user", "the \x02text\x03 [b]50", 0)]
    async with running(client, tmp_path, size=(120, 40)) as pilot:
        await pilot.press("f3", *"text")
        await until(pilot, lambda: "the text [b]50" in screen_text(pilot))
        await pilot.press("enter")
        await until(pilot, lambda: "text 50" in screen_text(pilot))
        focused = pilot.app.focused
        assert isinstance(focused, MessageView)
        assert focused.entry.id == "c0001-m50"


async def test_a_long_message_is_opened_where_one_reads_it(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("a talk", "\n".join(f"line {n}" for n in range(435)), "Short.")
    async with running(client, tmp_path, size=(90, 24), conversation="c0001") as pilot:
        await until(pilot, lambda: "Short." in screen_text(pilot))
        assert "415 more lines" in screen_text(pilot)
        view = pilot.app.query(MessageView).first()
        await pilot.click(view, offset=(5, 21))
        await until(pilot, lambda: "line 21" in screen_text(pilot))
        assert "line 15" in screen_text(pilot) and "line 434" not in screen_text(pilot)


async def test_what_the_mouse_selects_is_marked(client: FakeClient, tmp_path: Path) -> None:
    client.talk("a talk", "How far is the moon?", "Far.")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: "How far" in screen_text(pilot))
        view = pilot.app.query(MessageView).first()
        await pilot.mouse_down(view, offset=(3, 1))
        await pilot.hover(view, offset=(10, 1))
        await pilot.mouse_up(view, offset=(10, 1))
        assert pilot.app.screen.get_selected_text()
        marked = pilot.app.screen.get_component_rich_style("screen--selection").bgcolor
        strip = view.render_line(1)
        assert any(one.style is not None and one.style.bgcolor == marked for one in strip)


async def test_a_conversation_is_deleted_only_when_it_can_no_longer_be_undone(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("keep me", "a", "b")
    async with running(client, tmp_path) as pilot:
        await until(pilot, lambda: bool(pilot.app.sidebar.shown))
        await pilot.press("ctrl+s", "down", "d")
        await until(pilot, lambda: not pilot.app.sidebar.shown)
        assert "c0001" in client.talks
        await until(pilot, lambda: "Deleted. u undoes it for" in screen_text(pilot))
        await pilot.press("u")
        await until(pilot, lambda: bool(pilot.app.sidebar.shown))
        await pilot.press("u")
        await until(pilot, lambda: "There is nothing to undo." in screen_text(pilot))
        await pilot.press("d")  # it is chosen again
        await pilot.press("ctrl+q")
    assert client.talks == {}


async def test_a_deletion_names_the_key_that_undoes_it_as_it_is_set(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("keep me", "a", "b")
    async with running(client, tmp_path, keymap={"list.undo": "ctrl+y,z"}) as pilot:
        await until(pilot, lambda: bool(pilot.app.sidebar.shown))
        await pilot.press("ctrl+s", "down", "d")
        await until(pilot, lambda: "Deleted. Ctrl+Y undoes it for" in screen_text(pilot))


async def test_the_open_conversation_is_deleted_and_undone_from_the_list(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("keep me", "a", "b")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: len(pilot.app.chat.view.views) == 2)
        await pilot.press("ctrl+s", "down", "d")
        await until(pilot, lambda: not pilot.app.chat.view.views)
        await pilot.pause(0.2)
        await pilot.press("u")
        await until(pilot, lambda: bool(pilot.app.sidebar.shown))
        assert pilot.app.chat.composer.text == ""
    assert "c0001" in client.talks


async def test_who_goes_elsewhere_while_a_conversation_is_opened_stays_there(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("slow", "a", "b")
    async with running(client, tmp_path) as pilot:
        await until(pilot, lambda: bool(pilot.app.sidebar.shown))
        client.opening.clear()
        await pilot.press("ctrl+s", "down", "enter")
        await until(pilot, lambda: pilot.app.chat.composer.has_focus)
        await pilot.press(*"typed", "ctrl+s")
        client.opening.set()
        await until(pilot, lambda: len(pilot.app.chat.view.views) == 2)
        await pilot.pause(0.1)
        assert pilot.app.sidebar.rows.has_focus
        assert pilot.app.chat.composer.text == "typed"


async def test_nothing_that_was_drawn_of_a_conversation_is_kept_when_it_is_left(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("one", "question", "answer")
    client.talk("two", "question", "answer")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: len(pilot.app.chat.view.views) == 2)
        left = list(pilot.app.chat.view.views)
        await until(pilot, lambda: all(view._styles_cache._cache for view in left))
        pilot.app.chat.open("c0002")
        await until(pilot, lambda: pilot.app.talk.id == "c0002")
        await until(pilot, lambda: not any(view.is_attached for view in left))
        await pilot.pause()
        assert not any(view._styles_cache._cache for view in left)


async def test_after_a_deletion_the_next_row_is_chosen(client: FakeClient, tmp_path: Path) -> None:
    for title in ("one", "two", "three"):
        client.talk(title, "a", "b")
    async with running(client, tmp_path) as pilot:
        await until(pilot, lambda: len(pilot.app.sidebar.shown) == 3)
        await pilot.press("ctrl+s", "down", "d")
        await until(pilot, lambda: len(pilot.app.sidebar.shown) == 2)
        await pilot.press("d")
        await until(pilot, lambda: len(pilot.app.sidebar.shown) == 1)
        assert [one.title for one in pilot.app.sidebar.shown] == ["one"]
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.talk.id == "c0001")


async def test_a_filter_that_nothing_passes_says_so(client: FakeClient, tmp_path: Path) -> None:
    client.talk("apples", "a", "b")
    async with running(client, tmp_path) as pilot:
        await until(pilot, lambda: bool(pilot.app.sidebar.shown))
        await pilot.press("ctrl+s", "slash", *"pears")
        await until(pilot, lambda: "nothing found" in screen_text(pilot))


async def test_a_conversation_gets_a_new_name(client: FakeClient, tmp_path: Path) -> None:
    client.talk("old name", "a", "b")
    async with running(client, tmp_path) as pilot:
        await until(pilot, lambda: bool(pilot.app.sidebar.shown))
        await pilot.press("ctrl+s", "down", "r")
        await until(pilot, lambda: "New name" in screen_text(pilot))
        await pilot.press("end", *"[/]", "enter")
        await until(pilot, lambda: "old name[/]" in screen_text(pilot))


async def test_a_conversation_is_pinned_by_a_key_and_by_a_command(
    client: FakeClient, tmp_path: Path
) -> None:
    for title in ("one", "two", "three"):
        client.talk(title, "a", "b")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        shown = pilot.app.sidebar
        await until(pilot, lambda: len(shown.shown) == 3 and pilot.app.talk.id == "c0001")
        await pilot.press(*"/pin", "enter")
        await until(pilot, lambda: "Pinned: one" in screen_text(pilot))
        await until(pilot, lambda: [one.title for one in shown.shown][:1] == ["one"])
        assert client.talks["c0001"].pinned
        await pilot.press("ctrl+s", "p")  # the open one is chosen
        await until(pilot, lambda: "No longer pinned: one" in screen_text(pilot))
        assert not client.talks["c0001"].pinned
        await pilot.press("down", "p")
        await until(pilot, lambda: shown.shown[0].pinned)
        assert shown.shown[0].title == "three"
        await pilot.press("d")  # like any other
        await until(pilot, lambda: "three" not in [one.title for one in shown.shown])


async def test_why_a_conversation_is_not_pinned_is_said(client: FakeClient, tmp_path: Path) -> None:
    client.talk("one", "a", "b")
    async with running(client, tmp_path) as pilot:
        await until(pilot, lambda: bool(pilot.app.sidebar.shown))
        await pilot.press(*"/pin", "enter")
        await until(pilot, lambda: "Nothing was sent here yet." in screen_text(pilot))
        del client.talks["c0001"]
        await pilot.press("ctrl+s", "down", "p")
        await until(pilot, lambda: "Not pinned: No such conversation." in screen_text(pilot))


async def test_a_temporary_conversation_is_called_so_held_and_gone_when_it_is_left(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("kept", "a", "b")
    async with running(client, tmp_path) as pilot:
        await until(pilot, lambda: bool(pilot.app.sidebar.shown))
        await pilot.press(*"/temporary", "enter")
        await until(pilot, lambda: "Temporary, gone when you leave it" in screen_text(pilot))
        await send(pilot, "a secret")
        client.script.finish()
        await until(pilot, lambda: pilot.app.talk.live is None)
        id = pilot.app.talk.id
        assert client.talks[id].temporary
        await until(pilot, lambda: client.held == [id])
        await send(pilot, "another")
        client.script.finish()
        await until(pilot, lambda: pilot.app.talk.live is None)
        assert [one.title for one in pilot.app.sidebar.shown] == ["kept"]
        assert client.held == [id]
        await pilot.press("ctrl+n")
        await until(pilot, lambda: list(client.talks) == ["c0001"])
        assert client.held == []
        assert "Temporary" not in screen_text(pilot)
        await send(pilot, "an ordinary one")
        assert not client.talks[pilot.app.talk.id].temporary


async def test_nothing_that_is_typed_in_a_temporary_conversation_is_kept_on_disk(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path) as pilot:
        await pilot.press(*"kept")
        await pilot.press("ctrl+n")
        await until(pilot, lambda: pilot.app.chat.composer.text == "kept")
        pilot.app.chat.new(temporary=True)
        await until(pilot, lambda: "Temporary" in screen_text(pilot))
        assert pilot.app.chat.composer.text == ""
        await send(pilot, "secret one")
        await pilot.press(*"secret two")
        pilot.app.chat.save_draft()
        written = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
        assert b"secret" not in written and b"kept" in written
        await pilot.press("ctrl+n")
        await until(pilot, lambda: pilot.app.chat.composer.text == "kept")


@pytest.mark.parametrize("writing", [True, False])
async def test_the_end_of_the_app_deletes_what_is_temporary(
    client: FakeClient, tmp_path: Path, writing: bool
) -> None:
    client.talk("kept", "a", "b")
    async with running(client, tmp_path, temporary=True) as pilot:
        await until(pilot, lambda: "Temporary" in screen_text(pilot))
        await send(pilot, "a secret")
        if not writing:
            client.script.finish()
            await until(pilot, lambda: pilot.app.talk.live is None)
        await pilot.press("ctrl+q")
    assert list(client.talks) == ["c0001"]


async def test_opening_another_conversation_leaves_a_temporary_one_and_failing_to_does_not(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("kept", "a", "b")
    async with running(client, tmp_path, temporary=True) as pilot:
        await send(pilot, "a secret")
        client.script.finish()
        await until(pilot, lambda: pilot.app.talk.live is None)
        id = pilot.app.talk.id
        pilot.app.chat.open("nothing")
        await until(pilot, lambda: "No such conversation." in screen_text(pilot))
        assert id in client.talks and client.held == [id]
        pilot.app.chat.open("c0001")
        await until(pilot, lambda: list(client.talks) == ["c0001"])


async def test_a_temporary_conversation_that_cannot_be_deleted_is_left_to_the_server_in_words(
    client: FakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(id: str) -> None:
        raise ClientError("unreachable", "The server cannot be reached.")

    async with running(client, tmp_path, temporary=True) as pilot:
        await send(pilot, "a secret")
        await until(pilot, lambda: len(client.held) == 1)
        monkeypatch.setattr(client, "delete_conversation", refused)
        await pilot.press("ctrl+n")
        await until(pilot, lambda: "is not deleted yet" in screen_text(pilot))
        assert client.held == []  # so the server will


async def test_a_temporary_conversation_that_went_with_its_server_is_said_to_be_gone(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path, temporary=True) as pilot:
        await send(pilot, "a secret")
        client.talks.clear()
        client.tell(wire.Position(99))
        await until(pilot, lambda: "This temporary conversation is gone" in screen_text(pilot))
        await pilot.press(*"/pin", "enter")
        await until(pilot, lambda: "in no list" in screen_text(pilot))


async def test_a_temporary_conversation_that_the_server_deletes_is_said_to_be_gone_at_once(
    client: FakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted: list[str] = []

    async def delete(id: str) -> None:
        deleted.append(id)

    async with running(client, tmp_path, temporary=True) as pilot:
        await send(pilot, "a secret")
        client.script.finish()
        await until(pilot, lambda: pilot.app.talk.live is None and len(client.held) == 1)
        monkeypatch.setattr(client, "delete_conversation", delete)
        client.lost.set()
        await until(pilot, lambda: "This temporary conversation is gone" in screen_text(pilot))
        await pilot.press("ctrl+n")
        await until(pilot, lambda: "Temporary" not in screen_text(pilot))
        assert "is gone" not in screen_text(pilot)
    assert deleted == []  # which might start a server that was told to stop


async def test_the_list_can_be_filtered(client: FakeClient, tmp_path: Path) -> None:
    for title in ("apples", "pears", "apple pie"):
        client.talk(title, "a", "b")
    async with running(client, tmp_path) as pilot:
        await until(pilot, lambda: len(pilot.app.sidebar.shown) == 3)
        await pilot.press("ctrl+s", "slash", *"apple")
        await until(pilot, lambda: len(pilot.app.sidebar.shown) == 2)


async def test_more_of_a_long_list_comes_as_its_end_comes_into_sight(
    client: FakeClient, tmp_path: Path
) -> None:
    for number in range(130):
        client.talk(f"talk {number}", "a", "b")
    async with running(client, tmp_path) as pilot:
        await until(pilot, lambda: len(pilot.app.sidebar.shown) == 50)
        await pilot.press("ctrl+s", "end")
        await until(pilot, lambda: len(pilot.app.sidebar.shown) == 100)


async def test_slash_commands_run_only_when_they_are_known(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path) as pilot:
        await pilot.press("slash", *"ne")
        await until(pilot, lambda: "start a new conversation" in screen_text(pilot))
        pilot.app.chat.composer.put("/etc/passwd is a file")
        await pilot.press("enter")
        await until(pilot, lambda: len(client.sent) == 1)
        assert client.sent[0]["text"] == "/etc/passwd is a file"
        client.script.finish()
        await until(pilot, lambda: pilot.app.talk.live is None)
        pilot.app.chat.composer.put("/new")
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.talk.id is None)
        assert len(client.sent) == 1


async def test_ctrl_c_stops_first_and_quits_when_pressed_twice(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path) as pilot:
        await send(pilot, "go")
        await pilot.press("ctrl+c")
        await until(pilot, lambda: client.cancelled == ["run1"])
        client.script.finish("cancelled", "cancelled")
        await until(pilot, lambda: pilot.app.talk.live is None)
        await pilot.press("ctrl+c")
        assert pilot.app.is_running
        await pilot.press("ctrl+c")
    assert pilot.app.return_value == 0


async def test_a_conversation_that_runs_elsewhere_is_followed_when_opened(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("t", "question", "half an ans")
    stored = client.stored["c0001"]
    stored[1] = replace(stored[1], status="running", run="run9")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: "half an ans" in screen_text(pilot))
        script = client.scripts["run9"]
        script.start()
        script.text("half an answer", size=2)
        script.finish()
        await until(pilot, lambda: "half an answer" in screen_text(pilot))
        assert pilot.app.talk.live is None


async def test_reasoning_is_folded_when_it_is_over(client: FakeClient, tmp_path: Path) -> None:
    async with running(client, tmp_path) as pilot:
        await send(pilot, "go")
        script = client.script
        script.put(wire.BlockStart(0, "reasoning"))
        script.put(wire.BlockDelta(0, "let me think"))
        await until(pilot, lambda: "let me think" in screen_text(pilot))
        script.put(wire.BlockStop(0))
        script.put(wire.BlockStart(1))
        script.put(wire.BlockDelta(1, "The answer."))
        script.finish()
        await until(pilot, lambda: "▸ thoughts, 3 words" in screen_text(pilot))
        assert "let me think" not in screen_text(pilot)
        await pilot.press("ctrl+o")
        await until(pilot, lambda: "│ let me think" in screen_text(pilot))


async def test_one_key_copies_a_message_and_one_its_code(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("t", "question", "Use:\n```py\nx = 1\n```\n")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        copied = []
        pilot.app._write_to_terminal = copied.append
        await until(pilot, lambda: len(pilot.app.talk.entries) == 2)
        await pilot.press("alt+up", "c")
        await until(pilot, lambda: "Copied 5 characters" in screen_text(pilot))
        await pilot.press("y")
        await until(pilot, lambda: len(copied) == 2)
    import base64

    data = base64.b64decode(copied[0].split(";")[2].rstrip("\x07\x1b\\"))
    assert data == b"x = 1"


async def test_of_several_code_blocks_the_key_copies_one_after_the_other_and_a_command_any(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("t", "question", "Use:\n```py\n1\n```\nor\n```py\n22\n```\nor\n```py\n333\n```\n")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: len(pilot.app.talk.entries) == 2)

        async def says(words: str) -> None:
            await until(pilot, lambda: words in screen_text(pilot))
            pilot.app.clear_notifications()
            await until(pilot, lambda: words not in screen_text(pilot))

        await pilot.press("alt+up", "c")
        await says("Code 3 of 3. Copied 3 characters (the terminal). Again: the one before.")
        await pilot.press("c")
        await says("Code 2 of 3. Copied 2 characters (the terminal). Again: the one before.")
        await pilot.press("c")
        await says("Code 1 of 3. Copied 1 characters (the terminal).")
        await pilot.press("c")
        await says("Code 3 of 3. Copied 3")
        await pilot.press("y", "c")
        await says("Code 3 of 3. Copied 3")
        await pilot.press("escape", *"/code 2", "enter")
        await says("Code 2 of 3. Copied 2 characters (the terminal).")
        await pilot.press(*"/code 7", "enter")
        await says("There is no code 7: the message has 3.")
        assert client.sent == []


async def test_the_layout_follows_each_resize_at_once(tmp_path: Path) -> None:
    async with running(FakeClient(), tmp_path, size=(110, 32)) as pilot:
        for width, height, narrow, low in ((20, 6, True, True), (110, 32, False, False)):
            await pilot.resize_terminal(width, height)
            await until(pilot, lambda n=narrow: pilot.app.has_class("narrow") is n)
            assert pilot.app.has_class("low") is low


async def test_a_conversation_is_warmed_when_opened_and_once_when_typing_begins(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("old", "Hello", "Hi")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: client.warmed == ["c0001"])
        await pilot.press(*"some words")
        await until(pilot, lambda: client.warmed == ["c0001"] * 2)
        await pilot.press(*"and more")
        await pilot.pause()
        assert client.warmed == ["c0001"] * 2


async def test_a_server_that_does_not_warm_up_is_no_trouble(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("old", "Hello", "Hi")
    client.cold = ClientError("not_found", "Nothing is served here.")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: client.warmed == ["c0001"])
        await pilot.pause()
        assert "Nothing is served here" not in screen_text(pilot)


@pytest.mark.parametrize("key", ["f1", "escape", "q"])
async def test_the_key_that_opens_the_help_closes_it(
    client: FakeClient, tmp_path: Path, key: str
) -> None:
    async with running(client, tmp_path) as pilot:
        await pilot.press("f1")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 2)
        await pilot.press(key)
        await until(pilot, lambda: len(pilot.app.screen_stack) == 1)
        assert pilot.app.focused is pilot.app.chat.composer


@pytest.mark.parametrize(
    ("keys", "title"),
    [
        ([], "The input"),
        (["alt+up"], "A message"),
        (["ctrl+s"], "The list"),
        (["ctrl+f"], "Find"),
        (["f3"], "Search everything"),
    ],
)
async def test_the_help_begins_with_the_keys_of_what_has_the_focus(
    client: FakeClient, tmp_path: Path, keys: list[str], title: str
) -> None:
    client.talk("t", "question", "answer")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: len(pilot.app.talk.entries) == 2)
        before = pilot.app.focused
        await pilot.press(*keys)
        if keys:
            await until(pilot, lambda: pilot.app.focused not in (before, None))
        await pilot.press("f1")
        await until(pilot, lambda: isinstance(pilot.app.screen, HelpScreen))
        assert str(pilot.app.screen.query(".help-title").first().render()) == title


async def test_a_conversation_with_odd_rows_opens_and_goes_on(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("odd", *(f"text {n}" for n in range(5000)))
    stored = client.stored["c0001"]
    stored[-1] = replace(stored[-1], model="a-model-that-is-gone")
    stored[-2] = replace(stored[-2], role="tool", text="")
    stored[-3] = replace(stored[-3], blocks=[{"type": 3}, {}], usage={"prompt_tokens": "x"})
    stored[-4] = replace(stored[-4], role="", status="", created_at=-(10**18))
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: "a-model-that-is-gone" in screen_text(pilot))
        for shown in ("text 4999", "text 4997"):
            await until(pilot, lambda s=shown: s in screen_text(pilot))
        await send(pilot, "go on")
        assert client.sent[0]["parent"] == stored[-1].id


@pytest.mark.parametrize(
    "reply",
    ["```python\n" + "x = compute(1, 'two')\n" * 800, "```\n" + "y" * 100_000],
    ids=["a long block", "a long line"],
)
async def test_keys_are_answered_while_code_without_end_streams(
    client: FakeClient, tmp_path: Path, reply: str
) -> None:
    async with running(client, tmp_path) as pilot:
        await send(pilot, "go")
        client.script.start()
        client.script.text(reply, size=len(reply) // 100)
        await pilot.press(*"typed")
        assert pilot.app.chat.composer.text == "typed"
        await pilot.press("escape")
        await until(pilot, lambda: client.cancelled == ["run1"])
        client.script.finish("cancelled", "cancelled")
        await until(pilot, lambda: pilot.app.talk.live is None)
        assert pilot.app.talk.entries[-1].text == reply
        assert pilot.app.talk.entries[-1].code_blocks() == [reply.partition("\n")[2].rstrip("\n")]


async def test_a_link_is_not_opened_and_a_click_on_text_does_nothing(
    client: FakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(HobnobApp, "open_url", lambda self, url, **_: opened.append(url))
    text = (
        "[a](#x) [b](../x) [c](http://[bad) [d](file:///etc/passwd) "
        "[http://good.example](http://evil.example) ![i](http://127.0.0.1:9/p.png) "
        "[e](x-app://run) "
        "[@click=app.quit]here[/]"
    )
    client.talk("links", "show me", text)
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: "evil.example" in screen_text(pilot))
        view = pilot.app.chat.view.views[1]
        for row in range(len(view.rows)):
            for column in range(0, 60, 12):
                await pilot.click(view, offset=(column, row))
        assert pilot.app.is_running
        assert opened == []


async def test_the_keys_of_vi_go_through_a_conversation(client: FakeClient, tmp_path: Path) -> None:
    client.talk("t", *(f"needle {n}" if n % 30 == 0 else f"hay {n}" for n in range(90)))
    async with running(client, tmp_path, conversation="c0001", vi=True) as pilot:
        await until(pilot, lambda: bool(pilot.app.chat.view.views))

        async def at(number: int) -> None:
            def there() -> bool:
                one = pilot.app.focused
                text = one.entry.text if isinstance(one, MessageView) else ""
                return text.endswith(f" {number}")

            await until(pilot, there)

        await pilot.press("escape")
        await at(89)
        await pilot.press("k", "k", "j")
        await at(88)
        await pilot.press("g")
        await at(0)
        await pilot.press("G")
        await at(89)
        await pilot.press("slash", *"needle")
        await until(pilot, lambda: "3 of 3" in screen_text(pilot))
        await pilot.press("escape")
        await at(60)
        await pilot.press("n")
        await at(30)
        await pilot.press("N")
        await at(60)
        await pilot.press("i", "x")
        assert pilot.app.chat.composer.text == "x"


async def test_escape_stays_in_the_input_unless_the_keys_are_vis(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("t", "question", "answer")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: len(pilot.app.talk.entries) == 2)
        await pilot.press("escape", "x")
        assert pilot.app.chat.composer.text == "x"


async def test_the_list_goes_by_the_keys_of_vi_too(client: FakeClient, tmp_path: Path) -> None:
    for title in ("one", "two", "three"):
        client.talk(title, "a", "b")
    async with running(client, tmp_path) as pilot:
        await until(pilot, lambda: len(pilot.app.sidebar.shown) == 3)
        rows = pilot.app.sidebar.rows
        await pilot.press("ctrl+s", "G")
        last = rows.highlighted
        await pilot.press("k")
        assert rows.highlighted == last - 1
        await pilot.press("j")
        assert rows.highlighted == last
        await pilot.press("g", "j", "j")
        assert rows.highlighted == last
