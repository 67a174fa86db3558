"""Completion: what is offered for each place, and the scripts in the shells that are here."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fake_server import KEY, FakeServer, hangs, http, says
from typer.main import get_command

from hobnob import cli, cli_completion
from hobnob.cli_completion import candidates
from hobnob.exits import Exit

ROOT = get_command(cli.app)
HOSTILE = "$(touch owned) `id`\x1b[2J;.gguf"


def offered(*words: str) -> list[str]:
    return [word for word, _ in candidates(ROOT, words)]


@pytest.fixture
async def server(hobnob_home: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeServer]:
    fake = FakeServer()
    fake.conversations = [{"id": "abcd1234ef", "title": "A\ttitle\x1b[2J"}, {"id": "ffff0000ef"}]
    async with fake.running():
        monkeypatch.setenv("HOBNOB_URL", fake.url)
        monkeypatch.setenv("HOBNOB_KEY", KEY)
        yield fake


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["hi"], ["history"]),
        (["history", "re"], ["rename", "restore"]),
        (["history", "export", "--a"], ["--all"]),
        (["ask", "--tem"], ["--temporary"]),
        (["--tem"], ["--temporary"]),
        (["what is", "--tem"], ["--temporary"]),
        (["--vers"], ["--version"]),
        (["ask", "--", "--tem"], []),
        (["history", "nonsense", ""], []),
        (["completion", "z"], ["zsh"]),
        (["ask", "a question", ""], []),
        (["stop", ""], []),
    ],
)
def test_commands_and_options_are_offered_where_they_may_stand(
    hobnob_home: Path, words: list[str], expected: list[str]
) -> None:
    assert offered(*words) == expected


def test_all_commands_are_offered_for_nothing_and_no_hidden_option_ever() -> None:
    assert set(offered("")) == {*ROOT.commands}  # type: ignore[attr-defined]
    assert "--bare" not in offered("ask", "--") and "--url" in offered("ask", "--")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["history", "show", ""], ["abcd1234", "ffff0000"]),
        (["history", "rm", "abcd1234", "f"], ["ffff0000"]),
        (["history", "rename", "abcd1234", ""], []),
        (["ask", "--conversation", "a"], ["abcd1234"]),
        (["-m", ""], ["fake-model"]),
        (["ask", "-m", "fake-model", ""], []),
        (["history", "export", "-o", ""], []),
    ],
)
async def test_conversations_and_models_are_those_of_the_server(
    server: FakeServer, words: list[str], expected: list[str]
) -> None:
    assert await asyncio.to_thread(offered, *words) == expected


async def test_what_a_word_stands_for_is_harmless_in_a_terminal(
    server: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["completion", "words", "--", "history", "show", "a"]
    assert await asyncio.to_thread(cli.run, arguments) == Exit.OK
    assert capsys.readouterr().out == "abcd1234\tA title\u241b[2J\n"


async def test_a_server_that_does_not_answer_costs_a_moment_and_no_error(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_completion, "ANSWER_SECONDS", 0.05)
    server.scripts["/models"] = [hangs, says(b"nonsense"), says(http(200, b"[1]"))]
    for _ in range(3):
        assert await asyncio.to_thread(offered, "-m", "") == []


def test_without_a_server_nothing_is_started(hobnob_home: Path) -> None:
    assert offered("history", "show", "") == [] and not hobnob_home.exists()


def test_an_unknown_shell_is_wrong_use(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["completion", "tcsh"]) == Exit.USAGE
    assert "bash, zsh, fish" in capfd.readouterr().err


# ---- the scripts ------------------------------------------------------------------------------


@pytest.fixture
def shell(server: FakeServer, tmp_path: Path) -> dict[str, str]:
    """An environment whose PATH has a hobnob."""
    program = tmp_path / "bin" / "hobnob"
    program.parent.mkdir()
    program.write_text(
        f"#!/bin/sh\nexec '{sys.executable}' -c 'from hobnob.cli import main; main()' \"$@\"\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}"}


async def said_by(environment: dict[str, str], folder: Path, *command: str) -> list[str]:
    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True, timeout=60
        )

    done = await asyncio.to_thread(run)
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
async def test_bash_completes_and_quotes_what_a_file_may_be_called(
    server: FakeServer, shell: dict[str, str], tmp_path: Path
) -> None:
    models = {"models": [{"id": HOSTILE}]}
    server.scripts["/models"] = [says(http(200, json.dumps(models).encode()))]
    line = """
        eval "$(hobnob completion bash)"
        complete -p hobnob
        tab() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _hobnob "$1"; echo "${COMPREPLY[@]}"; }
        tab hobnob history ex
        tab hobnob -m ''
        eval "set -- ${COMPREPLY[0]}"; echo "$# $1"
    """
    registered, verb, quoted, taken = await said_by(shell, tmp_path, "bash", "-c", line)
    assert registered == "complete -o default -F _hobnob hobnob"
    assert verb == "export"
    assert quoted.startswith("\\$\\(touch\\ owned\\)")
    assert taken == "1 " + HOSTILE.replace("\x1b", "\u241b")
    assert not (tmp_path / "owned").exists()


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
async def test_fish_completes_commands_conversations_and_files(
    server: FakeServer, shell: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "a-file").touch()
    line = """
        hobnob completion fish | source
        complete -C 'hobnob history ex'
        complete -C 'hobnob history show ab'
        complete -C 'hobnob history backup a-f'
    """
    assert await said_by(shell, tmp_path, "fish", "--no-config", "-c", line) == [
        "export\tWrite conversations as Markdown or JSON.",
        "abcd1234\tA title\u241b[2J",
        "a-file",
    ]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh")
async def test_zsh_takes_the_script(shell: dict[str, str], tmp_path: Path) -> None:
    line = """
        autoload -U compinit; compinit -u -D
        eval "$(hobnob completion zsh)"
        echo "${_comps[hobnob]}"
    """
    assert await said_by(shell, tmp_path, "zsh", "-f", "-c", line) == ["_hobnob"]
