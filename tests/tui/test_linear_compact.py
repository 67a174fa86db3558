"""`/compact` and `/role` in the plain chat: the real command on a terminal, before a real edge."""

from __future__ import annotations

from pathlib import Path

from fake_server import CONVERSATION, FakeServer
from support_cli import Cli
from support_edge import KEY, edge_at
from support_session import Session

from hobnob.tui.compaction import REQUEST

DUMB = {"TERM": "dumb"}
SAID = "Hello, world!"


async def test_a_conversation_is_compacted_and_what_was_before_is_reached(tmp_path: Path) -> None:
    async with edge_at(tmp_path / "server") as edge:
        hobnob = Cli(tmp_path / "home", edge.url, KEY)
        async with Session(hobnob, "--plain", env=DUMB) as session:
            await session.plays(
                ("You: ", "/compact\r"),
                ("nothing to sum up yet", "You: ", "one\r"),
                (SAID, "You: ", "two\r"),
                (SAID, "You: ", "three\r"),
                (SAID, "You: ", "/compact\r"),
                ("summing up the first 2 messages…", "are a summary now", "You: ", "/show\r"),
                ("Sum up our", "two", "three", "You: ", "/before\r"),
                ("version 1 of 2", "You: one", "You: ", "/show\r"),
                ("You: one", "You: two", "You: three", "You: ", "/after\r"),
                ("version 2 of 2", "You: ", "four\r"),
                (SAID, "You: ", "/quit\r"),
            )
            assert await session.ends() == 0
        asked = [message.text for message in edge.engine.rendered[-1]]
        assert asked == [REQUEST, SAID, "two", SAID, "three", SAID, "four"]


async def test_a_role_is_taken_by_name_or_by_number(
    server: FakeServer, hobnob: Cli, tmp_path: Path
) -> None:
    folder = tmp_path / "home" / "config" / "roles"
    folder.mkdir(parents=True)
    (folder / "terse.md").write_text("---\nseed: 7\nmodel: big\n---\nBe terse.\n")
    (folder / "verbose.md").write_text("Say much.\n")
    server.conversations = [{"id": CONVERSATION, "title": "Knots"}]
    async with Session(hobnob, "--plain", "-c", env=DUMB) as session:
        await session.plays(
            ("You: ", "/role nobody\r"),
            ("There are terse, verbose", "You: ", "/role te\t\r"),
            ("from the next message on: system prompt · seed 7", "You: ", "/role\r"),
            ("2. verbose", "Number of the role, or Enter: ", "2\r"),
            ("from the next message on: system prompt · seed 7", "You: ", "/quit\r"),
        )
        assert await session.ends() == 0
    assert "This role is meant for big; fake-model answers." in session.text
    asked = server.asked("PATCH", f"/conversations/{CONVERSATION}")
    assert [one.json for one in asked] == [
        {"system": "Be terse.", "settings": {"seed": 7}},
        {"system": "Say much."},
    ]
