"""The key file."""

from __future__ import annotations

from pathlib import Path

import pytest

from hobnob.server import keys


def test_the_first_start_makes_a_key_that_only_its_owner_can_read(tmp_path: Path) -> None:
    path = tmp_path / "key"
    key = keys.load_or_make(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_bytes() == key + b"\n"
    assert len(key) >= 40


def test_later_starts_keep_the_key(tmp_path: Path) -> None:
    path = tmp_path / "key"
    assert keys.load_or_make(path) == keys.load_or_make(path)


def test_two_machines_get_two_keys(tmp_path: Path) -> None:
    assert keys.load_or_make(tmp_path / "a") != keys.load_or_make(tmp_path / "b")


def test_a_key_file_that_others_may_read_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("my-own-key\n")
    path.chmod(0o644)
    assert keys.load_or_make(path) == b"my-own-key"
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"", b" \n", b"cl\xc3\xa9", b"\xff\xfe", b"two words"])
def test_a_key_that_no_client_could_send_is_refused_without_showing_it(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(keys.BadKey, match="key in") as caught:
        keys.load_or_make(path)
    assert "two words" not in str(caught.value)


def test_a_chosen_key_must_not_be_short() -> None:
    with pytest.raises(keys.BadKey, match="at least 8"):
        keys.chosen("1234567", "HOBNOB_KEY")
    assert keys.chosen("12345678\n", "HOBNOB_KEY") == b"12345678"
