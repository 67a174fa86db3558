"""Room that is kept for the next start."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from hobnob.server import reserve


def test_room_is_held_once_and_let_go_of(tmp_path: Path) -> None:
    path = tmp_path / "reserve"
    reserve.hold(path)
    reserve.hold(path)
    assert path.stat().st_size == reserve.BYTES
    assert path.stat().st_blocks * 512 >= reserve.BYTES  # no hole: the blocks are its own
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    reserve.release(path)
    reserve.release(path)
    assert list(tmp_path.iterdir()) == []


def test_what_is_missing_is_added(tmp_path: Path) -> None:
    path = tmp_path / "reserve"
    path.write_bytes(b"x" * (reserve.BYTES // 2))
    reserve.hold(path)
    assert path.stat().st_size == reserve.BYTES


def test_no_room_and_no_folder_are_no_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = 0

    def full(_: int, data: bytes) -> int:
        nonlocal written
        written += 1
        if written > 3:
            raise OSError(28, "No space left on device")
        return len(data)

    monkeypatch.setattr(reserve.os, "write", full)
    reserve.hold(tmp_path / "reserve")
    assert written == 4
    reserve.hold(tmp_path / "nowhere" / "reserve")
    reserve.release(tmp_path / "nowhere" / "reserve")
