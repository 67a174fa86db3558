"""From a stored branch to what `context.plan` takes: which messages speak, with which ids.

Replies that were stopped or failed after some text stay as they are: the user saw that text.
Replies without text are left out, whatever ended them. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from hobnob.server import wire
from hobnob.server.context import Item
from hobnob.server.engine.protocol import ChatMessage
from hobnob.server.errors import Conflict
from hobnob.store.values import LIVE, Message, Said


def items(system: str | None, branch: Sequence[Message | Said], vocab_hash: str) -> list[Item]:
    """Raises Conflict while a reply on the branch is still being written."""
    found = [Item(ChatMessage("system", system))] if system else []
    for message in branch:
        if message.role == "user":
            found.append(Item(ChatMessage("user", message.text), message.id))
            continue
        if isinstance(message, Said):
            found.append(Item(ChatMessage("assistant", message.text), message.id))
            continue
        if message.status in LIVE:
            raise Conflict("The reply before is still being written: wait for it, or cancel it.")
        if message.text:
            tokens = _tokens(message, vocab_hash)
            found.append(Item(ChatMessage("assistant", message.text, tokens), message.id))
    return found


def _tokens(message: Message, vocab_hash: str) -> list[int] | None:
    """The ids as generated, where they are this vocabulary's and spell exactly the text."""
    if message.vocab_hash != vocab_hash or message.stop_reason == wire.StopReason.STOP_STRING:
        return None  # the ids of a stop string are drawn, its text is not shown
    return message.tokens
