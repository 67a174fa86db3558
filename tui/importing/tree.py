"""From a conversation as a file has it to one as hobnob keeps it. Pure.

A tree of another tool may have anything in it: places without a message, system messages, replies
in several pieces, questions that nobody answered, rings, parents that are not there. Here users
follow replies and replies follow users, every user's message has a reply, and parents stand before
their children. What is in that shape already, as our own exports are, stays as it is.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hobnob.tui.importing.parts import FIRST_MS, ID_CHARS, LAST_MS, blocks, made_id
from hobnob.tui.importing.values import (
    ASSISTANT,
    NOBODY,
    SYSTEM,
    USER,
    Block,
    Empty,
    Found,
    Node,
    Ready,
    Unreadable,
    words,
)

MAX_MESSAGES = 100_000
MAX_CHARS = 64 * 1024 * 1024
"""Of all texts of a conversation. Pieces of replies that are put together may stand in several."""

MAX_TITLE_CHARS = 500
MADE_TITLE_CHARS = 60

NO_REPLY = "no_reply: There is no reply to this message in the file that was imported."
UNFINISHED = "interrupted: The reply was still being written when it was exported."

_OURS = re.compile(rf"[0-9a-f]{{{ID_CHARS}}}")
_ENDED = ("completed", "length", "cancelled", "refused", "failed")


@dataclass(slots=True)
class _Entry:
    """A message that is kept. `parent` is the one before it, of whatever role."""

    node: Node
    parent: _Entry | None
    blocks: list[Block]
    children: list[_Entry] = field(default_factory=list)
    swallowed: bool = False  # it is the beginning of a longer reply, and stands there
    answer: Node | None = None  # the empty reply that stands for the one that is missing


def ready(found: Found, now_ms: int) -> Ready:
    """Raises Unreadable. `now_ms` stands for times that the file does not have."""
    if len(found.nodes) > MAX_MESSAGES:
        raise Unreadable(f"it has more than {MAX_MESSAGES} messages")
    left_out = Counter(found.left_out)
    nodes = _in_order(found, left_out)
    for node in nodes:
        left_out.update(node.left_out)
    entries, place, system = _kept(found, nodes, left_out)
    if not entries and not found.ours:
        raise Empty("it has no messages")
    _put_together(entries)
    _answer(entries)
    id = _id(found, found.source, found.id)
    messages = _messages(found, id, entries, _begun(found, nodes, now_ms))
    created, updated = _span(found, messages, now_ms)
    body = {
        "id": id,
        "title": _title(found, entries),
        "system": system,
        "settings": found.settings,
        "pinned": found.pinned,
        "head": _head(found, id, place, messages),
        "created_at": created,
        "updated_at": updated,
        "messages": messages,
    }
    return Ready(body, +left_out)


# ---- the order ----------------------------------------------------------------------------------


def _in_order(found: Found, left_out: Counter[str]) -> list[Node]:
    """Parents before children, otherwise as in the file, or where it is another tool's by time.
    A ring is cut where it comes first in the file; a parent that is not there is none."""
    known: dict[str, int] = {}
    nodes: list[Node] = []
    for node in found.nodes:
        if node.id in known:
            left_out["message of an id that another has"] += 1
            continue
        known[node.id] = len(nodes)
        nodes.append(node)
    parents = [known.get(node.parent) if node.parent is not None else None for node in nodes]
    _cut_rings(parents)
    children: list[list[int]] = [[] for _ in nodes]
    for index, parent in enumerate(parents):
        if parent is not None:
            children[parent].append(index)
    order: list[Node] = []
    waiting = [_turn(found, nodes, i, None) for i, parent in enumerate(parents) if parent is None]
    heapq.heapify(waiting)
    while waiting:
        when, index = heapq.heappop(waiting)
        parent = parents[index]
        order.append(replace(nodes[index], parent=None if parent is None else nodes[parent].id))
        for child in children[index]:
            heapq.heappush(waiting, _turn(found, nodes, child, when))
    return order


def _turn(found: Found, nodes: Sequence[Node], index: int, before: int | None) -> tuple[int, int]:
    """When it is its turn: one without a time of its own comes with its parent."""
    when = None if found.ours else nodes[index].created_at
    return (when if when is not None else before or 0), index


def _cut_rings(parents: list[int | None]) -> None:
    """Each node is walked through once: a walk ends where an earlier one went on."""
    state = [0] * len(parents)  # 0: not seen; else the number of the walk
    for walk, start in enumerate(range(len(parents)), start=1):
        at: int | None = start
        while at is not None and not state[at]:
            state[at] = walk
            at = parents[at]
        if at is not None and state[at] == walk:
            parents[_first_of_ring(parents, at)] = None


def _first_of_ring(parents: list[int | None], at: int) -> int:
    first, here = at, parents[at]
    while here is not None and here != at:
        first, here = min(first, here), parents[here]
    return first


# ---- which messages there are -------------------------------------------------------------------


def _kept(
    found: Found, nodes: Sequence[Node], left_out: Counter[str]
) -> tuple[list[_Entry], dict[str, _Entry | None], str | None]:
    """The messages, the one at or before the place of each node, and the system prompt."""
    entries: list[_Entry] = []
    place: dict[str, _Entry | None] = {}
    system = found.system
    for node in nodes:
        before = place[node.parent] if node.parent is not None else None
        place[node.id] = before
        if node.role == SYSTEM:
            said = _said(node.blocks)
            if before is None and system is None and said.strip():
                system = said
            elif said.strip() and said != system:
                left_out["system message"] += 1
        elif node.role in (USER, ASSISTANT):
            content = node.blocks or _mention(node)
            if content or found.ours:
                entry = _Entry(node, before, content)
                entries.append(entry)
                place[node.id] = entry
                if before is not None:
                    before.children.append(entry)
        else:
            assert node.role == NOBODY, "a parser knows four roles"
    return entries, place, system


def _mention(node: Node) -> list[Block]:
    """A question that was only an image has a reply: the place says what was there."""
    return blocks(f"[{words(node.left_out)}]") if node.role == USER and node.left_out else []


def _put_together(entries: Sequence[_Entry]) -> None:
    """A reply that follows a reply goes on with it: each branch has the whole. The beginning does
    not stand there by itself as well, unless a user's message follows it."""
    size = 0
    for entry in entries:  # parents before children
        before = entry.parent
        if entry.node.role == ASSISTANT and before is not None and before.node.role == ASSISTANT:
            entry.blocks = [*before.blocks, *_going_on(before.blocks, entry.blocks)]
            entry.parent = before.parent
            before.swallowed = all(one.node.role == ASSISTANT for one in before.children)
        size += sum(len(str(block.get("text") or "")) for block in entry.blocks)
        if size > MAX_CHARS:
            raise Unreadable(f"it has more than {MAX_CHARS // 2**20} million characters")


