"""Replies survive cut connections and killed processes, shown by the real program.

HOBNOB_ROUNDS=10 repeats the killing more often than the suite does.
"""

from __future__ import annotations

import os
import random
import subprocess
from typing import Any

import pytest
from cutting_proxy import cutting_proxy
from support_e2e import BINARY, GREEDY, Home, kill, read_rest, read_some, wait_for

ROUNDS = int(os.environ.get("HOBNOB_ROUNDS", "1"))
PROMPT = "Count from one to forty, in words, one number after the other."
ASK = ("ask", *GREEDY, "-o", "max_tokens", "120", "-o", "ignore_eos", "true", PROMPT)


@pytest.fixture(scope="module")
def expected(running: Home) -> str:
    """What is said when nothing gets in the way."""
    done = running.run(*ASK)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def newest_run(home: Home) -> dict[str, Any]:
    return home.stored_replies()[0]


def test_a_reply_read_through_a_proxy_that_cuts_is_whole_and_nothing_comes_twice(
    running: Home,
) -> None:
    long = ("ask", *GREEDY, "-o", "max_tokens", "300", "-o", "ignore_eos", "true", PROMPT)
    expected = running.run(*long).stdout.decode()
    cuts = random.Random(20).sample(range(400, 16_000), 50)
    with cutting_proxy(running.address(), cuts) as proxy:
        url = {"HOBNOB_URL": proxy.url, "HOBNOB_KEY": running.key()}
        done = running.run(*long, env=url)
    assert done.returncode == 0, done.stderr.decode()
    assert proxy.cuts_made == 50
    assert done.stdout.decode() == expected
    assert newest_run(running)["text"] == expected.removesuffix("\n")
    assert proxy.resumed_from == sorted(proxy.resumed_from)
    assert len(set(proxy.resumed_from)) > 25
    # As received, not fetched from the store afterwards:
    assert [line for line in proxy.requests if line.startswith("GET") and "/messages" in line] == []


@pytest.mark.parametrize("victim", ["engine", "server"])
def test_a_reply_goes_on_after_kill_9_of_the(victim: str, home: Home, expected: str) -> None:
    for round_ in range(ROUNDS):
        asking = home.start(*ASK)
        shown = read_some(asking, 30 + 40 * round_)
        run = newest_run(home)["run"]
        kill(home.status()[victim]["pid"])
        rest, complaints = read_rest(asking)
        assert asking.returncode == 0, complaints.decode()
        reply = newest_run(home)
        assert (shown + rest).decode() == expected
        assert reply["text"] == expected.removesuffix("\n")
        assert (reply["run"], reply["status"]) == (run, "length")


def test_a_reply_goes_on_when_its_client_is_killed(running: Home, expected: str) -> None:
    asking = running.start(*ASK)
    read_some(asking, 30)
    asking.kill()
    read_rest(asking)
    reply = wait_for(lambda: r if (r := newest_run(running))["status"] == "length" else None)
    assert reply["text"] == expected.removesuffix("\n")


def test_interrupting_the_client_stops_the_reply_and_keeps_what_was_said(running: Home) -> None:
    asking = running.start("ask", "-o", "max_tokens", "2000", "-o", "ignore_eos", "true", PROMPT)
    shown = read_some(asking, 30)
    asking.send_signal(2)
    rest, complaints = read_rest(asking)
    assert asking.returncode == 130, complaints.decode()
    reply = wait_for(lambda: r if (r := newest_run(running))["status"] == "cancelled" else None)
    assert reply["text"].startswith(shown.decode())
    assert b"Traceback" not in complaints
    wait_for(lambda: running.status()["sequences"]["running"] == 0)


def test_a_closed_output_stops_the_reply_without_a_word(running: Home) -> None:
    done = subprocess.run(
        f"'{BINARY}' ask -o max_tokens 2000 -o ignore_eos true '{PROMPT}' | head -c 20",
        shell=True,
        capture_output=True,
        env=running.environment(),
        timeout=120,
        check=False,
    )
    assert len(done.stdout) == 20
    assert done.stderr == b""
    wait_for(lambda: newest_run(running)["status"] == "cancelled")
