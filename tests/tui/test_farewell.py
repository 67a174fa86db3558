"""The line that is left in the terminal when a chat ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from hobnob.launch import Target
from hobnob.paths import Paths
from hobnob.tui.farewell import say_how_to_come_back

ID = "0123456789abcdef0123"


@pytest.mark.parametrize(
    ("url", "options", "line"),
    [
        (None, (), "hobnob --conversation 01234567"),
        (None, ("--plain",), "hobnob --plain --conversation 01234567"),
        ("http://far:7113", (), "hobnob --url http://far:7113 --conversation 01234567"),
        ("http://far/a;b", (), "hobnob --url 'http://far/a;b' --conversation 01234567"),
    ],
)
def test_the_way_back_leads_to_the_same_server(
    url: str | None,
    options: tuple[str, ...],
    line: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HOBNOB_URL", raising=False)
    paths = Paths.home({"HOBNOB_HOME": str(tmp_path)})
    say_how_to_come_back(Target(paths, url, "secret"), ID, *options)
    assert capsys.readouterr().out == f"To go on with this: {line}\n"


def test_an_address_that_is_in_the_environment_need_not_be_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOBNOB_URL", "far:7113/")
    target = Target(Paths.home({"HOBNOB_HOME": str(tmp_path)}), "http://far:7113", "secret")
    say_how_to_come_back(target, ID)
    assert capsys.readouterr().out == "To go on with this: hobnob --conversation 01234567\n"


@pytest.mark.parametrize(
    ("called", "found", "named"),
    [
        (".venv/bin/hobnob", None, ".venv/bin/hobnob"),
        (".venv/bin/hobnob", "/usr/bin/hobnob", "hobnob"),
        ("-c", None, "hobnob"),
    ],
)
def test_the_program_is_named_as_the_shell_finds_it(
    called: str,
    found: str | None,
    named: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.argv", [called])
    monkeypatch.setattr("shutil.which", lambda name: found)
    say_how_to_come_back(Target(Paths.home({"HOBNOB_HOME": str(tmp_path)}), None, None), ID)
    assert f": {named} --conversation" in capsys.readouterr().out
