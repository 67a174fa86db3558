"""`hobnob roles`, and `--role` of ask and chat."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_server import FakeServer
from support_cli import Cli

from hobnob.exits import Exit


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The roles of the user of the fixture `hobnob`."""
    made = tmp_path / "home" / "config" / "roles"
    made.mkdir(parents=True)
    (made / "terse.md").write_text("---\nabout: short\ntemperature: 0.2\nseed: 1\n---\nBe terse.\n")
    (made / "odd.md").write_text("---\nBe terse.\n")
    return made


async def test_roles_are_listed_shown_and_found(hobnob: Cli, folder: Path) -> None:
    assert (await hobnob.run("roles", "path")).out.decode() == f"{folder}\n"
    shown = await hobnob.run("roles", "list")
    assert shown.code == 0 and b"terse  short\n" in shown.out and b"has no end" in shown.out
    listed = json.loads((await hobnob.run("roles", "list", "--json")).out)
    assert listed[1] == {"name": "terse", "about": "short", "problem": None}
    assert listed[0]["about"] is None and "odd.md" in listed[0]["problem"]
    assert (await hobnob.run("roles", "show", "terse")).out == b"Be terse.\n"
    role = json.loads((await hobnob.run("roles", "show", "terse", "--json")).out)
    assert role["options"] == {"temperature": 0.2, "seed": 1} and role["model"] is None


async def test_without_any_it_says_where_they_would_lie(hobnob: Cli, tmp_path: Path) -> None:
    said = await hobnob.run("roles", "list")
    assert (said.code, said.out) == (0, b"") and "a file NAME.md in" in said.err


async def test_a_question_is_asked_in_a_role(hobnob: Cli, server: FakeServer, folder: Path) -> None:
    said = await hobnob.run("ask", "--role", "terse", "--seed", "7", "hi")
    assert said.code == 0
    body = next(one.json for one in server.requests if one.path.endswith("/messages"))
    assert body["system"] == "Be terse."
    assert body["options"] == {"temperature": 0.2, "seed": 7}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["ask", "-r", "nobody", "hi"], Exit.USAGE, "There are odd, terse"),
        (["ask", "-r", "../roles/terse", "hi"], Exit.USAGE, "There is no role"),
        (["ask", "-r", "odd", "hi"], Exit.CONFIG, "odd.md"),
        (["ask", "-r", "terse", "-s", "x", "hi"], Exit.USAGE, "choose --role or --system"),
        (["roles", "show", "nobody"], Exit.USAGE, "There are odd, terse"),
    ],
)
async def test_a_role_that_cannot_be_is_said_and_nothing_sent(
    hobnob: Cli, server: FakeServer, folder: Path, arguments: list[str], code: Exit, words: str
) -> None:
    said = await hobnob.run(*arguments)
    assert (said.code, said.out) == (code, b"") and words in said.err
    assert server.requests == []
