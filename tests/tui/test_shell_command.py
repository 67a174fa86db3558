"""What a command in the user's shell is given, what is kept of its output, and how it is ended."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from hobnob.tui.shell_command import Kept, Ran, ShellCommand, ShellRefused, environment

PATIENCE_SECONDS = 20.0


@pytest.fixture(autouse=True)
def shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/sh")


async def ran(command: str) -> Ran:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await ShellCommand(command).run()


async def gone(pid: int) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while _lives(pid):
            await asyncio.sleep(0.01)


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return not Path("/proc/self").exists()
    return state != "Z"


async def written(path: Path) -> str:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (path.exists() and path.read_text().endswith("\n")):
            await asyncio.sleep(0.01)
    return path.read_text()


async def test_both_outputs_come_in_their_order_with_the_exit_code() -> None:
    result = await ran("echo one; echo two >&2; echo three; exit 3")
    assert result == Ran(result.command, 3, "one\ntwo\nthree\n")


async def test_it_runs_where_we_are_without_a_terminal_or_anything_to_read() -> None:
    result = await ran('pwd; echo "$NO_COLOR $TERM"; cat; (: </dev/tty) 2>/dev/null || echo none')
    assert result.output == f"{os.getcwd()}\n1 dumb\nnone\n"


async def test_the_users_own_shell_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.write_text('#!/bin/sh\necho "own: $1 $2"\n')
    own.chmod(0o700)
    monkeypatch.setenv("SHELL", str(own))
    assert (await ran("ls *")).output == "own: -c ls *\n"
    monkeypatch.delenv("SHELL")
    assert (await ran("echo $((1 + 1))")).output == "2\n"


async def test_a_shell_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/no/such/shell")
    with pytest.raises(ShellRefused, match="^/no/such/shell cannot be run: No such file"):
        await ran("ls")


async def test_a_command_that_is_no_text_for_a_system_is_said() -> None:
    with pytest.raises(ShellRefused, match="/bin/sh cannot be run: "):
        await ran("echo \0")


def test_nothing_asks_for_colours() -> None:
    assert environment({"FORCE_COLOR": "1", "CLICOLOR_FORCE": "1", "A": "b", "TERM": "xterm"}) == {
        "A": "b",
        "NO_COLOR": "1",
        "TERM": "dumb",
    }


async def test_what_could_act_on_a_terminal_is_shown() -> None:
    result = await ran(r"printf 'a\033[31mb\000c\377d\r\ne\n'")
    assert result.output == "a␛[31mb␀c\ufffdd\ne\n"


async def test_of_much_the_beginning_and_the_end_are_kept() -> None:
    result = await ran("seq 1 200000")
    lines = result.output.split("\n")
    assert lines[0] == "1" and lines[-2] == "200000"
    total = len("".join(f"{n}\n" for n in range(1, 200001)))
    assert f"[… {total - 64 * 1024:,} bytes left out …]" in lines
    assert len(result.output) < 66_000


@pytest.mark.parametrize("given", [b"", b"abcdefgh", "äöü".encode(), b"\xff" * 8])
def test_what_fits_is_kept_whole(given: bytes) -> None:
    kept = Kept(8)
    for at in range(len(given)):
        kept.add(given[at : at + 1])
    assert kept.text == given.decode("utf-8", "replace")


def test_no_letter_is_cut_in_two() -> None:
    kept = Kept(8)
    kept.add("abcäxxxxxxxxxxx€fg".encode())
    assert kept.text == "abc\n[… 16 bytes left out …]\nfg"


async def test_stopping_ends_all_that_it_has_started_and_keeps_what_was_written(
    tmp_path: Path,
) -> None:
    pids = tmp_path / "pids"
    script = f"trap '' TERM; sleep 1000 & echo begun; echo $$ $! > {pids}; wait; sleep 1000"
    shell = ShellCommand(script)
    running = asyncio.ensure_future(shell.run())
    both = [int(pid) for pid in (await written(pids)).split()]
    shell.stop()
    async with asyncio.timeout(PATIENCE_SECONDS):
        result = await running
    assert (result.stopped, result.output, result.outcome) == (True, "begun\n", "stopped")
    for pid in both:
        await gone(pid)


async def test_cancelled_it_leaves_nothing_running(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    running = asyncio.ensure_future(ran(f"echo $$ > {pids}; sleep 1000"))
    pid = int(await written(pids))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await gone(pid)


async def test_what_it_leaves_in_the_background_is_not_waited_for(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    result = await ran(f"sleep 1000 & echo $! > {pids}; echo done")
    pid = int(pids.read_text())
    try:
        assert (result.code, result.output) == (0, "done\n")
        assert _lives(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


async def test_the_loop_goes_on_while_one_writes_without_end() -> None:
    shell = ShellCommand("yes")
    running = asyncio.ensure_future(shell.run())
    for _ in range(20):
        await asyncio.sleep(0.005)
    shell.stop()
    async with asyncio.timeout(PATIENCE_SECONDS):
        result = await running
    assert result.stopped and result.output.startswith("y\ny\n") and len(result.output) < 66_000


def test_what_is_sent_names_the_command_its_end_and_its_output() -> None:
    fold = Ran("make `x`\ny", 2, "```\nno\n").fold
    assert fold.text == ("Shell command, exit code 2:\n````console\n$ make `x` y\n```\nno\n````")
    assert fold.label(1) == "[ran make `x` y, exit code 2, 2 lines #1]"


@pytest.mark.parametrize(
    ("code", "stopped", "output", "heading", "about"),
    [
        (0, False, "a", "Shell command, exit code 0:", "1 line"),
        (0, False, "", "Shell command, exit code 0, no output:", "no output"),
        (1, False, "", "Shell command, exit code 1, no output:", "exit code 1, no output"),
        (-11, False, "a\n\n", "Shell command, ended by SIGSEGV:", "ended by SIGSEGV, 2 lines"),
        (-63, False, "a", "Shell command, ended by signal 63:", "ended by signal 63, 1 line"),
        (-15, True, "a", "Shell command, stopped:", "stopped, 1 line"),
    ],
)
def test_how_it_ended_is_said(
    code: int, stopped: bool, output: str, heading: str, about: str
) -> None:
    fold = Ran("x", code, output, stopped).fold
    assert (fold.text.split("\n")[0], fold.about) == (heading, about)
