"""Where the files lie, as scripts ask for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support_cli import Cli

from hobnob.exits import Exit


@pytest.fixture
def hobnob(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "home")


async def test_every_place_is_named_and_each_can_be_asked_for_alone(
    hobnob: Cli, tmp_path: Path
) -> None:
    listed = (await hobnob.run("paths")).out.decode()
    places = dict(line.split(None, 1) for line in listed.splitlines())
    assert Path(places["database"]) == tmp_path / "home" / "data" / "hobnob.db"
    as_json = await hobnob.run("paths", "--json")
    assert json.loads(as_json.out) == places
    for name, place in places.items():
        assert (await hobnob.run("paths", name)).out.decode() == f"{place}\n"
    assert not (tmp_path / "home").exists()  # to ask makes nothing


async def test_a_place_that_there_is_not_is_named_with_those_that_there_are(hobnob: Cli) -> None:
    result = await hobnob.run("paths", "cellar")
    assert (result.code, result.out) == (Exit.USAGE, b"")
    assert "database" in result.err
