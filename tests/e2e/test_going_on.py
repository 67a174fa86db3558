"""Replies that were cut, gone on with by the real model."""

from __future__ import annotations

import asyncio

from support_e2e import Home

from hobnob.launch import Target
from hobnob.tui.client import Client
from hobnob.tui.records import Message, Turn

PROMPT = "Write one line of ten different emoji, then a sentence about each."
PIECE = 7
PIECES = 5


def test_a_reply_in_pieces_is_the_one_that_was_never_cut(running: Home) -> None:
    async def ended(client: Client, turn: Turn) -> Message:
        async for _ in client.stream(turn.run.id):
            pass
        return await client.reply(await client.run(turn.run.id))

    async def both() -> tuple[Message, Message]:
        options = {"seed": 11, "temperature": 0.9, "ignore_eos": True}
        async with Client(Target(running.paths)) as client:
            turn = await client.send(None, PROMPT, options={**options, "max_tokens": PIECE})
            reply = await ended(client, turn)
            for _ in range(PIECES - 1):
                turn = await client.go_on(turn.conversation.id, reply.id)
                reply = await ended(client, turn)
            most = {"max_tokens": PIECE * PIECES}
            whole = await client.regenerate(
                turn.conversation.id, turn.message.id, options={**options, **most}
            )
            return reply, await ended(client, whole)

    pieced, whole = asyncio.run(both())
    assert pieced.text == whole.text
    assert pieced.usage is not None and pieced.usage["completion_tokens"] == PIECE * PIECES
