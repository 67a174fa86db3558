"""What is offered while one types, and what becomes of it."""

from __future__ import annotations

import os
import socket
from contextlib import closing
from pathlib import Path

import pytest
from fake_client import FakeClient
from support_app import running, screen_text, until

from hobnob.tui import files, outlook
from hobnob.tui.commands import COMMANDS, matching
from hobnob.tui.completions import MOST_SHOWN, Completions


@pytest.fixture
def client() -> FakeClient:
    return FakeClient()


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "app.py").write_text("print('app')\n")
    (folder / "notes.md").write_text("# Notes\n")
    (folder / "night.png").write_bytes(b"\x89PNG\x00")
    monkeypatch.chdir(folder)
    return folder


def offered(pilot) -> list[str]:
    return pilot.app.query_one(Completions).shown


# ---- commands


def test_commands_are_offered_for_what_they_may_become() -> None:
    assert matching("/") == list(COMMANDS)
    assert matching("/re") == ["/regenerate", "/rename"]
    assert matching("/re x") == matching("re") == matching("") == matching("/re\n") == []


async def test_a_command_is_chosen_from_the_list_and_runs_when_it_is_whole(
    client: FakeClient, tmp_path: Path
) -> None:
    client.talk("t", "one", "two")
    async with running(client, tmp_path, conversation="c0001") as pilot:
        await until(pilot, lambda: pilot.app.talk.id == "c0001")
        composer = pilot.app.chat.composer
        await pilot.press("slash", *"re")
        await until(pilot, lambda: "a new reply to the last message" in screen_text(pilot))
        await pilot.press("down", "down", "down", "enter")  # around the end
        assert composer.text == "/rename" and offered(pilot) == []
        composer.take()
        await pilot.press("slash", *"ne", "tab")
        assert composer.text == "/new" and client.sent == []
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.talk.id is None)
        assert composer.text == "" and client.sent == []


async def test_how_many_more_there_are_than_are_in_sight_is_said(
    client: FakeClient, tmp_path: Path
) -> None:
    rest = len(COMMANDS) - MOST_SHOWN
    async with running(client, tmp_path) as pilot:
        await pilot.press("slash")
        await until(pilot, lambda: f"↓ {rest} more" in screen_text(pilot))
        await pilot.press(*["down"] * 6)
        await until(pilot, lambda: f"↑ 2 more · ↓ {rest - 2} more" in screen_text(pilot))
        await pilot.press(*["up"] * 7)  # around the beginning
        await until(pilot, lambda: f"↑ {rest} more" in screen_text(pilot))
        assert "/quit" in screen_text(pilot) and "↓" not in screen_text(pilot)
        await pilot.press(*"re")
        await until(pilot, lambda: "more" not in screen_text(pilot))


@pytest.mark.parametrize("height", [10, 12, 16])
async def test_on_a_low_screen_the_offers_leave_room_for_the_input(
    client: FakeClient, tmp_path: Path, height: int
) -> None:
    async with running(client, tmp_path, size=(80, height)) as pilot:
        await pilot.press("slash")
        await until(pilot, lambda: "more" in screen_text(pilot))
        assert pilot.app.chat.composer.region.bottom < height
        assert "/new" in screen_text(pilot)


async def test_escape_closes_the_list_and_the_text_is_sent_as_typed(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path) as pilot:
        await pilot.press("slash", *"re", "escape")
        assert offered(pilot) == []
        await pilot.press("enter")
        await until(pilot, lambda: len(client.sent) == 1)
        assert client.sent[0]["text"] == "/re"


async def test_every_command_does_something(client: FakeClient, tmp_path: Path) -> None:
    client.talk("t", "one", "two")
    async with running(client, tmp_path) as pilot:
        for name in COMMANDS:
            if name != "/quit":
                await pilot.app.run_command(name)
                await pilot.press("escape")
        titles = [found.title for found in pilot.app.get_system_commands(pilot.app.screen)]
        assert len(titles) == len(COMMANDS)


async def test_a_prompt_that_is_recalled_opens_no_list(client: FakeClient, work: Path) -> None:
    async with running(client, work / "state") as pilot:
        for text in ("older", "see @no"):
            pilot.app.chat._prompts.add(text)
        await pilot.press("up")
        assert pilot.app.chat.composer.text == "see @no" and offered(pilot) == []
        await pilot.press("up")
        assert pilot.app.chat.composer.text == "older"


# ---- files


async def test_a_file_is_found_picked_shown_by_its_name_and_sent_in_full(
    client: FakeClient, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlook, "PAUSE_SECONDS", 0.0)
    async with running(client, work / "state") as pilot:
        composer = pilot.app.chat.composer
        await pilot.press(*"explain @ap")
        await until(pilot, lambda: offered(pilot) == ["src/app.py"])
        await pilot.press("enter")
        await until(pilot, lambda: "[file" in composer.text)
        assert composer.text == "explain [file src/app.py, 13 characters #1] "
        await pilot.press(*"please")
        sent = "explain src/app.py please\n\nsrc/app.py:\n```py\nprint('app')\n```"
        await until(pilot, lambda: bool(client.planned) and client.planned[-1]["text"] == sent)
        await pilot.press("enter")
        await until(pilot, lambda: len(client.sent) == 1)
        assert client.sent[0]["text"] == sent


async def test_a_folder_is_gone_into(client: FakeClient, work: Path) -> None:
    async with running(client, work / "state") as pilot:
        await pilot.press("at", *"sr")
        await until(pilot, lambda: offered(pilot) == ["src/"])
        await pilot.press("tab")
        assert pilot.app.chat.composer.text == "@src/"
        await until(pilot, lambda: offered(pilot) == ["src/app.py"])
        await pilot.press("tab")
        await until(pilot, lambda: "[file src/app.py" in pilot.app.chat.composer.text)


