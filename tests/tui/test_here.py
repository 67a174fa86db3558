"""`-c` goes on with what this terminal talked in, whatever others did since."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
from fake_server import CONVERSATION, FakeServer, refusal, says
from support_cli import COMMAND, Cli
from support_session import Session

from hobnob.launch import Target
from hobnob.paths import Paths
from hobnob.tui import here
from hobnob.tui.farewell import say_how_to_come_back


@pytest.fixture
def one_of(monkeypatch: pytest.MonkeyPatch) -> dict[str, str | None]:
    """Which terminal this is."""
    chosen: dict[str, str | None] = {"terminal": "a"}
    monkeypatch.setattr(here, "_terminal", lambda: chosen["terminal"])
    return chosen


def test_each_terminal_has_its_own(tmp_path: Path, one_of: dict[str, str | None]) -> None:
    for terminal in ("a", "b"):
        one_of["terminal"] = terminal
        assert here.recall(tmp_path) is None
        here.remember(tmp_path, f"conversation-{terminal}")
    one_of["terminal"] = "a"
    assert here.recall(tmp_path) == "conversation-a"
    one_of["terminal"] = None
    here.remember(tmp_path, "of-no-terminal")
    assert here.recall(tmp_path) is None
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a", "b"]


def test_terminals_that_were_used_long_ago_are_forgotten(
    tmp_path: Path, one_of: dict[str, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(here, "MAX_TERMINALS", 3)
    for number in range(6):
        one_of["terminal"] = str(number)
        here.remember(tmp_path, f"conversation-{number}")
        os.utime(tmp_path / str(number), (number, number))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["3", "4", "5"]


@pytest.mark.parametrize("damaged", [b"", b"../../x", b"a b", b"\xff\xfe", b"x" * 200])
def test_a_damaged_memory_is_none(
    tmp_path: Path, one_of: dict[str, str | None], damaged: bytes
) -> None:
    (tmp_path / "a").write_bytes(damaged)
    assert here.recall(tmp_path) is None


def test_a_folder_that_cannot_be_written_costs_the_memory_alone(
    tmp_path: Path, one_of: dict[str, str | None]
) -> None:
    (tmp_path / "in-the-way").write_text("")
    here.remember(tmp_path / "in-the-way", "conversation")
    assert here.recall(tmp_path / "in-the-way") is None


def test_a_chat_is_remembered_at_its_end(
    tmp_path: Path, one_of: dict[str, str | None], capsys: pytest.CaptureFixture[str]
) -> None:
    paths = Paths.home({"HOBNOB_HOME": str(tmp_path)})
    paths.make()
    say_how_to_come_back(Target(paths, None, "secret"), "0123456789")
    assert here.recall(paths.terminals_dir) == "0123456789"


def test_a_process_that_ended_and_a_later_one_of_its_number_are_two() -> None:
    assert here._began(os.getpid()) == here._began(os.getpid())
    if Path("/proc/1/stat").exists():
        assert here._began(1) != here._began(os.getpid())


@pytest.mark.parametrize("there", [True, False])
async def test_a_terminal_goes_on_with_its_own_conversation_while_it_is_there(
    server: FakeServer, hobnob: Cli, there: bool
) -> None:
    server.conversations = [{"id": "newest00"}]
    if not there:
        gone = refusal(404, "not_found")
        server.scripts[f"/conversations/{CONVERSATION}"] = [says(gone)]
    python = shlex.join(COMMAND)
    both = f"{python} ask -q first && {python} ask -q -c second && echo done"
    async with Session(hobnob, command=("sh", "-c", both)) as session:
        await session.until("done")
    assert len(server.asked("POST", "/conversations/new/messages")) == 1
    place = CONVERSATION if there else "newest00"
    (sent,) = server.asked("POST", f"/conversations/{place}/messages")
    assert sent.json["text"] == "second"
