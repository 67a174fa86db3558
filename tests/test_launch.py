"""Finding, starting and stopping the local server, with a stand-in for the server process."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fake_local_server
import pytest

from hobnob import launch
from hobnob.exits import Exit
from hobnob.launch import LaunchError, Target, normalise_url
from hobnob.paths import Paths


@pytest.fixture
def paths(hobnob_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Paths]:
    """Folders of our own, and the stand-in in place of the server. Ends what was started."""
    monkeypatch.setattr(launch, "SERVER_COMMAND", (sys.executable, fake_local_server.__file__))
    monkeypatch.setenv("FAKE_SERVER", "")
    paths = Paths.home()
    paths.make()
    yield paths
    for pid, _, _ in starts(hobnob_home):
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


def starts(home: Path) -> list[tuple[int, int, str]]:
    """Pid, session and arguments of every server process that was started."""
    file = home / "starts"
    lines = file.read_text().splitlines() if file.exists() else []
    parts = [line.split(" ", 2) for line in lines]
    return [(int(pid), int(session), rest) for pid, session, rest in parts]


# ---- starting ---------------------------------------------------------------------------------


def test_a_server_is_started_once_and_found_again(paths: Paths, hobnob_home: Path) -> None:
    heard: list[str] = []
    assert launch.find(paths) is None
    server = launch.ensure(paths, args=["--model", "x y"], progress=heard.append)
    assert launch.find(paths) == server == launch.ensure(paths, progress=heard.append)
    assert heard == ["Starting the server"]
    assert launch.read_key(paths) == "local-key"
    ((pid, session, arguments),) = starts(hobnob_home)
    assert (pid, arguments) == (server.pid, "--on-demand --model x y")
    assert session == pid, "it must outlive the terminal"


def test_clients_that_start_it_at_once_end_with_one_server(paths: Paths, hobnob_home: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        servers = list(pool.map(lambda _: launch.ensure(paths), range(8)))
    assert len(set(servers)) == 1 and len(starts(hobnob_home)) == 1


def test_a_server_that_takes_the_lock_first_is_the_one_we_get(
    paths: Paths, hobnob_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when `hobnob serve` starts in the same moment: our own finds the lock taken."""
    monkeypatch.setenv("FAKE_SERVER", "second")
    results: list[launch.Server] = []
    thread = threading.Thread(target=lambda: results.append(launch.ensure(paths)))
    thread.start()
    while not starts(hobnob_home):
        time.sleep(0.01)
    monkeypatch.setenv("FAKE_SERVER", "")
    other = subprocess.Popen([*launch.SERVER_COMMAND])
    thread.join()
    assert results[0].pid == other.pid
    other.kill()
    other.wait()


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        (Exit.CONFIG, Exit.CONFIG),
        (Exit.MODEL, Exit.MODEL),
        (1, Exit.UNREACHABLE),
        (0, Exit.UNREACHABLE),
        (99, Exit.UNREACHABLE),
    ],
)
def test_a_server_that_dies_at_its_start_is_quoted(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, code: int, exit_code: Exit
) -> None:
    monkeypatch.setenv("FAKE_SERVER", f"die {int(code)} hobnob: The port 80 is taken.")
    with pytest.raises(LaunchError) as raised:
        launch.ensure(paths)
    assert raised.value.message == "The server did not start: The port 80 is taken."
    assert raised.value.exit_code == exit_code


