"""The terminal is as it was, however the app ends."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support_documents import DOCUMENTS
from support_terminal import COLUMNS, READY, Terminal


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
    terminal.read_until("unsent")
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


@pytest.fixture
def talking(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Terminal]:
    """It replies with a text."""
    file = tmp_path / "reply.md"
    file.write_text(request.param)
    made = Terminal(tmp_path / "state", str(file))
    made.read_until(READY)
    yield made
    made.close()


CURSOR_ROW = 27  # it blinks
OVER = "1204 prompt tokens"
WORDS = "the lamp turns slowly over a grey sea and **nobody** counts the `waves` in it "
KINDS = "\n\n".join(DOCUMENTS[name] for name in ("answer", "table", "cjk", "quote", "difference"))


@pytest.mark.parametrize("talking", [WORDS * 30 + KINDS], indirect=True, ids=["every kind"])
def test_after_a_stream_the_terminal_shows_what_drawing_everything_would(
    talking: Terminal,
) -> None:
    os.write(talking.master, b"go\r")
    talking.read_until(OVER)
    talking.settle()
    streamed = talking.seen.cells()[:CURSOR_ROW]
    for columns in (COLUMNS + 1, COLUMNS):  # each time all of the screen is drawn
        talking.resize(columns)
        talking.settle()
    assert streamed == talking.seen.cells()[:CURSOR_ROW]


@pytest.mark.parametrize("talking", [WORDS * 100], indirect=True, ids=["prose"])
def test_what_is_written_is_the_new_text_and_little_for_each_time_that_rows_move(
    talking: Terminal,
) -> None:
    """Drawing the transcript anew takes 2,500 bytes; moving its rows and the list's, 400."""
    before = len(talking.output)
    os.write(talking.master, b"go\r")
    talking.read_until(OVER)
    moved = talking.output.count(b"\x1b[r")
    assert moved > 5
    assert len(talking.output) - before < 2 * len(WORDS * 100) + 400 * moved + 8000
