"""Temporary conversations of the real program: they outlive a killed server, and nothing else."""

from __future__ import annotations

from support_e2e import GREEDY, Home, kill, read_rest, read_some, wait_for

PROMPT = "Count from one to forty, in words, one number after the other."
ASK = ("ask", *GREEDY, "-o", "max_tokens", "120", "-o", "ignore_eos", "true", PROMPT)


def traces(home: Home) -> int:
    """How often the prompt is in any file of the history."""
    files = [file for file in home.paths.database.parent.rglob("*") if file.is_file()]
    return sum(file.read_bytes().count(PROMPT.encode()) for file in files)


def test_a_temporary_reply_goes_on_after_kill_9_of_the_server_and_leaves_nothing(
    home: Home, running: Home
) -> None:
    expected = running.run(*ASK)
    assert expected.returncode == 0, expected.stderr.decode()
    asking = home.start(*ASK, "--temporary")
    shown = read_some(asking, 30)
    assert traces(home) > 0
    assert home.conversations() == []
    kill(home.status()["server"]["pid"])
    rest, complaints = read_rest(asking)
    assert asking.returncode == 0, complaints.decode()
    assert shown + rest == expected.stdout
    wait_for(lambda: traces(home) == 0)
