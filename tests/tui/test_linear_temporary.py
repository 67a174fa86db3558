"""Temporary conversations in the plain chat: held while it is open, deleted when it is left."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from fake_server import (
    CONVERSATION,
    STREAM_HEAD,
    FakeServer,
    Request,
    asked,
    chunk,
    refusal,
    says,
    streams,
)
from support_cli import Cli
from support_session import Session

NEW = "/conversations/new/messages"
DUMB = {"TERM": "dumb"}
HOLD = f"/conversations/{CONVERSATION}/hold"


async def held(request: Request, writer: Any) -> None:
    writer.write(STREAM_HEAD + chunk(b": ping\n"))
    await asyncio.Event().wait()


def temporary(server: FakeServer) -> None:
    """What the server has of a conversation is temporary."""
    server.conversations = [{"id": CONVERSATION, "title": "A title", "temporary": True}]


@pytest.mark.parametrize("begun", ["--temporary", "/temporary"])
async def test_a_temporary_conversation_is_held_leaves_nothing_and_is_deleted_at_the_end(
    server: FakeServer, hobnob: Cli, begun: str
) -> None:
    temporary(server)
    server.scripts[HOLD] = [held]
    arguments = [begun] if begun.startswith("--") else []
    async with Session(hobnob, "chat", "--plain", *arguments, env=DUMB) as session:
        await session.until("You: ")
        if not arguments:
            await session.plays(("/temporary\r",), ("a temporary conversation", "You: ", ""))
        await session.plays(("a secret\r",), ("Hello world.", "You: ", ""))
        await asked(server, "GET", HOLD)
        assert server.asked("POST", NEW)[0].json["temporary"] is True
        await session.plays(
            ("another secret\r",),
            ("You: ", "/pin\r"),
            ("a temporary conversation is in no list", ""),
        )
        await session.leaves()
    assert server.deleted == [CONVERSATION]
    assert "To go on with this" not in session.text
    state = Path(hobnob.env["HOBNOB_HOME"])
    kept = b"".join(file.read_bytes() for file in state.rglob("*") if file.is_file())
    assert b"secret" not in kept


async def test_a_new_conversation_deletes_the_temporary_one_at_once(
    server: FakeServer, hobnob: Cli
) -> None:
    temporary(server)
    server.scripts[HOLD] = [held]
    async with Session(hobnob, "--plain", "--temporary", env=DUMB) as session:
        await session.plays(("You: ", "a secret\r"), ("Hello world.", "You: ", ""))
        await asked(server, "GET", HOLD)
        session.type("/new\r")
        await session.until("a new conversation")
        await asked(server, "DELETE", f"/conversations/{CONVERSATION}")


async def test_a_temporary_conversation_is_held_again_while_nothing_is_typed(
    server: FakeServer, hobnob: Cli
) -> None:
    temporary(server)
    server.scripts[HOLD] = [streams(b": ping\n", complete=False), held]
    async with Session(hobnob, "--plain", "--temporary", env=DUMB) as session:
        await session.plays(("You: ", "a secret\r"), ("Hello world.", "You: ", ""))
        await asked(server, "GET", HOLD, times=2)
        await session.leaves()


async def test_a_temporary_conversation_that_is_gone_is_said_to_be_when_it_is_written_to(
    server: FakeServer, hobnob: Cli
) -> None:
    temporary(server)
    gone = says(refusal(404, "not_found", "No such conversation."))
    server.scripts[HOLD] = [gone]
    server.scripts[f"/conversations/{CONVERSATION}/messages"] = [gone]
    async with Session(hobnob, "--plain", "--temporary", env=DUMB) as session:
        await session.plays(("You: ", "a secret\r"), ("Hello world.", ""))
        await asked(server, "GET", HOLD)
        await session.plays(
            ("You: ", "more\r"),
            ("Not sent: This temporary conversation is gone", "\x15/quit\r"),
        )
        assert await session.ends() == 0
    assert server.deleted == []
