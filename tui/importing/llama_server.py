"""Conversations of the web page of llama.cpp's server: `{conv, messages}`, one or a list. Pure.

A message of the type `root` holds the tree together and is not shown. Files that were attached
are in `extra`, those with a text with their text.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from hobnob.tui.importing import parts
from hobnob.tui.importing.values import ASSISTANT, NOBODY, SYSTEM, USER, Found, Node

TOOL = "llama-server"

_EXTRAS = {
    "IMAGE": parts.IMAGE,
    "imageFile": parts.IMAGE,
    "AUDIO": parts.SOUND,
    "audioFile": parts.SOUND,
}


def is_one(raw: Any) -> bool:
    return (
        isinstance(raw, dict)
        and isinstance(raw.get("conv"), dict)
        and isinstance(raw.get("messages"), list)
    )


def conversation(raw: dict[str, Any]) -> Found:
    about = raw["conv"]
    messages = [parts.fields(one) for one in raw["messages"]]
    id = _key(about.get("id"))
    if not id:
        id = parts.made_id(*(_key(one.get("id")) for one in messages))
    head = _key(about.get("currNode"))
    return Found(
        source="llama-server",
        id=id,
        nodes=[_node(one, number) for number, one in enumerate(messages)],
        title=parts.text(about.get("name")),
        head=head or None,
        pinned=about.get("pinned") is True,
        updated_at=parts.any_time(about.get("lastModified")),
    )


def _key(value: Any) -> str:
    """Older pages number their messages by the time."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63:
        return str(value)
    return parts.text(value)


def _node(raw: dict[str, Any], number: int) -> Node:
    left_out: Counter[str] = Counter()
    role = parts.text(raw.get("role"))
    said, thought = parts.read_content(raw.get("content"), left_out)
    thought = parts.joined([_thought(raw), thought])
    files = [_extra(one, left_out) for one in parts.items(raw.get("extra"))]
    called = _calls(raw.get("toolCalls"))
    if called:
        left_out[parts.TOOL] += called
    if raw.get("type") == "root" or role not in (USER, ASSISTANT, SYSTEM):
        if said.strip() or files:
            left_out["tool result" if role == "tool" else "message of an unknown sender"] += 1
        role = NOBODY
    return Node(
        _key(raw.get("id")) or f"\0{number}",
        _key(raw.get("parent")) or None,
        role,
        [] if role == NOBODY else parts.blocks(parts.joined([said, *files]), thought),
        created_at=parts.any_time(raw.get("timestamp")),
        model=parts.name(raw.get("model")) if role == ASSISTANT else None,
        left_out=left_out,
    )


def _thought(raw: dict[str, Any]) -> str:
    return parts.text(raw.get("reasoningContent")) or parts.text(raw.get("thinking"))


def _extra(raw: Any, left_out: Counter[str]) -> str:
    extra = parts.fields(raw)
    content = parts.text(extra.get("content"))
    kind = parts.text(extra.get("type"))
    if kind not in _EXTRAS and content.strip():
        return parts.file_block(parts.text(extra.get("name")), content)
    left_out[_EXTRAS.get(kind, parts.FILE)] += 1
    return ""


def _calls(value: Any) -> int:
    """How many there are in a field that holds a list as a text of JSON."""
    try:
        found = json.loads(value) if isinstance(value, str) and value else value
    except (ValueError, RecursionError):
        return 1
    return len(found) if isinstance(found, list) else 0
