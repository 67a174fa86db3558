"""A disk that is really full, under the real program."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / "support" / "full_disk.py"
OWN_MOUNTS = ["unshare", "--user", "--map-root-user", "--mount"]
SIZE = "8m"
PATIENCE_SECONDS = 240.0
"""Only a failing test waits for as long."""


def can_mount(tmp_path: Path) -> bool:
    if shutil.which("unshare") is None:
        return False
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    return subprocess.run([*OWN_MOUNTS, *mount], capture_output=True, check=False).returncode == 0


def played(scene: str, tmp_path: Path) -> dict[str, Any]:
    if not can_mount(tmp_path):
        pytest.skip("needs Linux, with mounts that a user may make")
    done = subprocess.run(
        [*OWN_MOUNTS, sys.executable, str(SCRIPT), str(tmp_path / "home"), SIZE, scene],
        env=os.environ,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def test_a_server_that_starts_on_a_full_disk_shows_the_history_and_refuses_messages_in_words(
    tmp_path: Path,
) -> None:
    seen = played("full", tmp_path)
    assert len(seen["starts"]) == 3  # after a stop, after another one, after a SIGKILL
    for shown, refused, _ in seen["starts"]:
        assert shown[0] == 0 and "Before the disk was full" in shown[1], shown
        assert refused[0] != 0 and refused[1] == "" and "disk is full" in refused[2], refused
        assert "Traceback" not in refused[2]
    assert seen["after"][0] == 0 and seen["after"][1], seen["after"]
    assert "Is there room" not in seen["listed"] and "And now" in seen["listed"]
    assert "Traceback" not in seen["log"]
    code, report, _ = seen["checked"]
    assert code == 0, report


def test_a_reply_on_a_disk_that_fills_up_is_shown_whole_and_kept_when_there_is_room_again(
    tmp_path: Path,
) -> None:
    seen = played("fills", tmp_path)
    assert seen["shown"] == seen["expected"] and seen["code"] == 0
    assert "not being saved" in seen["complaints"] and "disk is full" in seen["complaints"]
    assert "Traceback" not in seen["complaints"]
    code, printed, complaint = seen["refused"]
    assert code != 0 and printed == "" and "disk is full" in complaint
    assert seen["stored"] == seen["expected"].removesuffix("\n")
    assert seen["conversations"] == [0, 0]
    code, report = seen["checked"]
    assert code == 0, report