def _going_on(before: Sequence[Block], blocks: Sequence[Block]) -> list[Block]:
    """The blocks, with a blank line before their text where there is text already."""
    if not _said(before).strip():
        return list(blocks)
    first = next((i for i, one in enumerate(blocks) if one.get("type") == "text"), None)
    return [
        {**one, "text": f"\n\n{one.get('text') or ''}"} if i == first else dict(one)
        for i, one in enumerate(blocks)
    ]


def _answer(entries: Sequence[_Entry]) -> None:
    """An empty reply for each user's message without one, or which another one follows at once."""
    for entry in entries:
        replies = [one for one in entry.children if one.node.role == ASSISTANT]
        if entry.node.role == USER and (not replies or len(replies) < len(entry.children)):
            entry.answer = Node(
                f"{entry.node.id}\0reply",
                role=ASSISTANT,
                created_at=entry.node.created_at,
                status="failed",
                stop_reason="error",
                error=NO_REPLY,
            )


# ---- as it is posted ----------------------------------------------------------------------------


def _messages(
    found: Found, conversation: str, entries: Sequence[_Entry], begun: int
) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    times: dict[str, int] = {}
    for entry in entries:
        if entry.swallowed:
            continue
        node, before = entry.node, entry.parent
        parent = None if before is None else before.node
        if before is not None and before.node.role == USER and node.role == USER:
            parent = before.answer
        when = node.created_at
        if when is None:
            when = times[parent.id] if parent is not None else begun
        for one, above in ((node, parent), (entry.answer, node)):
            if one is not None:
                times[one.id] = when
                own = entry.blocks if one is node else []
                messages.append(_message(found, conversation, one, above, own, when))
    return messages


