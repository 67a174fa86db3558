"""From a stored branch to what `context.plan` takes: which messages speak, with which ids.

Replies that were stopped or failed after some text stay as they are: the user saw that text.
Replies without text are left out, whatever ended them. Pure.

A summary is a first message that asks for it, and its reply. The message is `about` an earlier
branch: it was asked at the end of that, and what follows its reply goes on without that branch.
"""

from __future__ import annotations

from collections.abc import Sequence

from hobnob.server import wire
from hobnob.server.context import Item
from hobnob.server.engine.protocol import ChatMessage
from hobnob.server.errors import Conflict
from hobnob.store.values import ABOUT, LIVE, Message, Said


def items(system: str | None, branch: Sequence[Message | Said], vocab_hash: str) -> list[Item]:
    """Raises Conflict while a reply on the branch is still being written."""
    found = [Item(ChatMessage("system", system))] if system else []
    first = branch[0] if len(branch) > 2 else None
    sums = isinstance(first, Message) and about(first) is not None
    summary = 2 if sums else 0  # messages
    for number, message in enumerate(branch):
        sums_up = number < summary
        if message.role == "user":
            found.append(Item(ChatMessage("user", message.text), message.id, sums_up))
            continue
        if isinstance(message, Said):
            found.append(Item(ChatMessage("assistant", message.text), message.id))
            continue
        if message.status in LIVE:
            raise Conflict("The reply before is still being written: wait for it, or cancel it.")
        if message.text:
            tokens = _tokens(message, vocab_hash)
            spoken = ChatMessage("assistant", message.text, tokens)
            found.append(Item(spoken, message.id, sums_up))
    return found


def about(message: Message) -> str | None:
    """The reply at the end of the branch that the message asks to be summed up."""
    found = message.blocks[0].get(ABOUT) if message.blocks and message.parent is None else None
    return found if isinstance(found, str) else None


def _tokens(message: Message, vocab_hash: str) -> list[int] | None:
    """The ids as generated, where they are this vocabulary's and spell exactly the text."""
    if message.vocab_hash != vocab_hash or message.stop_reason == wire.StopReason.STOP_STRING:
        return None  # the ids of a stop string are drawn, its text is not shown
    return message.tokens
