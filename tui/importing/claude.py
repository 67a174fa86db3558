"""Conversations of Claude's data export (`conversations.json`). Pure.

A conversation has its messages in `chat_messages`, oldest first; `parent_message_uuid` makes them
a tree where the export has it. The text of files that were pasted or attached is in
`extracted_content`; of other files there is only the name.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hobnob.tui.importing import parts
from hobnob.tui.importing.values import ASSISTANT, NOBODY, USER, Found, Node

TOOL = "Claude"

_ROLES = {"human": USER, "user": USER, "assistant": ASSISTANT}
_ENDS = {
    "end_turn": ("completed", "end_turn"),
    "stop_sequence": ("completed", "stop_string"),
    "max_tokens": ("length", "max_tokens"),
    "user_canceled": ("cancelled", "cancelled"),
}


def is_one(raw: Any) -> bool:
    return isinstance(raw, dict) and isinstance(raw.get("chat_messages"), list)


def conversation(raw: dict[str, Any]) -> Found:
    messages = [parts.fields(one) for one in raw["chat_messages"]]
    id = parts.text(raw.get("uuid"))
    if not id:
        id = parts.made_id(*(parts.text(one.get("uuid")) for one in messages))
    model = parts.name(raw.get("model"))
    nodes: list[Node] = []
    before: str | None = None
    for number, one in enumerate(messages):
        node = _node(one, number, before, model)
        nodes.append(node)
        before = node.id
    return Found(
        source="claude",
        id=id,
        nodes=nodes,
        title=parts.text(raw.get("name")),
        head=parts.text(raw.get("current_leaf_message_uuid")) or before,
        pinned=raw.get("is_starred") is True,
        created_at=parts.written(raw.get("created_at")),
        updated_at=parts.written(raw.get("updated_at")),
    )


def _node(raw: dict[str, Any], number: int, before: str | None, model: str | None) -> Node:
    left_out: Counter[str] = Counter()
    role = _ROLES.get(parts.text(raw.get("sender")), NOBODY)
    said, thought = parts.read_content(raw.get("content"), left_out)
    if not said.strip():  # older exports have no content; in newer ones `text` stands in for tools
        said = parts.text(raw.get("text")) if not left_out else said
    attached = parts.items(raw.get("attachments"))
    files = [_attached(one, left_out) for one in attached]
    seen = {parts.text(parts.fields(one).get("file_name")) for one in attached}
    for one in parts.items(raw.get("files")):
        if parts.text(parts.fields(one).get("file_name")) not in seen - {""}:
            left_out[parts.FILE] += 1
    if role == NOBODY and (said.strip() or files):
        left_out["message of an unknown sender"] += 1
    parent = raw.get("parent_message_uuid")
    status, stop_reason = _ENDS.get(parts.text(raw.get("stop_reason")), ("completed", None))
    return Node(
        parts.text(raw.get("uuid")) or str(number),
        parent if isinstance(parent, str) else before,
        role,
        parts.blocks(parts.joined([said, *files]), thought) if role != NOBODY else [],
        created_at=parts.written(raw.get("created_at")),
        model=model if role == ASSISTANT else None,
        status=status if role == ASSISTANT else "completed",
        stop_reason=stop_reason if role == ASSISTANT else None,
        left_out=left_out,
    )


def _attached(raw: Any, left_out: Counter[str]) -> str:
    attached = parts.fields(raw)
    content = parts.text(attached.get("extracted_content"))
    if not content:
        left_out[parts.FILE] += 1
        return ""
    return parts.file_block(parts.text(attached.get("file_name")), content)