def _message(
    found: Found, conversation: str, node: Node, parent: Node | None, own: list[Block], when: int
) -> dict[str, Any]:
    status, stop_reason, error = node.status, node.stop_reason, node.error
    if status not in _ENDED:
        status, stop_reason, error = "failed", "error", UNFINISHED
    if node.role == USER or parent is None:  # nothing can be gone on with there
        status = "completed"
    return {
        "id": _id(found, conversation, node.id),
        "parent": None if parent is None else _id(found, conversation, parent.id),
        "role": node.role,
        "blocks": own,
        "status": status,
        "created_at": when,
        "model": node.model,
        "stop_reason": stop_reason,
        "error": error,
        "usage": node.usage,
        "timings": node.timings,
    }


def _id(found: Found, space: str, id: str) -> str:
    """The file's own where it is one of hobnob's; else made, the same at every import."""
    return id if found.ours and _OURS.fullmatch(id) else made_id(space, id)


def _head(
    found: Found, id: str, place: dict[str, _Entry | None], messages: Sequence[dict[str, Any]]
) -> str | None:
    """The message of the head's place, or what became of it; without one the newest reply."""
    if found.ours and found.head is None:
        return None
    entry = place.get(found.head) if found.head is not None else None
    while entry is not None and entry.swallowed:
        entry = entry.children[-1]
    if entry is None:
        return str(messages[-1]["id"]) if messages else None
    alone = entry.answer is not None and not entry.children
    shown = entry.answer if alone and entry.answer is not None else entry.node
    return _id(found, id, shown.id)


def _begun(found: Found, nodes: Sequence[Node], now_ms: int) -> int:
    known = [one.created_at for one in nodes if one.created_at is not None]
    first = found.created_at if found.created_at is not None else min(known, default=None)
    return first if first is not None else found.updated_at or now_ms


def _span(found: Found, messages: Sequence[dict[str, Any]], now_ms: int) -> tuple[int, int]:
    """When the conversation began and was changed last."""
    times = [int(one["created_at"]) for one in messages]
    created, updated = found.created_at, found.updated_at
    if created is None:
        created = min(times, default=updated if updated is not None else now_ms)
    if updated is None:
        updated = max(times, default=created)
    assert FIRST_MS <= created <= LAST_MS and FIRST_MS <= updated <= LAST_MS, "read by parts.py"
    return created, updated


def _title(found: Found, entries: Sequence[_Entry]) -> str:
    """The file's; for another tool's without one the first words of the user's."""
    title = found.title
    if not title.strip() and not found.ours:
        said = next((_said(one.blocks) for one in entries if one.node.role == USER), "")
        first = " ".join(said[:1000].split())
        title = first if len(first) <= MADE_TITLE_CHARS else f"{first[: MADE_TITLE_CHARS - 1]}…"
    return title if len(title) <= MAX_TITLE_CHARS else f"{title[: MAX_TITLE_CHARS - 1]}…"


def _said(some: Sequence[Block]) -> str:
    return "".join(str(one.get("text") or "") for one in some if one.get("type") == "text")
