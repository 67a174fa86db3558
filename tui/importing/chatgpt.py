"""Conversations of ChatGPT's data export (`conversations.json`). Pure.

A conversation is a tree in `mapping`: each node has a parent and perhaps a message; `current_node`
is the end of the branch that is shown. OpenAI documents none of it; this is what exports hold.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hobnob.tui.folds import fenced
from hobnob.tui.importing import parts
from hobnob.tui.importing.values import (
    ASSISTANT,
    NOBODY,
    SYSTEM,
    USER,
    Block,
    Found,
    Node,
    Unreadable,
)

TOOL = "ChatGPT"

_ENDS = {
    "stop": ("completed", "end_turn"),
    "max_tokens": ("length", "max_tokens"),
    "interrupted": ("cancelled", "cancelled"),
}

_IMAGES = ("image_asset_pointer", "image")


def is_one(raw: Any) -> bool:
    return isinstance(raw, dict) and isinstance(raw.get("mapping"), dict)


def conversation(raw: dict[str, Any]) -> Found:
    mapping = raw["mapping"]
    id = parts.text(raw.get("conversation_id")) or parts.text(raw.get("id"))
    if not id:
        id = parts.made_id(*sorted(str(key) for key in mapping))
    model = parts.name(raw.get("default_model_slug"))
    return Found(
        source="chatgpt",
        id=id,
        nodes=[_node(str(key), node, model) for key, node in mapping.items()],
        title=parts.text(raw.get("title")),
        head=parts.text(raw.get("current_node")) or None,
        pinned=raw.get("is_starred") is True,
        created_at=parts.any_time(raw.get("create_time")),
        updated_at=parts.any_time(raw.get("update_time")),
    )


def _node(id: str, raw: Any, model: str | None) -> Node:
    node = parts.fields(raw)
    parent = node.get("parent")
    message = node.get("message")
    parent = parent if isinstance(parent, str) else None
    if not isinstance(message, dict):
        return Node(id, parent)
    return _message(id, parent, message, model)


def _message(id: str, parent: str | None, message: dict[str, Any], model: str | None) -> Node:
    left_out: Counter[str] = Counter()
    metadata = parts.fields(message.get("metadata"))
    author = parts.text(parts.fields(message.get("author")).get("role"))
    blocks = _blocks(parts.fields(message.get("content")), left_out)
    role = _role(author, message, metadata)
    if role in (NOBODY, SYSTEM):
        kind = _hidden_kind(author, metadata)
        if role == NOBODY and (blocks or left_out):
            left_out = Counter({kind: 1, **_pictures(left_out)})
        return Node(id, parent, role, blocks if role == SYSTEM else [], left_out=left_out)
    for attached in parts.items(metadata.get("attachments")):
        kind = parts.text(parts.fields(attached).get("mime_type"))
        if not kind.startswith("image/"):  # the content has a part for each image
            left_out[parts.FILE] += 1
    status, stop_reason = _ended(author, message, metadata)
    return Node(
        id,
        parent,
        role,
        blocks,
        created_at=parts.any_time(message.get("create_time")),
        model=(parts.name(metadata.get("model_slug")) or model) if role == ASSISTANT else None,
        status=status,
        stop_reason=stop_reason,
        left_out=left_out,
    )


def _role(author: str, message: dict[str, Any], metadata: dict[str, Any]) -> str:
    """Nobody's: what ChatGPT does not show, what tools said, and what was said to tools."""
    if metadata.get("is_visually_hidden_from_conversation") is True:
        return NOBODY
    if author == USER:
        return USER
    if author == SYSTEM:
        return SYSTEM
    to_all = parts.text(message.get("recipient")) in ("", "all")
    return ASSISTANT if author == ASSISTANT and to_all else NOBODY


def _hidden_kind(author: str, metadata: dict[str, Any]) -> str:
    if metadata.get("is_visually_hidden_from_conversation") is True:
        return "hidden message"
    return {"tool": "tool result", ASSISTANT: parts.TOOL}.get(author, "hidden message")


def _pictures(left_out: Counter[str]) -> dict[str, int]:
    """A picture that a tool made is more to its user than the tool's words."""
    return {parts.IMAGE: left_out[parts.IMAGE]} if left_out[parts.IMAGE] else {}


def _ended(
    author: str, message: dict[str, Any], metadata: dict[str, Any]
) -> tuple[str, str | None]:
    if author != ASSISTANT:
        return "completed", None
    details = parts.fields(metadata.get("finish_details"))
    known = _ENDS.get(parts.text(details.get("type")))
    if known is None and message.get("status") == "in_progress":
        return _ENDS["interrupted"]
    return known or ("completed", None)


def _blocks(content: dict[str, Any], left_out: Counter[str]) -> list[Block]:
    kind = parts.text(content.get("content_type"))
    if kind == "thoughts":
        thoughts = (parts.fields(one) for one in parts.items(content.get("thoughts")))
        said = (
            parts.joined([parts.text(one.get("summary")), parts.text(one.get("content"))])
            for one in thoughts
        )
        return parts.blocks("", parts.joined(said))
    if kind == "reasoning_recap":  # such as "Thought for 8 seconds"
        return []
    if kind == "user_editable_context":
        given = (parts.text(content.get(one)) for one in ("user_profile", "user_instructions"))
        return parts.blocks(parts.joined(given))
    if kind == "code":
        language = parts.text(content.get("language"))
        shown = "" if language in ("", "unknown") else language
        code = parts.text(content.get("text"))
        return parts.blocks(fenced(code, shown) if code.strip() else "")
    if kind in _IMAGES:
        left_out[parts.IMAGE] += 1
        return []
    if not isinstance(content.get("parts"), list):
        return parts.blocks(
            parts.text(content.get("text")) or parts.text(content.get("result")),
        )
    said_parts, thought = parts.read_content(content["parts"], left_out)
    return parts.blocks(said_parts, thought)


def require(raw: Any) -> dict[str, Any]:
    """Raises Unreadable for what is no conversation in a list of them."""
    if not is_one(raw):
        raise Unreadable("an entry of the list is no conversation")
    return dict(raw)
