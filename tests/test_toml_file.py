"""The files that users write are read, or refused in a sentence that names them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hobnob import toml_file


def test_no_file_is_an_empty_one(tmp_path: Path) -> None:
    assert toml_file.read(tmp_path / "none.toml") == {}


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real.toml").write_bytes(b"\xef\xbb\xbfa = 1\r\n")
    (tmp_path / "link.toml").symlink_to("real.toml")
    assert toml_file.read(tmp_path / "link.toml") == {"a": 1}


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("fifo", "it is no regular file"),
        ("folder", "cannot be read"),
        ("loop", "cannot be read"),
        ("device", "it is no regular file"),
        ("huge", "is larger than"),
    ],
)
def test_what_is_no_small_regular_file_is_refused_at_once(
    kind: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "odd.toml"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.write_bytes(b"#" * (toml_file.MOST_BYTES + 1))
    with pytest.raises(toml_file.Unreadable, match=words) as caught:
        toml_file.read(path)
    assert str(path) in str(caught.value)