async def test_a_hostile_name_is_only_text_and_what_is_no_file_is_refused(
    client: FakeClient, work: Path
) -> None:
    named = "zz[bold]$accent[@click=app.quit]x[b].md"
    (work / named).write_text("harmless")
    os.mkfifo(work / "zz-pipe")
    (work / "zz-device").symlink_to("/dev/zero")
    (work / "zz-self").symlink_to("zz-self")
    with closing(socket.socket(socket.AF_UNIX)) as listening:
        listening.bind("zz-socket")
    async with running(client, work / "state") as pilot:
        composer = pilot.app.chat.composer
        for name, why in [
            ("zz-device", "not a file"),
            ("zz-pipe", "not a file"),
            ("zz-self", "cannot be read"),
            ("zz-socket", "not a file"),
        ]:
            composer.put("")
            await pilot.press("at", *name[:5])
            await until(pilot, lambda n=name: offered(pilot) == [n])
            await pilot.press("tab")
            await until(pilot, lambda w=why: w in screen_text(pilot))
            assert composer.text == f"@{name[:5]}"
            pilot.app.clear_notifications()
            await until(pilot, lambda w=why: w not in screen_text(pilot))
        composer.put("")
        await pilot.press("at", *"zz[")
        await until(pilot, lambda: named in screen_text(pilot))
        await pilot.press("tab")
        await until(pilot, lambda: "[file" in composer.text)
        assert "@click=app.quit" in screen_text(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: len(client.sent) == 1)
        assert named in client.sent[0]["text"] and "harmless" in client.sent[0]["text"]


async def test_a_file_that_is_no_text_is_refused_and_the_draft_kept(
    client: FakeClient, work: Path
) -> None:
    async with running(client, work / "state") as pilot:
        await pilot.press(*"look @nig")
        await until(pilot, lambda: offered(pilot) == ["night.png"])
        await pilot.press("tab")
        words = "night.png is not text (UTF-8), so it cannot be attached."
        await until(pilot, lambda: words.split(",")[0] in screen_text(pilot))
        assert pilot.app.chat.composer.text == "look @nig" and client.sent == []


@pytest.mark.parametrize(
    "text", ["mail me@notes.md", "what is @property", "@notes.md is it", "a @"]
)
async def test_text_with_an_at_is_sent_as_typed_when_no_file_is_picked(
    client: FakeClient, work: Path, text: str
) -> None:
    async with running(client, work / "state") as pilot:
        await pilot.press(*text)
        await pilot.pause(0.05)
        if text.endswith("@"):
            await until(pilot, lambda: "notes.md" in offered(pilot))
            await pilot.press("escape")
        assert offered(pilot) == []
        await pilot.press("enter")
        await until(pilot, lambda: len(client.sent) == 1)
        assert client.sent[0]["text"] == text


async def test_nothing_is_sent_while_a_file_is_being_read(
    client: FakeClient, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    gate = threading.Event()
    real = files.read
    monkeypatch.setattr(files, "read", lambda path, shown: gate.wait(10) and real(path, shown))
    async with running(client, work / "state") as pilot:
        await pilot.press(*"see @not")
        await until(pilot, lambda: offered(pilot) == ["notes.md"])
        await pilot.press("tab", "enter")
        await until(pilot, lambda: "notes.md is still being read" in screen_text(pilot))
        assert client.sent == []
        gate.set()
        await until(pilot, lambda: "[file notes.md" in pilot.app.chat.composer.text)
        await pilot.press("enter")
        await until(pilot, lambda: len(client.sent) == 1)


async def test_a_draft_with_a_file_is_as_it_was_after_a_restart(
    client: FakeClient, work: Path
) -> None:
    async with running(client, work / "state") as pilot:
        await pilot.press(*"see @not")
        await until(pilot, lambda: offered(pilot) == ["notes.md"])
        await pilot.press("tab")
        await until(pilot, lambda: "[file" in pilot.app.chat.composer.text)
        before = pilot.app.chat.composer.typed
        pilot.app.chat.leave()
    (work / "notes.md").write_text("changed since")
    async with running(client, work / "state") as pilot:
        composer = pilot.app.chat.composer
        assert composer.typed == before
        assert composer.text == "see [file notes.md, 8 characters #1] "
        await pilot.press("at", *"not")
        await until(pilot, lambda: offered(pilot) == ["notes.md"])
        await pilot.press("tab")
        await until(pilot, lambda: "#2]" in composer.text)
        assert "# Notes" in composer.full_text and "changed since" in composer.full_text


async def test_a_message_with_a_file_that_was_not_accepted_is_back_as_it_was(
    client: FakeClient, work: Path
) -> None:
    from hobnob.tui.notice import ClientError

    async with running(client, work / "state") as pilot:
        composer = pilot.app.chat.composer
        await pilot.press(*"see @not")
        await until(pilot, lambda: offered(pilot) == ["notes.md"])
        await pilot.press("tab")
        await until(pilot, lambda: "[file" in composer.text)
        before = composer.typed
        client.refuse = ClientError("server_overloaded", "Later.")
        await pilot.press("enter")
        await until(pilot, lambda: "Not sent: Later." in screen_text(pilot))
        assert composer.typed == before
        await pilot.press("enter")
        await until(pilot, lambda: len(client.sent) == 1)
        assert client.sent[0]["text"] == before.full
