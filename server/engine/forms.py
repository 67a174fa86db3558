"""The forms in which messages are offered to a chat template, one after the other.

Templates differ in what they accept: some know no system message, some want user and assistant
to alternate. Pure. The rule, which docs/architecture.md repeats:

1. as given ("developer" as "system", "function" as "tool", unless the template names them);
2. all system messages as one at the front, tool results as user messages, neighbours of one role
   as one message with an empty line between them, an empty user message before a first reply;
3. and the system message as the beginning of the first user message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hobnob.server.engine.protocol import ChatMessage

BETWEEN = "\n\n"


def forms(messages: Sequence[ChatMessage], source: str) -> Iterator[list[ChatMessage]]:
    """At least one; each differs from the one before. `source` is the template's."""
    given = [ChatMessage(_role(m.role, source), m.text, m.tokens) for m in messages]
    yield given
    merged = _merged(given)
    if merged != given:
        yield merged
    folded = _folded(merged)
    if folded != merged:
        yield folded


def _role(role: str, source: str) -> str:
    if role == "developer" and "developer" not in source:
        return "system"
    if role == "function" and "function" not in source:
        return "tool"
    return role


def _merged(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    system = [m.text for m in messages if m.role in ("system", "developer")]
    turns: list[ChatMessage] = []
    for message in messages:
        if message.role in ("system", "developer"):
            continue
        role = "assistant" if message.role == "assistant" else "user"
        if not turns and role == "assistant":
            turns.append(ChatMessage("user", ""))
        if turns and turns[-1].role == role:
            turns[-1] = ChatMessage(role, turns[-1].text + BETWEEN + message.text)
        else:
            turns.append(ChatMessage(role, message.text, message.tokens))
    return ([ChatMessage("system", BETWEEN.join(system))] if system else []) + turns


def _folded(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    if messages[0].role != "system":
        return list(messages)
    system, *turns = messages
    if not turns:
        return [ChatMessage("user", system.text)]
    first, *others = turns
    text = system.text + BETWEEN + first.text if first.text else system.text
    return [ChatMessage("user", text), *others]
