"""Conversations as files for others: Markdown to read, JSON with everything. Pure.

web_page.py has the form for browsers. The JSON is a contract (docs/scripting.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC
from typing import Any, Protocol

from hobnob.tui.blocks import Splitter
from hobnob.tui.clean import one_line
from hobnob.tui.moment import moment
from hobnob.tui.records import Message, Tree

VERSION = 1
"""Of the JSON. Fields may be added without a new one."""

SHORT_ID = 8
_NOT_OURS_TO_KEEP = ("conversation", "run", "change")


class Writer(Protocol):
    """One form of a file: how it begins, one conversation after another, how it ends."""

    def begin(self) -> str: ...

    def conversation(self, tree: Tree) -> str: ...

    def end(self) -> str: ...


class Json:
    """One object, one conversation a line. ASCII, like all our JSON."""

    def __init__(self) -> None:
        self._between = ""

    def begin(self) -> str:
        return f'{{"version": {VERSION}, "conversations": ['

    def conversation(self, tree: Tree) -> str:
        messages = [_kept(asdict(one)) for one in tree.messages]
        whole = {**_kept(asdict(tree.conversation)), "messages": messages}
        before, self._between = self._between, ","
        return f"{before}\n{json.dumps(whole, ensure_ascii=True)}"

    def end(self) -> str:
        return "]}\n"


class Markdown:
    """The branch that is shown, or with `branches` all of them, each message once."""

    def __init__(self, *, branches: bool = False) -> None:
        self._branches = branches
        self._between = ""

    def begin(self) -> str:
        return ""

    def conversation(self, tree: Tree) -> str:
        parts = [_front_matter(tree)]
        if tree.conversation.system:
            parts.append(f"## System\n\n{_body(tree.conversation.system)}")
        for place, messages in branches(tree, every=self._branches):
            parts += [] if place is None else [f"# Another branch, {place}"]
            parts += [self._message(one) for one in messages]
        before, self._between = self._between, "\n"
        return before + "\n\n".join(parts) + "\n"

    def end(self) -> str:
        return ""

    def _message(self, one: Message) -> str:
        return f"## {heading(one, named=self._branches)}\n\n{_body(one.text)}".rstrip("\n")


def heading(one: Message, *, named: bool) -> str:
    """Who wrote the message and, unless it is complete, how it ended; with `named` its id."""
    id = f" · {one.id[:SHORT_ID]}" if named else ""
    ended = "" if one.status == "completed" else f" ({one_line(one.status)})"
    return f"{one_line(one.role).capitalize()}{id}{ended}"


def branches(tree: Tree, *, every: bool) -> Iterator[tuple[str | None, list[Message]]]:
    """The branch that is shown, and with `every` what the others have of their own: where each
    leaves those before it (None: the one that is shown) and its messages."""
    shown = _branch(tree, tree.conversation.head)
    yield None, shown
    if not every:
        return
    written = {one.id for one in shown}
    parents = {one.parent for one in tree.messages}
    leaves = [one for one in tree.messages if one.id not in parents]
    for leaf in (*leaves, *tree.messages):  # a ring has no leaf
        if leaf.id in written:
            continue
        new = [one for one in _branch(tree, leaf.id) if one.id not in written]
        yield _place(new[0].parent), new
        written |= {one.id for one in new}


def _kept(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in _NOT_OURS_TO_KEEP}


def _front_matter(tree: Tree) -> str:
    one = tree.conversation
    models = dict.fromkeys(message.model for message in tree.messages if message.model)
    lines = [
        f"title: {_quoted(one.title)}",
        f"id: {_quoted(one.id)}",
        f"models: [{', '.join(_quoted(model) for model in models)}]",
        f"created: {_time(one.created_at)}",
        f"updated: {_time(one.updated_at)}",
    ]
    if one.settings:
        lines.append(f"settings: {json.dumps(one.settings)}")
    return "\n".join(["---", *lines, "---"])


def _branch(tree: Tree, leaf: str | None) -> list[Message]:
    """From the root to the leaf, each message once also where they follow each other in a ring."""
    left = {one.id: one for one in tree.messages}
    branch: list[Message] = []
    while leaf is not None and leaf in left:
        branch.append(left.pop(leaf))
        leaf = branch[-1].parent
    return branch[::-1]


def _place(parent: str | None) -> str:
    return "from the start" if parent is None else f"after {parent[:SHORT_ID]}"


def _body(text: str) -> str:
    """The text as it is. A code block that a cut reply left open would go on over the next
    heading, so it is closed."""
    text = text.rstrip("\n")
    splitter = Splitter()
    splitter.feed(text + "\n")
    fence = splitter.open_fence
    return f"{text}\n{fence}" if fence else text


def _quoted(text: str) -> str:
    """A JSON string, which is one of YAML too."""
    return json.dumps(one_line(text), ensure_ascii=False)


def _time(milliseconds: int) -> str:
    """As YAML has it: `null` for one that no calendar has."""
    when = moment(milliseconds, UTC)
    return f"{when.replace(tzinfo=None).isoformat(timespec='seconds')}Z" if when else "null"
