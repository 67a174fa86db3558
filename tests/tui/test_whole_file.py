"""A file is in its place only when it is complete, whoever else writes it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from hobnob.exits import Exit, ExitError
from hobnob.tui.whole_file import replacing


def test_it_takes_the_place_of_the_one_before_when_it_is_complete(tmp_path: Path) -> None:
    file = tmp_path / "copy"
    file.write_bytes(b"before")
    with replacing(file, "The copy") as out:
        out.write(b"after")
        assert file.read_bytes() == b"before"
    assert file.read_bytes() == b"after"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["copy"]


def test_what_breaks_off_leaves_the_one_before_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "copy"
    file.write_bytes(b"before")
    with pytest.raises(RuntimeError), replacing(file, "The copy") as out:
        out.write(b"half")
        raise RuntimeError
    assert file.read_bytes() == b"before"
    assert [one.name for one in tmp_path.iterdir()] == ["copy"]


def test_of_two_that_write_one_file_at_once_each_writes_all_of_its_own(tmp_path: Path) -> None:
    file, theirs = tmp_path / "copy", tmp_path / "copy.part"
    theirs.write_bytes(b"somebody's own")
    with replacing(file, "The copy") as first:
        first.write(b"1" * 100_000)
        with replacing(file, "The copy") as second:
            second.write(b"2" * 50_000)
        assert file.read_bytes() == b"2" * 50_000
        first.write(b"1" * 100_000)
    assert file.read_bytes() == b"1" * 200_000
    assert theirs.read_bytes() == b"somebody's own"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_name_as_long_as_a_name_may_be_can_be_written(tmp_path: Path) -> None:
    file = tmp_path / ("x" * 255)
    with replacing(file, "The copy") as out:
        out.write(b"whole")
    assert file.read_bytes() == b"whole"


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ExitError, match="cannot be written") as refused:
        with replacing(tmp_path / "nowhere" / "copy", "The copy"):
            pass
    assert refused.value.exit_code is Exit.OUTPUT


def test_a_pipe_is_written_as_it_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with replacing(pipe, "The copy") as out:
        out.write(b"through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
