"""The lock and the state file."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hobnob.server.lock import AlreadyServing, Lock, State, remove_state, write_state

STATE = State(1, "127.0.0.1", 7113, "http://127.0.0.1:7113", "0.1.0", 1, 1700000000000, "abc")


def test_a_second_holder_is_refused_until_the_first_lets_go(tmp_path: Path) -> None:
    lock = Lock.acquire(tmp_path / "lock")
    with pytest.raises(AlreadyServing):
        Lock.acquire(tmp_path / "lock")
    lock.release()
    lock.release()
    Lock.acquire(tmp_path / "lock").release()


def test_the_lock_goes_with_the_process_however_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = (
        "import os, sys, pathlib; from hobnob.server.lock import Lock;"
        "lock = Lock.acquire(pathlib.Path(sys.argv[1])); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert done.returncode == -9
    Lock.acquire(path).release()


def test_a_client_that_looks_at_the_lock_for_an_instant_does_not_stop_a_start(
    tmp_path: Path,
) -> None:
    path = tmp_path / "lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    timer = threading.Timer(0.06, os.close, [descriptor])
    timer.start()
    Lock.acquire(path).release()
    timer.join()


def test_a_child_process_does_not_keep_the_lock(tmp_path: Path) -> None:
    lock = Lock.acquire(tmp_path / "lock")
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    lock.release()
    Lock.acquire(tmp_path / "lock").release()
    child.communicate(b"\n")


def test_the_state_file_is_json_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "server.json"
    write_state(path, STATE)
    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text()) == {
        "pid": 1,
        "host": "127.0.0.1",
        "port": 7113,
        "url": "http://127.0.0.1:7113",
        "version": "0.1.0",
        "wire": 1,
        "started_at": 1700000000000,
        "instance": "abc",
    }
    assert os.listdir(tmp_path) == ["server.json"]


def test_a_stale_state_file_is_replaced_and_removing_twice_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "server.json"
    path.write_text("garbage")
    write_state(path, STATE)
    assert json.loads(path.read_text())["pid"] == 1
    remove_state(path)
    remove_state(path)
    assert not path.exists()


def test_a_server_that_ends_leaves_the_state_of_its_successor_alone(tmp_path: Path) -> None:
    path = tmp_path / "server.json"
    write_state(path, STATE)
    remove_state(path, pid=2)
    assert json.loads(path.read_text())["pid"] == 1
    remove_state(path, pid=1)
    assert not path.exists()
