"""Where files lie, by environment."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from hobnob.paths import Paths


def test_hobnob_home_holds_everything() -> None:
    paths = Paths.home({"HOBNOB_HOME": "/one/place", "XDG_DATA_HOME": "/elsewhere", "HOME": "/h"})
    every = [paths.config_file, paths.database, paths.key_file, paths.lock_file, paths.state_file]
    every += [paths.server_log, paths.engine_log, paths.launch_lock, paths.cache_dir]
    assert all(path.is_relative_to("/one/place") for path in every)


def test_xdg_variables_are_followed() -> None:
    paths = Paths.home({"HOME": "/h", "XDG_DATA_HOME": "/d é", "XDG_STATE_HOME": "/s"})
    assert paths.database == Path("/d é/hobnob/hobnob.db")
    assert paths.state_file == Path("/s/hobnob/server.json")
    assert paths.config_file == Path("/h/.config/hobnob/config.toml")


@pytest.mark.parametrize("value", ["", "relative/path", "~/x", "."])
def test_an_empty_or_relative_xdg_variable_counts_as_unset(value: str) -> None:
    paths = Paths.home({"HOME": "/h", "XDG_DATA_HOME": value})
    assert paths.data_dir == Path("/h/.local/share/hobnob")


def test_a_home_with_a_tilde_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/h")
    assert Paths.home({"HOBNOB_HOME": "~/x"}).data_dir == Path("/h/x/data")


def test_folders_are_the_users_alone(tmp_path: Path) -> None:
    paths = Paths.home({"HOBNOB_HOME": str(tmp_path / "new")})
    paths.make()
    paths.make()
    for folder in (paths.data_dir, paths.state_dir, tmp_path / "new"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
