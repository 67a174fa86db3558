"""`!` in the app: the line is run while all else goes on, and what it puts out is in the input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_client import FakeClient
from support_app import running, screen_text, send, until
from textual import events
from textual.pilot import Pilot

from hobnob.tui.inline_app import InlineApp
from hobnob.tui.shell_command import ShellCommand

LONG = "echo begun; exec sleep 1000"


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    monkeypatch.setenv("SHELL", "/bin/sh")
    return FakeClient()


async def enter(pilot: Pilot[Any], line: str) -> None:
    pilot.app.chat.composer.insert(line)
    await pilot.press("enter")


async def shows(pilot: Pilot[Any], text: str) -> None:
    await until(pilot, lambda: pilot.app.chat.composer.text == text)


async def runs(pilot: Pilot[Any], command: str) -> None:
    await until(pilot, lambda: f"`{command}` runs: Esc stops it" in screen_text(pilot))


async def test_its_output_is_in_the_input_and_goes_with_the_question(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path) as pilot:
        await pilot.press(*"!echo a; exit 2", "enter")
        await shows(pilot, "[ran echo a; exit 2, exit code 2, 1 line #1]\n")
        assert client.sent == [], "the model is told nothing by that"
        await pilot.press(*"why?", "enter")
        await until(pilot, lambda: len(client.sent) == 1)
        assert client.sent[0]["text"] == (
            "`echo a; exit 2`\nwhy?\n\n"
            "Shell command, exit code 2:\n```console\n$ echo a; exit 2\na\n```"
        )


async def test_an_output_is_deleted_as_a_whole(client: FakeClient, tmp_path: Path) -> None:
    async with running(client, tmp_path) as pilot:
        await enter(pilot, "!echo a")
        await shows(pilot, "[ran echo a, 1 line #1]\n")
        await pilot.press("backspace", "backspace")
        assert pilot.app.chat.composer.full_text == ""


async def test_what_is_typed_meanwhile_stays_with_the_cursor_in_it(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path) as pilot:
        go = tmp_path / "go"
        await enter(pilot, f"!until [ -e {go} ]; do sleep 0.01; done; echo x")
        await pilot.press(*"wy?", "left", "left")
        go.touch()
        composer = pilot.app.chat.composer
        await until(pilot, lambda: composer.text.startswith("[ran "))
        await pilot.press("h")
        assert composer.text.endswith(", 1 line #1]\nwhy?")


async def test_a_command_that_is_being_typed_is_not_disturbed(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path) as pilot:
        go = tmp_path / "go"
        await enter(pilot, f"!until [ -e {go} ]; do sleep 0.01; done")
        await pilot.press(*"/help")
        go.touch()
        await until(pilot, lambda: "Esc stops it" not in screen_text(pilot))
        composer = pilot.app.chat.composer
        assert composer.text == "/help"
        await pilot.press("enter")
        await until(pilot, lambda: composer.text.startswith("[ran until"))
        assert "The input" in screen_text(pilot)


async def test_escape_stops_it_and_the_reply_goes_on(client: FakeClient, tmp_path: Path) -> None:
    async with running(client, tmp_path) as pilot:
        await send(pilot, "hi")
        await enter(pilot, f"!{LONG}")
        await runs(pilot, LONG)
        await pilot.press("escape")
        await shows(pilot, f"[ran {LONG}, stopped, 1 line #1]\n")
        assert client.cancelled == [] and pilot.app.talk.live is not None
        assert "Esc stops it" not in screen_text(pilot)
        await pilot.press("escape")
        await until(pilot, lambda: len(client.cancelled) == 1)


async def test_a_message_is_sent_while_one_runs(client: FakeClient, tmp_path: Path) -> None:
    async with running(client, tmp_path) as pilot:
        await enter(pilot, f"!{LONG}")
        await runs(pilot, LONG)
        await send(pilot, "hi")
        assert client.sent[0]["text"] == "hi"
        await pilot.press("ctrl+c")
        await shows(pilot, f"[ran {LONG}, stopped, 1 line #1]\n")


async def test_commands_are_run_one_after_the_other(client: FakeClient, tmp_path: Path) -> None:
    async with running(client, tmp_path) as pilot:
        go = tmp_path / "go"
        await enter(pilot, f"!until [ -e {go} ]; do sleep 0.01; done; echo a; rm {go}")
        await enter(pilot, f"!ls {go}; echo b")
        go.touch()
        composer = pilot.app.chat.composer
        await until(pilot, lambda: "#2]" in composer.text)
        first, second, end = composer.text.split("\n")
        assert (first[:10], second[:7], end) == ("[ran until", "[ran ls", "")
        assert "echo b\nls: " in composer.full_text
        await pilot.press(*"!echo c", "enter")
        await until(pilot, lambda: "[ran echo c, 1 line #3]\n" in composer.text)
        assert composer.text.startswith(f"{first}\n{second}\n")


async def test_escape_stops_those_that_wait_too(client: FakeClient, tmp_path: Path) -> None:
    async with running(client, tmp_path) as pilot:
        await enter(pilot, f"!{LONG}")
        await enter(pilot, "!touch never")
        await pilot.press("escape")
        await shows(pilot, f"[ran {LONG}, stopped, 1 line #1]\n")
        assert "Not run any more: `touch never`." in screen_text(pilot)
        await pilot.press("up", "up")
        assert pilot.app.chat.composer.text == "!touch never"


@pytest.mark.parametrize(
    ("typed", "sent"), [("!!look", "!look"), (" !look", " !look"), ("!", "!"), ("!a\nb", "!a\nb")]
)
async def test_a_message_may_begin_with_the_mark(
    client: FakeClient, tmp_path: Path, typed: str, sent: str
) -> None:
    async with running(client, tmp_path) as pilot:
        await enter(pilot, typed)
        await until(pilot, lambda: len(client.sent) == 1)
        assert client.sent[0]["text"] == sent
        await pilot.press("up")
        assert pilot.app.chat.composer.text == typed, "so that it is one again"


@pytest.mark.parametrize("pasted", ["!ls", "!ls\n", "!a\nb\n", "!" + "x" * 5000])
async def test_a_paste_is_a_message(client: FakeClient, tmp_path: Path, pasted: str) -> None:
    async with running(client, tmp_path) as pilot:
        pilot.app.chat.composer.post_message(events.Paste(pasted))
        await pilot.press("enter")
        await until(pilot, lambda: len(client.sent) == 1)
        assert client.sent[0]["text"] == pasted


async def test_what_was_copied_in_the_app_is_a_message_too(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path) as pilot:
        pilot.app.copy_to_clipboard("!ls")
        await pilot.press("ctrl+v", "enter")
        await until(pilot, lambda: len(client.sent) == 1)
        assert client.sent[0]["text"] == "!ls"


async def test_what_is_pasted_behind_a_mark_is_run(client: FakeClient, tmp_path: Path) -> None:
    async with running(client, tmp_path) as pilot:
        await pilot.press("!")
        pilot.app.chat.composer.post_message(events.Paste("echo !\n"))
        await pilot.press("enter")
        await shows(pilot, "[ran echo !, 1 line #1]\n")


async def test_a_message_that_is_edited_is_a_message(client: FakeClient, tmp_path: Path) -> None:
    async with running(client, tmp_path) as pilot:
        await enter(pilot, "!!look")
        await until(pilot, lambda: len(client.sent) == 1)
        client.script.start()
        client.script.finish()
        await until(pilot, lambda: pilot.app.talk.live is None)
        await enter(pilot, "/edit")
        await shows(pilot, "!!look")
        await enter(pilot, " again")
        await until(pilot, lambda: len(client.sent) == 2)
        assert client.sent[1]["text"] == "!look again"


async def test_it_says_what_enter_will_do_and_offers_no_files(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path) as pilot:
        await pilot.press(*"!git show @")
        await until(pilot, lambda: "Enter runs it in your shell" in screen_text(pilot))
        assert not pilot.app.chat.query_one("#completions").display


async def test_a_shell_that_cannot_be_run_is_said(
    client: FakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", "/no/such/shell")
    async with running(client, tmp_path) as pilot:
        await enter(pilot, "!ls")
        await until(pilot, lambda: "/no/such/shell cannot be run" in screen_text(pilot))
        await pilot.press("up")
        assert pilot.app.chat.composer.text == "!ls"


async def test_looking_at_earlier_prompts_loses_no_output(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path) as pilot:
        go = tmp_path / "go"
        await enter(pilot, "!true")
        await shows(pilot, "[ran true, no output #1]\n")
        await enter(pilot, f"!until [ -e {go} ]; do sleep 0.01; done")
        await pilot.press("up", "up")
        composer = pilot.app.chat.composer
        assert composer.text.startswith("!until")
        go.touch()
        await until(pilot, lambda: "Esc stops it" not in screen_text(pilot))
        assert composer.text.startswith("!until")
        await pilot.press("down")
        await until(pilot, lambda: "#2]" in composer.text)
        assert composer.text.startswith("[ran true, no output #1]\n[ran until")


async def test_an_output_is_a_draft(client: FakeClient, tmp_path: Path) -> None:
    async with running(client, tmp_path) as pilot:
        await enter(pilot, "!echo a")
        await shows(pilot, "[ran echo a, 1 line #1]\n")
        pilot.app.chat.save_draft()
    async with running(client, tmp_path) as pilot:
        await shows(pilot, "[ran echo a, 1 line #1]\n")
        assert "$ echo a\na\n" in pilot.app.chat.composer.full_text


async def test_it_comes_into_the_input_of_the_conversation_that_is_open_then(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("Other", "a", "b", id="c9")
    async with running(client, tmp_path) as pilot:
        go = tmp_path / "go"
        await enter(pilot, f"!until [ -e {go} ]; do sleep 0.01; done")
        pilot.app.chat.open("c9")
        await until(pilot, lambda: pilot.app.talk.id == "c9")
        go.touch()
        await until(pilot, lambda: "[ran until" in pilot.app.chat.composer.text)


async def test_none_of_a_temporary_conversation_comes_into_another(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path, temporary=True) as pilot:
        await enter(pilot, f"!{LONG}")
        await runs(pilot, LONG)
        pilot.app.chat.new()
        await until(pilot, lambda: "Esc stops it" not in screen_text(pilot))
        assert pilot.app.chat.composer.text == ""
        assert not (tmp_path / "prompts.jsonl").exists()


async def test_the_end_of_the_app_ends_what_runs(
    client: FakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = tmp_path / "ended"
    over: list[bool] = []
    run = ShellCommand.run

    async def noted(shell: ShellCommand) -> Any:
        try:
            return await run(shell)
        finally:
            over.append(True)

    monkeypatch.setattr(ShellCommand, "run", noted)
    async with running(client, tmp_path) as pilot:
        await enter(pilot, f"!{LONG}; touch {ended}")
        await until(pilot, lambda: "Esc stops it" in screen_text(pilot))
        await pilot.press("ctrl+q")
        await until(pilot, lambda: over == [True])
    assert not ended.exists()


async def test_it_runs_in_the_scrollback_too(client: FakeClient, tmp_path: Path) -> None:
    app = InlineApp(lambda hear: client, tmp_path)
    async with app.run_test(size=(100, 20)) as pilot:
        await until(pilot, lambda: pilot.app.line.client is not None)
        await enter(pilot, "!echo a")
        await shows(pilot, "[ran echo a, 1 line #1]\n")
        pilot.app.workers.cancel_all()


async def test_the_playground_runs_nothing(client: FakeClient, tmp_path: Path) -> None:
    async with running(client, tmp_path) as pilot:
        await pilot.press("ctrl+l")
        await until(pilot, lambda: type(pilot.app.screen).__name__ == "Playground")
        await pilot.press(*"!echo", "enter")
        await until(pilot, lambda: len(client.sent) > 0)
        assert client.sent[0]["text"] == "!echo"
        assert pilot.app.prompts.all() == ["!!echo"]
