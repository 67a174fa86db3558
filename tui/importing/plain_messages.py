"""Messages as the API of OpenAI takes them: a list of `{role, content}`, an object with `messages`,
or one of either a line. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from hobnob.tui.importing import parts
from hobnob.tui.importing.values import ASSISTANT, NOBODY, SYSTEM, USER, Found, Node

TOOL = "a list of messages"

_ROLES = {
    "user": USER,
    "human": USER,
    "assistant": ASSISTANT,
    "model": ASSISTANT,
    "system": SYSTEM,
    "developer": SYSTEM,
}


def is_message(raw: Any) -> bool:
    if not isinstance(raw, dict) or not isinstance(raw.get("role"), str):
        return False
    return "content" in raw or "tool_calls" in raw


def is_conversation(raw: Any) -> bool:
    """An object with a list of messages, as training data and requests have them."""
    if not isinstance(raw, dict) or not isinstance(raw.get("messages"), list):
        return False
    return all(is_message(one) for one in raw["messages"])


def is_list(raw: Any) -> bool:
    return isinstance(raw, list) and bool(raw) and all(is_message(one) for one in raw)


def conversation(raw: dict[str, Any]) -> Found:
    return of_messages(
        raw["messages"],
        title=parts.text(raw.get("title")),
        id=parts.text(raw.get("id")),
        model=parts.name(raw.get("model")),
    )


def of_messages(
    messages: Sequence[Any], *, title: str = "", id: str = "", model: str | None = None
) -> Found:
    """Without an id one is made of the content: the same messages are the same conversation."""
    nodes: list[Node] = []
    for number, raw in enumerate(messages):
        before = nodes[-1].id if nodes else None
        nodes.append(_node(parts.fields(raw), str(number), before, model))
    content = json.dumps([(one.role, one.blocks) for one in nodes])
    head = nodes[-1].id if nodes else None
    return Found("messages", parts.made_id(id, content), nodes, title=title, head=head)


def _node(raw: dict[str, Any], id: str, before: str | None, model: str | None) -> Node:
    left_out: Counter[str] = Counter()
    role = _ROLES.get(parts.text(raw.get("role")), NOBODY)
    said, thought = parts.read_content(raw.get("content"), left_out)
    thought = parts.joined([_thought(raw), thought])
    calls = len(parts.items(raw.get("tool_calls"))) + ("function_call" in raw)
    if calls:
        left_out[parts.TOOL] += calls
    if role == NOBODY and said.strip():
        tool = raw.get("role") in ("tool", "function")
        left_out["tool result" if tool else "message of an unknown sender"] += 1
    time = next((raw[one] for one in ("created_at", "timestamp", "created") if one in raw), None)
    return Node(
        id,
        before,
        role,
        [] if role == NOBODY else parts.blocks(said, thought),
        created_at=parts.any_time(time),
        model=(parts.name(raw.get("model")) or model) if role == ASSISTANT else None,
        left_out=left_out,
    )


def _thought(raw: dict[str, Any]) -> str:
    return parts.text(raw.get("reasoning_content")) or parts.text(raw.get("reasoning"))
