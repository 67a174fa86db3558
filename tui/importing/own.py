"""The JSON of `hobnob history export --json`, back into what it was made of. Pure.

Fields that are not known here are ignored: a newer hobnob may add some without a new version.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hobnob.tui.exchange import VERSION
from hobnob.tui.importing import parts
from hobnob.tui.importing.values import ASSISTANT, USER, Found, Node, Reading, Unreadable

TOOL = "hobnob"


def is_ours(whole: Any) -> bool:
    return isinstance(whole, dict) and "version" in whole and "conversations" in whole


def read(whole: dict[str, Any]) -> Reading:
    """The oldest first: an export has those first that changed last, and what is imported last
    is what changed last then."""
    version = whole["version"]
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise Unreadable("It says no version of hobnob's export that there is.")
    if version > VERSION:
        raise Unreadable(
            f"It was exported by a newer hobnob (version {version} of the form; "
            f"this one reads {VERSION})."
        )
    reading = Reading(TOOL, [])
    for raw in reversed(parts.items(whole["conversations"])):
        try:
            reading.found.append(_conversation(raw))
        except Unreadable as error:
            reading.unreadable.append(str(error))
    return reading


def _conversation(raw: Any) -> Found:
    if not isinstance(raw, dict) or not isinstance(raw.get("id"), str):
        raise Unreadable("a conversation has no id")
    left_out: Counter[str] = Counter()
    nodes = [_node(one, left_out) for one in parts.items(raw.get("messages"))]
    head = raw.get("head")
    return Found(
        source=TOOL,
        id=raw["id"],
        nodes=nodes,
        title=parts.text(raw.get("title")),
        system=raw["system"] if isinstance(raw.get("system"), str) else None,
        head=head if isinstance(head, str) else None,
        settings=parts.fields(raw.get("settings")),
        pinned=raw.get("pinned") is True,
        created_at=_time(raw.get("created_at"), left_out),
        updated_at=_time(raw.get("updated_at"), left_out),
        left_out=left_out,
        ours=True,
    )


def _node(raw: Any, left_out: Counter[str]) -> Node:
    if not isinstance(raw, dict) or not isinstance(raw.get("id"), str):
        raise Unreadable("a message has no id")
    role = raw.get("role")
    if role not in (USER, ASSISTANT):
        raise Unreadable("a message is neither the user's nor a reply")
    parent = raw.get("parent")
    return Node(
        id=raw["id"],
        parent=parent if isinstance(parent, str) else None,
        role=role,
        blocks=_blocks(raw),
        created_at=_time(raw.get("created_at"), left_out),
        model=_text(raw, "model"),
        status=_text(raw, "status") or "completed",
        stop_reason=_text(raw, "stop_reason"),
        error=_text(raw, "error"),
        usage=_object(raw, "usage"),
        timings=_object(raw, "timings"),
    )


def _blocks(raw: dict[str, Any]) -> list[dict[str, Any]]:
    """The blocks; where they are missing or odd, the text, which every export has as well."""
    blocks = raw.get("blocks")
    if isinstance(blocks, list) and all(_is_block(one) for one in blocks):
        return blocks
    said = parts.text(raw.get("text"))
    return [{"type": "text", "text": said}] if said else []


def _is_block(one: Any) -> bool:
    if not isinstance(one, dict) or not isinstance(one.get("type"), str):
        return False
    return isinstance(one.get("text", None if one["type"] == "text" else ""), str)


def _time(value: Any, left_out: Counter[str]) -> int | None:
    """As it is, or None for one that no calendar has (damage, or a wrong clock)."""
    known = parts.milliseconds(value)
    if known is None:
        left_out["time of no calendar"] += 1
    return known


def _text(raw: dict[str, Any], name: str) -> str | None:
    value = raw.get(name)
    return value if isinstance(value, str) else None


def _object(raw: dict[str, Any], name: str) -> dict[str, Any] | None:
    value = raw.get(name)
    return value if isinstance(value, dict) else None
