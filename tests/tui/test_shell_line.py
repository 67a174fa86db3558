"""The command in a reply: one line that can be seen, or a sentence why not."""

from __future__ import annotations

import pytest

from hobnob.tui.shell_line import NoCommandError, command, system_prompt


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("ls -l\n", "ls -l"),
        ("```bash\nls -l\n```", "ls -l"),
        ("Of course:\r\n\r\n```\r\nls\r\n```\r\nIt lists.\n```\nls -a\n```", "ls"),
        ("~~~sh\nls -l", "ls -l"),
        ("`ls -l`", "ls -l"),
        ("``ls``", "ls"),
        ("echo `date` and `id`", "echo `date` and `id`"),
        ("$ ls", "ls"),
        ("$HOME/bin/x", "$HOME/bin/x"),
        ("find . \\\n    -name x", "find .  -name x"),
        ("echo 'größe \"日本\"'", "echo 'größe \"日本\"'"),
        ("cut -d'\t' -f1", "cut -d'\t' -f1"),
    ],
)
def test_the_command_is_taken_out_of_what_stands_around_it(reply: str, expected: str) -> None:
    assert command(reply) == expected


@pytest.mark.parametrize("reply", ["", " \n\t\n", "``` \n```"])
def test_an_empty_reply_is_no_command(reply: str) -> None:
    with pytest.raises(NoCommandError, match="is empty"):
        command(reply)


@pytest.mark.parametrize(
    "reply", ["ls\nrm -r x", "```\nls\nrm -r x\n```", "To list:\n\nls", "echo a\\\\\nrm x"]
)
def test_several_lines_are_no_command(reply: str) -> None:
    with pytest.raises(NoCommandError, match="not one command"):
        command(reply)


@pytest.mark.parametrize(
    "control", ["\x1b[2J", "\x00", "\x07", "\r", "\x9b", "\u202e", "\u2028", "\x7f"]
)
def test_what_cannot_be_seen_is_refused_and_shown_harmlessly(control: str) -> None:
    with pytest.raises(NoCommandError) as refused:
        command(f"ls {control} x")
    assert control not in refused.value.message


def test_a_long_reply_is_not_repeated_in_the_error() -> None:
    with pytest.raises(NoCommandError) as refused:
        command("word " * 1000 + "\nword")
    assert len(refused.value.message) < 120


def test_the_model_is_told_the_shell_and_the_system() -> None:
    assert "shell fish on macOS" in system_prompt("macOS", "fish")
