"""The key of the user's shell: the script, the command it calls, and the shells that are here."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import select
import shutil
import stat
import struct
import subprocess
import sys
import termios
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from fake_server import KEY, FakeServer, asked, hangs, reply_events
from support_cli import Cli
from support_picture import Shown

from hobnob import cli
from hobnob.exits import Exit

PATIENCE_SECONDS = 60.0
COLUMNS, LINES = 100, 24


@pytest.fixture
async def server(hobnob_home: Path) -> AsyncIterator[FakeServer]:
    async with FakeServer().running() as fake:
        yield fake


# ---- the script -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shell", "key", "binding"),
    [
        ("bash", "alt+e", r'"\ee": '),
        ("bash", "Ctrl+G", r'"\C-g": '),
        ("zsh", "alt+e", "'^[e' "),
        ("zsh", "ctrl+g", "'^g' "),
        ("fish", "alt+7", r"bind \e7 "),
        ("fish", "ctrl+g", r"bind \cg "),
    ],
)
def test_the_key_is_written_as_the_shell_writes_it(
    shell: str, key: str, binding: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["shell", shell, "--key", key]) == Exit.OK
    script = capsys.readouterr().out
    assert binding in script and "@KEY@" not in script


@pytest.mark.parametrize("key", ["e", "alt+", "alt+'", "ctrl+c", "ctrl+m", "x; rm", "alt+e\n"])
def test_a_key_that_cannot_be_bound_is_wrong_use(
    key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["shell", "bash", "--key", key]) == Exit.USAGE
    assert capsys.readouterr().out == ""


def test_an_unknown_shell_is_wrong_use(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["shell", "tcsh"]) == Exit.USAGE
    assert "bash, zsh, fish" in capfd.readouterr().err


# ---- the command for the line -----------------------------------------------------------------


async def test_a_line_becomes_a_command_and_nothing_of_it_is_kept(
    server: FakeServer, hobnob_home: Path
) -> None:
    server.events = reply_events("```bash\nls ", "-l\n```")
    done = await Cli(hobnob_home, server.url).run(
        "shell", "bash", "--line", stdin=b"list 'all'\nw\xc3\xb6rds"
    )
    assert (done.code, done.out, done.err) == (Exit.OK, b"ls -l\n", "")
    sent = next(one.json for one in server.requests if one.method == "POST" and one.body)
    assert sent["text"] == "list 'all'\nwörds" and "shell bash" in sent["system"]
    assert sent["temporary"]
    assert server.deleted


@pytest.mark.parametrize(
    ("texts", "status"),
    [
        (["ls\nrm x"], "completed"),
        (["\x1b[2Jls"], "completed"),
        ([], "completed"),
        (["l"], "length"),
    ],
)
async def test_a_reply_that_is_no_command_is_an_error_and_stdout_stays_empty(
    server: FakeServer, hobnob_home: Path, texts: list[str], status: str
) -> None:
    server.events = reply_events(*texts, status=status)
    done = await Cli(hobnob_home, server.url).run("shell", "zsh", "--line", stdin=b"list")
    assert done.code in (Exit.INTERNAL, Exit.TRUNCATED) and done.out == b""
    assert done.err.count("hobnob: ") == 1 and "\x1b" not in done.err


# ---- the shells that are here -----------------------------------------------------------------


class Shell:
    """An interactive shell on a pty, with the key bound and `> ` as its prompt."""

    def __init__(self, name: str, folder: Path, environment: dict[str, str]) -> None:
        self.name = name
        start = f'eval "$(hobnob shell {name})"\n'
        (folder / ".bashrc").write_text(f"PS1='> '\n{start}")
        (folder / ".zshrc").write_text(f"PS1='> '\nunsetopt promptsp\n{start}")
        start_of_fish = "hobnob shell fish | source"
        arguments = {
            "bash": ["bash", "--noprofile", "--rcfile", str(folder / ".bashrc"), "-i"],
            "zsh": ["zsh", "-o", "noglobalrcs", "-i"],
            "fish": [
                "fish",
                "--no-config",
                "-i",
                "-C",
                "function fish_prompt; echo -n '> '; end; bind \\c_ undo; " + start_of_fish,
            ],
        }[name]
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self.seen = Shown(COLUMNS, LINES)
        self.output = b""
        more = {"ZDOTDIR": str(folder), "HOME": str(folder), "TERM": "xterm-256color"}
        self.process = subprocess.Popen(
            arguments,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=folder,
            env=environment | more,
            # The terminal is to be the shell's own, or it gets no Ctrl+C.
            preexec_fn=lambda: (os.setsid(), fcntl.ioctl(0, termios.TIOCSCTTY, 0)),  # type: ignore[func-returns-value]
        )
        os.close(slave)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def until(self, true: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while not true():
            if select.select([self.master], [], [], 0.1)[0]:
                data = os.read(self.master, 65536)
                self.output += data
                self.seen.write(data.decode(errors="replace"))
            if time.monotonic() > end:
                raise AssertionError(f"{self.rows()} of {self.output[-3000:]!r}")

    def shows(self, line: str) -> None:
        """Until this is the last row, which is the command line."""
        self.until(lambda: self.rows()[-1:] == [line])

    def rows(self) -> list[str]:
        return [row.rstrip() for row in self.seen.rows() if row.strip()]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)


@pytest.fixture(params=["bash", "zsh", "fish"])
def shell(
    request: pytest.FixtureRequest, server: FakeServer, hobnob_home: Path, tmp_path: Path
) -> Iterator[Shell]:
    if shutil.which(request.param) is None:
        pytest.skip(f"needs {request.param}")
    folder = tmp_path / "there"
    program = folder / "bin" / "hobnob"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"#!/bin/sh\nexec '{sys.executable}' -c 'from hobnob.cli import main; main()' \"$@\"\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    environment = Cli(hobnob_home, server.url, KEY).env
    environment["PATH"] = f"{program.parent}:{environment['PATH']}"
    one = Shell(request.param, folder, environment)
    try:
        yield one
    finally:
        one.close()


async def test_the_line_is_replaced_not_run_and_comes_back_with_undo(
    server: FakeServer, shell: Shell, tmp_path: Path
) -> None:
    server.events = reply_events('```sh\ntouch \'a b\' "größe"; echo "$((40 + 2))"\n```')
    await asyncio.to_thread(shell.shows, ">")
    shell.type("make 'two' \"files\" größe")
    await asyncio.to_thread(shell.shows, "> make 'two' \"files\" größe")
    shell.type("\x1be")
    command = 'touch \'a b\' "größe"; echo "$((40 + 2))"'
    await asyncio.to_thread(shell.shows, f"> {command}")
    assert not (tmp_path / "there" / "a b").exists()
    shell.type("\x1f")
    await asyncio.to_thread(shell.shows, "> make 'two' \"files\" größe")


async def test_an_error_is_said_once_and_the_line_stays(server: FakeServer, shell: Shell) -> None:
    await asyncio.to_thread(shell.shows, ">")
    server.events = reply_events("ls\nrm -r x\x1b[2J")
    shell.type("list $HOME\x1be")
    await asyncio.to_thread(shell.until, lambda: "not one command" in str(shell.rows()))
    await asyncio.to_thread(shell.shows, "> list $HOME")
    assert str(shell.rows()).count("not one command") == 1
    shell.type("!")
    await asyncio.to_thread(shell.shows, "> list $HOME!")


async def test_control_c_leaves_the_line_and_the_shell_goes_on(
    server: FakeServer, shell: Shell
) -> None:
    await asyncio.to_thread(shell.shows, ">")
    server.scripts["/runs/run1/events"] = [hangs]
    shell.type("list all\x1be")
    watching = asyncio.create_task(
        asyncio.to_thread(shell.until, lambda: "is asked for" in str(shell.rows()))
    )
    await asked(server, "GET", "/runs/run1/events")
    await watching
    before = len(shell.output)
    shell.type("\x03")
    await asyncio.to_thread(shell.until, lambda: b"list all" in shell.output[before:])
    await asyncio.to_thread(shell.shows, "> list all")
    assert server.cancelled
    shell.type("!")
    await asyncio.to_thread(shell.shows, "> list all!")


async def test_an_empty_line_asks_nothing(server: FakeServer, shell: Shell) -> None:
    await asyncio.to_thread(shell.shows, ">")
    shell.type("  \x1bex")
    await asyncio.to_thread(shell.shows, ">   x")
    assert not server.requests
