"""The playground as a user meets it, on a screen in memory and against a scripted client."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from fake_client import FakeClient
from support_app import running, screen_text, send, until
from support_documents import HOSTILE
from textual.pilot import Pilot
from textual.screen import ModalScreen, Screen
from textual.widgets import Input, TextArea

from hobnob.server import wire
from hobnob.tui.column_form import ColumnForm
from hobnob.tui.column_view import ColumnView
from hobnob.tui.help import HelpScreen
from hobnob.tui.notice import ClientError, Notice, NoticeKind
from hobnob.tui.playground import Playground
from hobnob.tui.records import Message, Replies, Run


@pytest.fixture
def client() -> FakeClient:
    return FakeClient()


def playground(pilot: Pilot[Any]) -> Playground:
    screen = pilot.app.screen
    assert isinstance(screen, Playground)
    return screen


@asynccontextmanager
async def opened(
    client: FakeClient, folder: Path, prompt: str = "Why?", **options: Any
) -> AsyncIterator[Pilot[Any]]:
    """The playground over the chat, with a prompt in its input."""
    async with running(client, folder, **options) as pilot:
        if options.get("conversation"):
            await until(pilot, lambda: bool(pilot.app.talk.entries))
        pilot.app.chat.composer.put(prompt)
        await pilot.press("ctrl+l")
        await until(pilot, lambda: isinstance(pilot.app.screen, Playground))
        yield pilot


async def asked(pilot: Pilot[Any], client: FakeClient, count: int = 2) -> None:
    """Enter, and every column is answered by a stream that has begun."""
    before = len(client.scripts)
    await pilot.press("enter")
    await until(pilot, lambda: len(client.scripts) == before + count)
    for script in list(client.scripts.values())[before:]:
        script.start()
    await until(pilot, lambda: all(script.readers for script in list(client.scripts.values())))


async def answered(pilot: Pilot[Any], client: FakeClient, *texts: str) -> None:
    await asked(pilot, client, len(texts))
    for script, text in zip(list(client.scripts.values())[-len(texts) :], texts, strict=True):
        script.text(text, size=3)
        script.finish()
    await until(pilot, lambda: not playground(pilot)._trial.live)


async def test_the_columns_stream_side_by_side_with_their_figures_under_them(
    client: FakeClient, tmp_path: Path
) -> None:
    async with opened(client, tmp_path, "What is *this*?") as pilot:
        assert "Playground · New conversation" in screen_text(pilot)
        assert screen_text(pilot).count("not asked yet") == 2
        await asked(pilot, client)
        one, two = client.scripts.values()
        one.text("One is **bold**.", size=3)
        two.text("Two is `code`.", size=3)
        await until(
            pilot,
            lambda: any(
                "One is bold." in row and "Two is code." in row
                for row in screen_text(pilot).split("\n")
            ),
        )
        assert screen_text(pilot).count("writing…") == 2
        one.finish()
        two.finish()
        await until(pilot, lambda: screen_text(pilot).count("at 31.1/s") == 2)
        assert screen_text(pilot).count("first after 0.4 s") == 2
        assert [(each.text, each.parent) for each in client.asked] == [
            ("What is *this*?", None),
            ("", "u1"),
        ]


async def test_who_quits_in_a_new_conversation_is_told_how_to_come_back(
    client: FakeClient, tmp_path: Path
) -> None:
    async with opened(client, tmp_path) as pilot:
        assert pilot.app.left_in is None
        await answered(pilot, client, "one", "two")
        begun = playground(pilot)._trial.conversation
        assert begun is not None and pilot.app.left_in == begun.id
        await pilot.press("ctrl+q")
        await until(pilot, lambda: pilot.app._leaving)
    assert pilot.app.left_in == begun.id


@pytest.mark.parametrize("back", [True, False])
async def test_what_a_temporary_chat_compares_is_temporary_too(
    client: FakeClient, tmp_path: Path, back: bool
) -> None:
    client.talk("kept", "q", "a")
    async with opened(client, tmp_path, "a secret", temporary=True) as pilot:
        await answered(pilot, client, "one", "two")
        begun = playground(pilot)._trial.conversation
        assert begun is not None and begun.temporary and pilot.app.left_in is None
        await until(pilot, lambda: client.held == [begun.id])
        if back:
            await pilot.press("ctrl+l")
            await until(pilot, lambda: pilot.app.talk.id == begun.id)
            assert pilot.app.talk.temporary and not pilot.app.talk.has_left
            assert begun.id in client.talks and client.held == [begun.id]
        await pilot.press("ctrl+q")
        await until(pilot, lambda: pilot.app._leaving)
    assert list(client.talks) == ["c0001"]


async def test_who_quits_where_other_replies_are_compared_comes_back_to_the_chat(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("a talk", "q", "a")
    async with opened(client, tmp_path, conversation="c0001") as pilot:
        await answered(pilot, client, "one", "two")
        assert pilot.app.left_in == "c0001"
        await pilot.press("ctrl+l")
        await until(pilot, lambda: not isinstance(pilot.app.screen, Playground))
        await pilot.press("ctrl+n")
        await until(pilot, lambda: pilot.app.talk.id is None)
        assert pilot.app.left_in is None


@pytest.mark.parametrize("size", [(110, 32), (120, 30), (200, 50), (60, 10)])
async def test_nothing_of_the_chat_shows_through(
    client: FakeClient, tmp_path: Path, size: tuple[int, int]
) -> None:
    client.talk("a talk of long ago", "q", "a")
    async with opened(client, tmp_path, size=size) as pilot:
        assert playground(pilot).styles.background.a == 1
        assert not re.search("Filter|talk of long ago", screen_text(pilot))


async def test_a_kept_reply_is_the_conversations_from_then_on(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("a talk", "q", "a")
    async with opened(client, tmp_path, conversation="c0001") as pilot:
        assert "Playground · a talk" in screen_text(pilot)
        await answered(pilot, client, "one", "two")
        assert client.asked[0].parent == "c0001-m1"
        await pilot.press("alt+up", "right", "enter")
        await until(pilot, lambda: not isinstance(pilot.app.screen, Playground))
        assert client.heads == ["r2"]
        assert pilot.app.talk.id == "c0001"
        assert pilot.app.chat.composer.text == ""
        assert client.talks["c0001"].settings == {}


async def test_keeping_a_reply_with_its_settings_makes_them_the_conversations(
    client: FakeClient, tmp_path: Path
) -> None:
    async with opened(client, tmp_path) as pilot:
        playground(pilot)._trial.columns[0].change("Rhyme.", {"seed": 7})
        await answered(pilot, client, "one", "two")
        await pilot.press("alt+up", "w")
        await until(pilot, lambda: not isinstance(pilot.app.screen, Playground))
        (talk,) = client.talks.values()
        assert (talk.system, talk.settings) == ("Rhyme.", {"seed": 7})


async def test_leaving_keeps_nothing_and_the_chat_is_as_it_was(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("a talk", "q", "a")
    async with opened(client, tmp_path, conversation="c0001") as pilot:
        entries = list(pilot.app.talk.entries)
        await answered(pilot, client, "one", "two")
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(pilot.app.screen, Playground))
        assert client.heads == []
        assert pilot.app.talk.entries == entries
        assert pilot.app.chat.composer.has_focus


async def test_a_conversation_that_a_comparison_began_is_shown_when_it_is_left(
    client: FakeClient, tmp_path: Path
) -> None:
    async with opened(client, tmp_path) as pilot:
        await answered(pilot, client, "one", "two")
        await pilot.press("ctrl+l")
        await until(pilot, lambda: pilot.app.talk.id == "c0001")


async def test_escape_stops_every_column_and_only_then_leaves(
    client: FakeClient, tmp_path: Path
) -> None:
    async with opened(client, tmp_path) as pilot:
        await asked(pilot, client)
        await pilot.press("escape")
        await until(pilot, lambda: sorted(client.cancelled) == ["run1", "run2"])
        for script in client.scripts.values():
            script.finish("cancelled", "cancelled", facts=False)
        await until(pilot, lambda: screen_text(pilot).count("stopped") == 2)
        assert isinstance(pilot.app.screen, Playground)
        await pilot.press("alt+up", "escape")
        assert playground(pilot).composer.has_focus
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(pilot.app.screen, Playground))


async def test_ctrl_c_stops_first_and_quits_only_at_the_second_time(
    client: FakeClient, tmp_path: Path
) -> None:
    async with opened(client, tmp_path) as pilot:
        await asked(pilot, client)
        await pilot.press("ctrl+c")
        await until(pilot, lambda: len(client.cancelled) == 2)
        for script in client.scripts.values():
            script.finish("cancelled", "cancelled")
        await until(pilot, lambda: not playground(pilot)._trial.live)
        await pilot.press("ctrl+c")
        assert pilot.app.is_running
        await pilot.press("ctrl+c")
        await until(pilot, lambda: pilot.app.return_code == 0)


async def test_replies_go_on_when_the_playground_is_left_and_are_found_again(
    client: FakeClient, tmp_path: Path
) -> None:
    talk = client.talk("a talk", "q", "a", "Why?")
    message = client.stored[talk.id][2]
    replies = []
    for number, status in ((1, "completed"), (2, "running")):
        reply = Message(
            f"r{number}", talk.id, message.id, "assistant", "So", status, run=f"x{number}"
        )
        params = {"asked": {"options": {"seed": number}, "instructions": None}}
        replies.append((reply, Run(f"x{number}", talk.id, reply.id, params=params)))
    client.compared[talk.id, message.id] = Replies(talk, message, replies)
    async with running(client, tmp_path) as pilot:
        pilot.app.chat.composer.put("/comparisons")
        await pilot.press("enter")
        await until(pilot, lambda: "2 replies · a talk" in screen_text(pilot))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, Playground))
        await until(pilot, lambda: client.scripts["x2"].readers == 1)
        client.scripts["x2"].start("r2")
        client.scripts["x2"].text("So it is.")
        client.scripts["x2"].finish()
        await until(pilot, lambda: "So it is." in screen_text(pilot))
        assert "seed 1" in screen_text(pilot) and "seed 2" in screen_text(pilot)
        assert playground(pilot).composer.text == "Why?"
        assert pilot.app.chat.composer.text == ""


async def test_with_nothing_typed_the_versions_of_the_last_reply_are_compared(
    client: FakeClient, tmp_path: Path
) -> None:
    talk = client.talk("a talk", "Why?", "So.")
    message, reply = client.stored[talk.id]
    client.compared[talk.id, message.id] = Replies(talk, message, [(reply, Run("x"))])
    async with opened(client, tmp_path, "", conversation="c0001") as pilot:
        await until(pilot, lambda: "So." in screen_text(pilot))
        await asked(pilot, client, 1)
        assert (client.asked[0].text, client.asked[0].parent) == ("", message.id)


async def test_a_message_that_is_gone_is_said_and_nothing_opens(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("a talk", "Why?", "So.")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: bool(pilot.app.talk.entries))
        await pilot.press("ctrl+l")
        await until(pilot, lambda: "No such message." in screen_text(pilot))
        assert not isinstance(pilot.app.screen, Playground)


async def test_while_a_reply_is_written_the_playground_does_not_open(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path) as pilot:
        await send(pilot, "go")
        await pilot.press("ctrl+l")
        await until(pilot, lambda: "A reply is being written" in screen_text(pilot))
        assert not isinstance(pilot.app.screen, Playground)


async def test_what_is_typed_and_not_asked_is_the_chats_draft(
    client: FakeClient, tmp_path: Path
) -> None:
    async with opened(client, tmp_path, "Why") as pilot:
        await pilot.press("?", "escape")
        await until(pilot, lambda: not isinstance(pilot.app.screen, Playground))
        assert pilot.app.chat.composer.text == "Why?"
        await pilot.press("ctrl+l")
        await until(pilot, lambda: isinstance(pilot.app.screen, Playground))
        await asked(pilot, client)
        await until(pilot, lambda: pilot.app.chat.composer.text == "")


async def test_a_draft_of_the_chat_outlives_a_look_at_another_comparison(
    client: FakeClient, tmp_path: Path
) -> None:
    talk = client.talk("a talk", "Why?", "So.")
    message, reply = client.stored[talk.id]
    client.compared[talk.id, message.id] = Replies(talk, message, [(reply, Run("x"))])
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: bool(pilot.app.talk.entries))
        pilot.app.chat.composer.put("half a thought")
        await pilot.press("alt+up", "ctrl+l")
        await until(pilot, lambda: isinstance(pilot.app.screen, Playground))
        await pilot.press("x", "escape")
        await until(pilot, lambda: not isinstance(pilot.app.screen, Playground))
        assert pilot.app.chat.composer.text == "half a thought"


async def test_settings_are_typed_and_what_is_wrong_with_them_is_said(
    client: FakeClient, tmp_path: Path
) -> None:
    async with opened(client, tmp_path, system="Be brief.") as pilot:
        await pilot.press("alt+up", "right", "e")
        await until(pilot, lambda: isinstance(pilot.app.screen, ColumnForm))
        form = pilot.app.screen
        assert form.query_one(TextArea).text == "Be brief."
        form.query_one(Input).value = "temperature"
        await pilot.press("enter")
        await until(pilot, lambda: "Write name=value" in screen_text(pilot))
        form.query_one(Input).value = "temperature=0.2 top_p=0.9"
        await pilot.press("enter")
        await until(pilot, lambda: "temperature 0.2 · top_p 0.9" in screen_text(pilot))
        column = playground(pilot)._trial.columns[1]
        assert (column.instructions, column.options) == (None, {"temperature": 0.2, "top_p": 0.9})
        await pilot.press("e")
        await until(pilot, lambda: isinstance(pilot.app.screen, ColumnForm))
        pilot.app.screen.query_one(TextArea).load_text("")
        await pilot.press("ctrl+j")
        await until(pilot, lambda: "no system prompt" in screen_text(pilot))
        await pilot.press("alt+down")
        await asked(pilot, client)
        assert client.asked[1].options == {"temperature": 0.2, "top_p": 0.9}
        assert [one.instructions for one in client.asked] == [None, ""]


async def test_a_column_that_was_refused_says_why_and_the_others_go_on(
    client: FakeClient, tmp_path: Path
) -> None:
    async with opened(client, tmp_path) as pilot:
        playground(pilot)._trial.columns[0].change(None, {"nonsense": 1})
        await asked(pilot, client, 1)
        await until(pilot, lambda: "There is no option 'nonsense'." in screen_text(pilot))
        client.script.text("It goes on.")
        await until(pilot, lambda: "It goes on." in screen_text(pilot))


async def test_there_are_two_to_four_columns(client: FakeClient, tmp_path: Path) -> None:
    async with opened(client, tmp_path, size=(160, 30)) as pilot:
        await pilot.press("alt+up", "x")
        assert "at least 2 columns" in screen_text(pilot)
        await pilot.press("a", "a")
        await until(pilot, lambda: screen_text(pilot).count("not asked yet") == 4)
        await pilot.press("a")
        await until(pilot, lambda: "at most 4 columns" in screen_text(pilot))
        await pilot.press("alt+down")
        await answered(pilot, client, "1st", "2nd", "3rd", "4th")
        await pilot.press("alt+up", "left", "x")
        await until(pilot, lambda: len(playground(pilot).views) == 3)
        shown = screen_text(pilot)
        assert "2nd" in shown and "4th" in shown and "3rd" not in shown
        assert [view.letter for view in playground(pilot).views] == ["A", "B", "C"]


async def test_a_new_reply_in_one_column_leaves_the_others(
    client: FakeClient, tmp_path: Path
) -> None:
    async with opened(client, tmp_path) as pilot:
        await pilot.press("alt+up", "r")
        await until(pilot, lambda: "Nothing was asked yet." in screen_text(pilot))
        await pilot.press("alt+down")
        await answered(pilot, client, "one", "two")
        await pilot.press("alt+up", "right", "r")
        await until(pilot, lambda: "run3" in client.scripts and client.scripts["run3"].readers > 0)
        client.script.start()
        client.script.text("three")
        await until(pilot, lambda: "three" in screen_text(pilot))
        assert "one" in screen_text(pilot) and "two" not in screen_text(pilot)
        assert [one.parent for one in client.asked] == [None, "u1", "u1"]


@pytest.mark.parametrize(("size", "seen"), [((80, 24), 2), ((40, 20), 1), ((30, 20), 1)])
async def test_where_there_is_no_room_the_columns_are_reached_by_keys(
    client: FakeClient, tmp_path: Path, size: tuple[int, int], seen: int
) -> None:
    async with opened(client, tmp_path, size=size) as pilot:
        await pilot.press("alt+up", "a", "a", "alt+down")
        await answered(pilot, client, "text 1", "text 2", "text 3", "text 4")
        await pilot.press("alt+up")
        found = set()
        for _ in range(4):
            await pilot.press("right")
            await until(pilot, lambda: isinstance(pilot.app.focused, ColumnView))
            shown = set(re.findall(r"text \d", screen_text(pilot)))
            assert len(shown) == seen
            focused = pilot.app.focused
            assert isinstance(focused, ColumnView) and focused.column.text in shown
            found |= shown
        assert len(found) == 4
        await pilot.resize_terminal(160, 30)
        await until(pilot, lambda: len(set(re.findall(r"text \d", screen_text(pilot)))) == 4)


@pytest.mark.parametrize("cover", [ModalScreen, Screen])
async def test_resized_behind_a_dialog_it_shows_as_many_columns_as_there_is_room_for(
    cover: type[Screen[Any]], client: FakeClient, tmp_path: Path
) -> None:
    async with opened(client, tmp_path, size=(160, 30)) as pilot:
        await pilot.press("alt+up", "a", "a", "alt+down")
        await answered(pilot, client, "text 1", "text 2", "text 3", "text 4")

        def shown() -> int:
            return len(set(re.findall(r"text \d", screen_text(pilot))))

        await until(pilot, lambda: shown() == 4)
        for sizes, columns in [([(50, 30)], 1), ([(160, 30), (30, 12), (110, 40)], 3)]:
            pilot.app.push_screen(cover())
            await pilot.pause()
            for size in sizes:
                await pilot.resize_terminal(*size)
            pilot.app.pop_screen()
            await until(pilot, lambda n=columns: shown() == n)


async def test_what_differs_is_marked_and_taken_away_again(
    client: FakeClient, tmp_path: Path
) -> None:
    async with opened(client, tmp_path) as pilot:
        await answered(pilot, client, "The cat sat.", "The dog sat.")
        await pilot.press("alt+up", "right", "d")
        await until(pilot, lambda: "What differs from A" in screen_text(pilot))
        assert "The cat dog sat." in screen_text(pilot)
        await pilot.press("d")
        await until(pilot, lambda: "What differs" not in screen_text(pilot))
        assert "The dog sat." in screen_text(pilot)


async def test_without_colours_what_differs_is_marked_by_signs(
    client: FakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with opened(client, tmp_path) as pilot:
        await answered(pilot, client, "The cat sat.", "The dog sat.")
        await pilot.press("alt+up", "d")
        await until(pilot, lambda: "The [-dog-] {+cat+} sat." in screen_text(pilot))


async def test_a_comparison_is_written_to_a_file_and_over_none(
    client: FakeClient, tmp_path: Path
) -> None:
    path = tmp_path / "page.md"
    async with opened(client, tmp_path) as pilot:
        await pilot.press("alt+up", "m")
        await until(pilot, lambda: "nothing to write down" in screen_text(pilot))
        await pilot.press("alt+down")
        await answered(pilot, client, "one", "two")
        for said in ("Written to", "was not written: File exists."):
            await pilot.press("alt+up", "m")
            await until(pilot, lambda: "Write Markdown to" in screen_text(pilot))
            pilot.app.screen.query_one(Input).value = str(path)
            await pilot.press("enter")
            await until(pilot, lambda said=said: said in screen_text(pilot))
        assert path.read_text().startswith("# Why?\n\n> Why?\n")


async def test_a_lost_connection_is_said_in_the_columns_and_nothing_is_lost(
    client: FakeClient, tmp_path: Path
) -> None:
    async with opened(client, tmp_path) as pilot:
        await asked(pilot, client)
        for script in client.scripts.values():
            script.text("before ")
            script.put(Notice(NoticeKind.RECONNECTING, "the connection was cut", 1.0))
        await until(pilot, lambda: screen_text(pilot).count("reconnecting…") == 2)
        for script in client.scripts.values():
            script.put(Notice(NoticeKind.CONNECTED))
            script.text("after")
            script.finish()
        await until(pilot, lambda: screen_text(pilot).count("before after") == 2)


async def test_a_server_that_takes_nothing_is_said_and_the_prompt_stays(
    client: FakeClient, tmp_path: Path
) -> None:
    async with opened(client, tmp_path) as pilot:
        client.refuse = ClientError("overloaded", "Too [/] many wait.")
        await pilot.press("enter")
        await until(pilot, lambda: screen_text(pilot).count("Too [/] many wait.") == 2)
        assert playground(pilot).composer.text == "Why?"
        await asked(pilot, client)
        assert "Too [/] many wait." not in screen_text(pilot)


@pytest.mark.parametrize("theme", ["hobnob-dark", "ansi-light"])
async def test_hostile_text_is_only_text_in_every_place(
    client: FakeClient, tmp_path: Path, theme: str
) -> None:
    hostile = HOSTILE.replace("\ud800", "")
    client.talk(hostile, "q", "a", id="c0001")
    async with opened(client, tmp_path, hostile, conversation="c0001", theme=theme) as pilot:
        columns = playground(pilot)._trial.columns
        columns[1].change(hostile, {"stop": [hostile]})
        await answered(pilot, client, hostile, hostile + "more")
        columns[0].trouble = hostile
        await pilot.press("alt+up", "d")
        await until(pilot, lambda: "What differs from B" in screen_text(pilot))
        assert "[bold]x" in screen_text(pilot)
        for press in ("d", "e"):
            await pilot.press(press)
            await pilot.pause()
            assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", screen_text(pilot))


async def test_keys_of_the_chat_do_nothing_behind_the_playground(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("a talk", "q", "a")
    async with opened(client, tmp_path, conversation="c0001") as pilot:
        await pilot.press("ctrl+n", "ctrl+s", "f3")
        await pilot.pause()
        assert isinstance(pilot.app.screen, Playground)
        assert pilot.app.talk.id == "c0001"


async def test_the_palette_has_the_playgrounds_commands_and_none_that_acts_behind_it(
    client: FakeClient, tmp_path: Path
) -> None:
    async with opened(client, tmp_path) as pilot:
        await pilot.press("ctrl+p")
        await until(pilot, lambda: "Back to the chat" in screen_text(pilot))
        assert "New conversation" not in screen_text(pilot).partition("Back to the chat")[2]


async def test_the_editor_is_given_what_is_in_the_playgrounds_input(
    client: FakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = tmp_path / "ed"
    editor.write_text("#!/bin/sh\nprintf ' and how?' >> \"$1\"\n")
    editor.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(editor))
    monkeypatch.delenv("VISUAL", raising=False)
    async with opened(client, tmp_path) as pilot:
        monkeypatch.setattr(pilot.app, "suspend", nullcontext)
        await pilot.press("ctrl+g")
        await until(pilot, lambda: playground(pilot).composer.text == "Why? and how?")


async def test_enter_twice_at_once_asks_once(client: FakeClient, tmp_path: Path) -> None:
    async with opened(client, tmp_path) as pilot:
        screen = playground(pilot)
        for _ in range(2):
            screen.composer.post_message(screen.composer.Submitted("Why?"))
        await until(pilot, lambda: len(client.scripts) >= 2)
        await pilot.pause()
        assert len(client.asked) == 2


async def test_the_keys_of_the_playground_are_listed_and_can_be_remapped(
    client: FakeClient, tmp_path: Path
) -> None:
    keymap = {"app.compare": "f5", "column.keep": "f6"}
    async with running(client, tmp_path, keymap=keymap, size=(120, 60)) as pilot:
        pilot.app.chat.composer.put("Why?")
        await pilot.press("f5")
        await until(pilot, lambda: isinstance(pilot.app.screen, Playground))
        await answered(pilot, client, "one", "two")
        await pilot.press("alt+up", "f1")
        await until(pilot, lambda: isinstance(pilot.app.screen, HelpScreen))
        assert "column.keep" in screen_text(pilot) and "F6" in screen_text(pilot)
        await pilot.press("f1", "f6")
        await until(pilot, lambda: client.heads == ["r1"])


async def test_copying_takes_the_columns_reply(
    client: FakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[str] = []
    async with opened(client, tmp_path) as pilot:
        monkeypatch.setattr(pilot.app, "copy", lambda text, *said: copied.append(text))
        await answered(pilot, client, "one", "two\n```\ncode\n```\n")
        await pilot.press("alt+up", "y", "right", "c")
        await until(pilot, lambda: copied == ["one", "code"])


async def test_a_bell_rings_when_all_have_ended_and_nobody_looks(
    client: FakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bells: list[int] = []
    async with opened(client, tmp_path) as pilot:
        monkeypatch.setattr(pilot.app, "bell", lambda: bells.append(1))
        await asked(pilot, client)
        pilot.app.app_focus = False
        one, two = client.scripts.values()
        one.finish()
        await until(pilot, lambda: one.readers == 0)
        assert bells == []
        two.finish()
        await until(pilot, lambda: bells == [1])


async def test_what_the_server_does_is_said_in_each_column(
    client: FakeClient, tmp_path: Path
) -> None:
    async with opened(client, tmp_path) as pilot:
        await pilot.press("enter")
        await until(pilot, lambda: len(client.scripts) == 2)
        one, two = client.scripts.values()
        one.put(wire.Queued(2, 14.0))
        two.put(wire.Prefill(100, 400))
        await until(pilot, lambda: "number 2 in the queue" in screen_text(pilot))
        await until(pilot, lambda: "100 of 400 tokens" in screen_text(pilot))
