"""The terminal is as it was, however the app ends."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support_terminal import READY, Terminal


@pytest.fixture
def terminal(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Terminal]:
    made = Terminal(tmp_path, *getattr(request, "param", []))
    made.read_until(READY)
    yield made
    made.close()


def test_after_quitting_the_terminal_is_as_before(terminal: Terminal) -> None:
    os.write(terminal.master, b"\x11")
    assert terminal.finish() == 0
    assert terminal.restored


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_app_with_its_code_and_keeps_the_draft(
    terminal: Terminal, tmp_path: Path, number: signal.Signals
) -> None:
    os.write(terminal.master, b"unsent")
    terminal.read_until(b"unsent")
    terminal.process.send_signal(number)
    assert terminal.finish() == 128 + number
    assert terminal.restored
    assert json.loads((tmp_path / "drafts" / "new.json").read_text())["text"] == "unsent"


@pytest.mark.parametrize("terminal", [["raise"]], indirect=True)
def test_an_exception_leaves_the_terminal_usable_and_fails(terminal: Terminal) -> None:
    os.write(terminal.master, b"\x0e")
    assert terminal.finish() == 1
    assert b"a handler broke" in terminal.output
    assert terminal.restored