def test_lines_of_earlier_starts_are_not_quoted(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths.server_log.write_text("hobnob: something long ago\n")
    monkeypatch.setattr(launch, "SERVER_COMMAND", (sys.executable, "-c", "exit(3)"))
    with pytest.raises(LaunchError, match="ended with code 3"):
        launch.ensure(paths)


def test_a_server_that_hangs_is_named_and_not_killed(
    paths: Paths, hobnob_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = os.open(paths.lock_file, os.O_RDWR | os.O_CREAT)
    fcntl.flock(holder, fcntl.LOCK_EX)
    with pytest.raises(LaunchError, match="holds the lock but does not answer"):
        launch.ensure(paths, timeout_s=1.0)
    with pytest.raises(LaunchError, match="holds the lock but does not answer"):
        launch.stop(paths)
    with pytest.raises(LaunchError, match="holds the lock but does not answer"):
        launch.refuse_silent(paths)
    os.close(holder)
    launch.refuse_silent(paths)


def test_a_start_can_be_given_up(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SERVER", "hang")
    answers = iter([False, False, True])
    with pytest.raises(LaunchError) as raised:
        launch.ensure(paths, cancelled=lambda: next(answers))
    assert raised.value.exit_code is Exit.INTERRUPTED


def test_a_server_of_another_wire_version_is_not_spoken_to(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_WIRE", "99")
    with pytest.raises(LaunchError, match="hobnob stop"):
        launch.ensure(paths)


def test_a_home_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    paths = Paths.home({"HOBNOB_HOME": str(tmp_path / "file" / "x")})
    with pytest.raises(LaunchError, match="HOBNOB_HOME") as raised:
        launch.ensure(paths)
    assert raised.value.exit_code is Exit.CONFIG


# ---- finding ----------------------------------------------------------------------------------


def write_state(paths: Paths, port: int, instance: str = fake_local_server.INSTANCE) -> None:
    state = {
        "pid": os.getpid(),
        "host": "127.0.0.1",
        "port": port,
        "url": f"http://127.0.0.1:{port}",
    }
    state |= {"version": "0", "wire": 1, "started_at": 0, "instance": instance}
    paths.state_file.write_text(json.dumps(state))


@pytest.mark.parametrize("content", ["", "null", "{}", "[1]", '{"pid": 1}', "\udcff", "x" * 100])
def test_a_state_file_that_makes_no_sense_names_no_server(paths: Paths, content: str) -> None:
    paths.state_file.write_text(content, errors="surrogateescape")
    assert launch.find(paths) is None


def test_a_stale_state_file_names_no_server_even_if_its_pid_lives(paths: Paths) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        write_state(paths, unused.getsockname()[1])
        assert launch.find(paths) is None
    assert launch.stop(paths) is False, "and nothing is killed"


def test_a_state_file_is_believed_only_while_the_lock_is_held(paths: Paths) -> None:
    server = launch.ensure(paths)
    os.rename(paths.lock_file, paths.lock_file.with_suffix(".held"))
    assert launch.find(paths) is None
    os.rename(paths.lock_file.with_suffix(".held"), paths.lock_file)
    write_state(paths, server.port, instance="another")
    assert launch.find(paths) is None


# ---- stopping ---------------------------------------------------------------------------------


def test_stopping_waits_until_the_server_is_gone(paths: Paths) -> None:
    launch.ensure(paths)
    assert launch.stop(paths) is True
    assert not launch.lock_held(paths) and not paths.state_file.exists()
    assert launch.stop(paths) is False


@pytest.mark.parametrize("servers", ["local-key", "chosen"])
def test_stopping_uses_the_key_that_fits_whatever_is_in_the_environment(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, servers: str
) -> None:
    monkeypatch.setenv("FAKE_KEY", servers)
    launch.ensure(paths)
    monkeypatch.setenv("HOBNOB_KEY", "chosen")
    assert launch.stop(paths) is True


# ---- addresses --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://0.0.0.0:8000/", "http://127.0.0.1:8000"),
        ("http://[::]:8000", "http://[::1]:8000"),
        ("[::1]:8000", "http://[::1]:8000"),
        ("localhost:8000/v1/", "http://localhost:8000"),
        ("https://host/hobnob/v1", "https://host"),
        (" https://host.example/some/base/ ", "https://host.example/some/base"),
        ("HTTP://Host:80", "http://host:80"),
    ],
)
def test_an_address_is_taken_as_it_was_meant(written: str, meant: str) -> None:
    assert normalise_url(written) == meant == normalise_url(meant)


@pytest.mark.parametrize(
    "written",
    [
        "ftp://host",
        "http://host:70000",
        "http://host:0",
        "http://host:abc",
        "http://",
        "",
        "http://user:secret@host",
        "http://host/?q",
        "http://host/#x",
        "http://[::1",
        "http://a b",
        "http://höst",
    ],
)
def test_an_address_that_cannot_be_meant_is_refused_without_its_password(written: str) -> None:
    with pytest.raises(LaunchError) as raised:
        normalise_url(written)
    assert raised.value.exit_code is Exit.CONFIG and "secret" not in raised.value.message


@pytest.mark.parametrize(
    ("url", "loopback"),
    [
        ("http://127.0.0.1:1", True),
        ("http://127.9.9.9", True),
        ("http://[::1]:1", True),
        ("http://localhost", True),
        ("http://localhost.example", False),
        ("http://10.0.0.1", False),
    ],
)
def test_loopback_is_told_from_the_network(url: str, loopback: bool) -> None:
    assert launch.is_loopback(url) is loopback


def test_a_server_given_by_address_needs_a_key() -> None:
    with pytest.raises(LaunchError, match="HOBNOB_KEY") as raised:
        Target.choose("http://host", environ={"HOME": "/home/x"})
    assert raised.value.exit_code is Exit.KEY


def test_the_environment_names_server_and_key() -> None:
    environ = {"HOME": "/home/x", "HOBNOB_URL": "host:1/v1", "HOBNOB_KEY": " abc\n"}
    target = Target.choose(environ=environ)
    assert (target.url, target.key) == ("http://host:1", "abc")
    assert Target.choose("other:2", environ=environ).url == "http://other:2"


@pytest.mark.parametrize("key", ["clé", "a\x00b", "a\nb", "\udcff"])
def test_a_key_that_no_header_can_carry_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(LaunchError, match="not allowed") as raised:
        Target.choose("http://host", environ={"HOME": "/", "HOBNOB_KEY": key})
    assert key not in raised.value.message and raised.value.exit_code is Exit.KEY
