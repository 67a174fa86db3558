"""The plain chat with the real model: it prints the reply, whatever happens to the server."""

from __future__ import annotations

import asyncio

from support_cli import Cli
from support_e2e import GREEDY, Home, kill
from support_session import Session

PROMPT = "Count from one to forty, in words, one number after the other."
OPTIONS = (*GREEDY, "-o", "max_tokens", "80", "-o", "ignore_eos", "true")


async def test_a_plain_chat_goes_on_after_kill_9_of_the_server(home: Home) -> None:
    async with Session(Cli(home.path), "--plain", *OPTIONS, env={"TERM": "dumb"}) as session:
        await session.until("You: ")
        session.type(f"{PROMPT}\r")
        while len((await asyncio.to_thread(home.stored_replies) or [{"text": ""}])[0]["text"]) < 40:
            await asyncio.sleep(0.05)
        kill(home.status()["server"]["pid"])
        await session.until("the server was restarted")
        await session.until("cut at the token limit")
        await session.until("You: ")
        session.type("\x04")
        assert await session.ends() == 0
        assert session.restored
        reply = home.stored_replies()[0]
    assert reply["status"] == "length"
    said = "".join(line for line in session.text.splitlines(True) if "hobnob: " not in line)
    assert reply["text"].replace("\n", "") in said.replace("\n", "")
