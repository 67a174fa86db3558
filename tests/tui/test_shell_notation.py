"""Which line of the input is for the shell, and how a message is written that looks like one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hobnob.tui.shell_notation import command_in, literal, unmarked


@pytest.mark.parametrize(
    ("text", "command"),
    [("!ls -la", "ls -la"), ("!  ls ", "ls"), ("!ls\n", "ls"), ("!a ! b", "a ! b"), ("!/x", "/x")],
)
def test_a_line_that_begins_with_the_mark_is_a_command(text: str, command: str) -> None:
    assert command_in(text) == command


@pytest.mark.parametrize(
    "text", ["", "!", "! ", "!\n", "ls", " !ls", "\n!ls", "!!ls", "!!", "!!!", "!a\nb", "a !b"]
)
def test_anything_else_is_a_message(text: str) -> None:
    assert command_in(text) == ""


@given(st.text(alphabet="! a\n"))
def test_every_message_can_be_written_and_is_no_command_then(message: str) -> None:
    assert unmarked(literal(message)) == message
    assert command_in(literal(message)) == ""
