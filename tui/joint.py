"""Where what others wrote joins the messages that are shown. Pure.

Only what follows the messages that are shown is theirs to add. Another version of one of them
is a branch of its own: whether to go over to it is decided where the screen is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hobnob.tui.records import Branch, Message
from hobnob.tui.transcript import Entry


@dataclass(frozen=True, slots=True)
class Joint:
    """The first `kept` entries stay, and the messages follow them."""

    kept: int
    added: Sequence[Message]
    siblings: Mapping[str, Sequence[str]] = field(default_factory=dict)


def joint(entries: Sequence[Entry], branch: Branch) -> Joint | None:
    """Where the end of a branch joins the entries. None: it begins after a gap."""
    numbers = {one.id: number for number, one in enumerate(entries)}
    messages = branch.messages
    for at in range(len(messages) - 1, -1, -1):
        if messages[at].id in numbers:
            return Joint(numbers[messages[at].id] + 1, messages[at + 1 :], branch.siblings)
    parent = messages[0].parent if messages else ""
    if parent is None:
        return Joint(0, messages, branch.siblings)
    return Joint(numbers[parent] + 1, messages, branch.siblings) if parent in numbers else None


def is_known(entries: Sequence[Entry], there: Joint) -> bool:
    """Whether it only leads to what was there before: somebody looks at another version."""
    if there.kept >= len(entries):
        return False
    return not there.added or there.added[0].id in entries[there.kept].siblings


def mark_versions(entries: Sequence[Entry], siblings: Mapping[str, Sequence[str]]) -> list[Entry]:
    """Take in which versions there are now; the entries for which that is new."""
    changed = []
    for one in entries:
        versions = tuple(siblings.get(one.id, ()))
        if versions and versions != one.siblings:
            one.siblings = versions
            changed.append(one)
    return changed
