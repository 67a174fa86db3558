"""Which conversation is meant by what was typed, and which of its messages a prompt follows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from hobnob.tui import here
from hobnob.tui.client import Client
from hobnob.tui.notice import ClientError
from hobnob.tui.question import Question
from hobnob.tui.records import Conversation

_WHOLE_ID = re.compile(r"[0-9a-f]{20}")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a question goes: None for a new conversation, and for the end of one."""

    conversation: str | None = None
    parent: str | None = None  # id of the reply that it follows


async def place(client: Client, question: Question, terminals: Path) -> Place:
    """Raises ClientError."""
    found = None
    if question.conversation is not None:
        found = (await conversation(client, question.conversation)).id
    elif question.continue_last:
        found = await here.newest(client, terminals)
    if question.after is None:
        return Place(found)
    message = await client.message(question.after)
    if message.role != "assistant":
        other = "" if message.parent is None else f", such as {message.parent}"
        raise ClientError(
            "invalid_request",
            f"That message is the user's: --from takes a reply, which the prompt follows{other}.",
        )
    return Place(found or message.conversation, message.id)


async def conversation(client: Client, given: str) -> Conversation:
    """By its id, the beginning of one, or its whole name. Raises ClientError where there is none,
    or more than one."""
    named = []
    if not _WHOLE_ID.fullmatch(given):
        named = await client.conversations(title=given, limit=2)
    try:
        found = await client.conversation(given)
    except ClientError as error:
        if error.code != "not_found" or not named:
            raise
        if len(named) > 1:
            raise _unclear(f"More than one conversation is called {given!r}") from None
        return named[0]
    if [one for one in named if one.id != found.id]:
        raise _unclear(f"{given!r} is the name of one conversation and begins another's id")
    return found


def _unclear(what: str) -> ClientError:
    return ClientError("not_found", f"{what}: give the whole id (`hobnob history list --json`).")
