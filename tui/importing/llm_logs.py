"""The log of the `llm` tool (`logs.db`), opened read-only.

Until its version 0.32 it has a row of `responses` for each question and reply. Since then `turns`
lead to `messages`, each with its parent, and to their `parts`; what was logged before stays in
`responses`. Both have the same ids for conversations.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from hobnob.tui.importing import parts
from hobnob.tui.importing.values import (
    ASSISTANT,
    NOBODY,
    SYSTEM,
    USER,
    Found,
    Node,
    Reading,
    Unreadable,
)

TOOL = "llm"
HEADER = b"SQLite format 3\0"

SECONDS = 120.0
"""For all of the file. A view in a hostile one may compute for ever."""
MAX_VALUE_BYTES = 64 * 1024 * 1024
MAX_ROWS = 1_000_000
MAX_CHARS = 512 * 1024 * 1024
"""Of all texts that are read."""
_STEPS_BETWEEN_LOOKS = 100_000

_OURS = 0x686F626E  # `hobn`: the application id of hobnob's own database

Row = dict[str, Any]
_ROLES = {"user": USER, "assistant": ASSISTANT, "system": SYSTEM}


def read(path: Path) -> Reading:
    """Raises Unreadable."""
    try:
        with closing(_open(path)) as conn:
            return _Log(conn).read()
    except sqlite3.Error as error:
        raise Unreadable(f"The database cannot be read: {error}.") from None


def _open(path: Path) -> sqlite3.Connection:
    conn = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5.0)
    deadline = time.monotonic() + SECONDS
    conn.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_BETWEEN_LOOKS)
    conn.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
    conn.execute("PRAGMA query_only = ON")
    conn.execute("PRAGMA trusted_schema = OFF")
    conn.row_factory = sqlite3.Row
    conn.text_factory = lambda raw: raw.decode("utf-8", "replace")
    return conn


class _Log:
    def __init__(self, conn: sqlite3.Connection) -> None:
        self._conn = conn
        self._chars = 0
        self._tables = self._columns()

    def _columns(self) -> dict[str, set[str]]:
        (application,) = self._conn.execute("PRAGMA application_id").fetchone()
        if application == _OURS:
            raise Unreadable(
                "It is a history of hobnob: `hobnob history restore` puts it in the place of "
                "this one, and `hobnob history export --json` writes what can be imported."
            )
        found = self._conn.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        names = [name for (name,) in found if isinstance(name, str)]
        return {
            name: {row["name"] for row in self._conn.execute(f"PRAGMA table_info({_quoted(name)})")}
            for name in names
        }

    def read(self) -> Reading:
        old = self._has("responses", "id", "prompt", "response")
        new = self._has("turns", "id", "tip_message_hash") and self._has("messages", "hash")
        if not old and not new:
            raise Unreadable("It is a database, but not one of the llm tool.")
        found = _NewLog(self).conversations() if new else []
        if old:
            found += _OldLog(self).conversations(found)
        found.sort(key=lambda one: one.updated_at or 0)
        return Reading(TOOL, found)

    def _has(self, table: str, *columns: str) -> bool:
        return set(columns) <= self._tables.get(table, set())

    def rows(self, table: str, *wanted: str, order: str = "rowid") -> Iterator[Row]:
        """The columns of every row; None where the table has no such column."""
        there = self._tables.get(table, set())
        if not there:
            return
        names = [one if one in there else None for one in wanted]
        selected = ", ".join("NULL" if one is None else _quoted(one) for one in names)
        sql = f"SELECT {selected} FROM {_quoted(table)} ORDER BY {order} LIMIT {MAX_ROWS + 1}"
        for number, row in enumerate(self._conn.execute(sql)):
            if number == MAX_ROWS:
                raise Unreadable(f"Its table {table} has more than {MAX_ROWS} rows.")
            self._chars += sum(len(value) for value in row if isinstance(value, str))
            if self._chars > MAX_CHARS:
                raise Unreadable(f"It has more than {MAX_CHARS // 2**20} million characters.")
            yield dict(zip(wanted, row, strict=True))

    def names(self, table: str) -> dict[str, Row]:
        found = self.rows(table, "id", "name", "model", "tip_message_hash")
        return {parts.text(row["id"]): row for row in found}

    def fragments(self) -> dict[Any, str]:
        return {
            one["id"]: parts.text(one["content"]) for one in self.rows("fragments", "id", "content")
        }


class _OldLog:
    """The rows of `responses`, a question and a reply each."""

    def __init__(self, log: _Log) -> None:
        self._log = log
        self._texts = log.fragments()
        self._attached = self._counted("prompt_attachments")
        self._calls = self._counted("tool_calls")
        self._results = self._counted("tool_results")
        self._prompts = self._fragments("prompt_fragments")
        self._systems = self._fragments("system_fragments")

    def _counted(self, table: str) -> Counter[str]:
        return Counter(
            parts.text(one["response_id"]) for one in self._log.rows(table, "response_id")
        )

    def _fragments(self, table: str) -> dict[str, list[str]]:
        found = list(self._log.rows(table, "response_id", "fragment_id", "order"))
        found.sort(key=lambda one: one["order"] if isinstance(one["order"], int) else 0)
        texts: dict[str, list[str]] = {}
        for one in found:
            text = self._texts.get(one["fragment_id"], "")
            texts.setdefault(parts.text(one["response_id"]), []).append(text)
        return texts

    def conversations(self, newer: Iterable[Found]) -> list[Found]:
        """Without those that went on in the newer tables: these repeat what was before."""
        known = {one.id for one in newer}
        named = self._log.names("conversations")
        wanted = ("id", "conversation_id", "model", "resolved_model", "prompt", "system")
        rows = self._log.rows(
            "responses", *wanted, "response", "reasoning", "datetime_utc", order="datetime_utc, id"
        )
        groups: dict[str, list[Row]] = {}
        for row in rows:
            groups.setdefault(
                parts.text(row["conversation_id"]) or parts.text(row["id"]), []
            ).append(row)
        return [
            self._conversation(id, rows, parts.text(named.get(id, {}).get("name")))
            for id, rows in groups.items()
            if id not in known
        ]

    def _conversation(self, id: str, rows: list[Row], title: str) -> Found:
        nodes: list[Node] = []
        for row in rows:
            before = nodes[-1].id if nodes else None
            nodes += self._turn(row, before)
        times = [one.created_at for one in nodes if one.created_at is not None]
        updated = max(times, default=None)
        return Found("llm", id, nodes, title=title, head=nodes[-1].id, updated_at=updated)

    def _turn(self, row: Row, before: str | None) -> list[Node]:
        id = parts.text(row["id"])
        when = parts.written(row["datetime_utc"])
        system = parts.joined([*self._systems.get(id, []), parts.text(row["system"])])
        prompt = parts.joined([*self._prompts.get(id, []), parts.text(row["prompt"])])
        left_out = Counter(
            {
                parts.FILE: self._attached[id],
                parts.TOOL: self._calls[id],
                "tool result": self._results[id],
            }
        )
        asked, replied = f"{id}:prompt", f"{id}:response"
        nodes = []
        if system.strip():
            nodes.append(Node(f"{id}:system", before, SYSTEM, parts.blocks(system)))
            before = nodes[-1].id
        reply = parts.blocks(parts.text(row["response"]), parts.text(row["reasoning"]))
        model = parts.name(row["resolved_model"]) or parts.name(row["model"])
        return [
            *nodes,
            Node(asked, before, USER, parts.blocks(prompt), when, left_out=+left_out),
            Node(replied, asked, ASSISTANT, reply, when, model),
        ]


class _NewLog:
    """Turns, each the end of a chain of messages that others may share."""

    def __init__(self, log: _Log) -> None:
        self._log = log
        self._fragments = log.fragments()
        found = log.rows("messages", "hash", "parent_hash", "role")
        self._messages = {parts.text(row["hash"]): row for row in found}
        self._parts: dict[str, list[Row]] = {}
        wanted = ("message_hash", "position", "type", "text", "payload")
        for row in log.rows("parts", *wanted, order="message_hash, position"):
            self._parts.setdefault(parts.text(row["message_hash"]), []).append(row)

    def conversations(self) -> list[Found]:
        wanted = ("id", "thread_id", "tip_message_hash", "model", "resolved_model", "datetime_utc")
        threads: dict[str, list[Row]] = {}
        for turn in self._log.rows("turns", *wanted, order="datetime_utc, id"):
            id = parts.text(turn["thread_id"]) or parts.text(turn["id"])
            threads.setdefault(id, []).append(turn)
        named = self._log.names("threads")
        return [self._conversation(id, turns, named.get(id, {})) for id, turns in threads.items()]

    def _conversation(self, id: str, turns: list[Row], about: Row) -> Found:
        nodes: dict[str, Node] = {}
        for turn in turns:
            when = parts.written(turn["datetime_utc"])
            model = parts.name(turn["resolved_model"]) or parts.name(turn["model"])
            hash = parts.text(turn["tip_message_hash"])
            while hash in self._messages and hash not in nodes:
                nodes[hash] = node = self._node(hash, when, model)
                hash = node.parent or ""
        times = [one.created_at for one in nodes.values() if one.created_at is not None]
        head = parts.text(about.get("tip_message_hash")) or parts.text(
            turns[-1]["tip_message_hash"]
        )
        return Found(
            "llm",
            id,
            list(nodes.values()),
            title=parts.text(about.get("name")),
            head=head or None,
            updated_at=max(times, default=None),
        )

    def _node(self, hash: str, when: int | None, model: str | None) -> Node:
        row = self._messages[hash]
        role = _ROLES.get(parts.text(row["role"]), NOBODY)
        left_out: Counter[str] = Counter()
        said, thought = parts.read_content(
            [self._part(one) for one in self._parts.get(hash, [])], left_out
        )
        if role == NOBODY and said.strip():
            left_out["message of an unknown sender"] += 1
        node = Node(hash, parts.text(row["parent_hash"]) or None, role, [], when, left_out=left_out)
        if role == NOBODY:
            return node
        return replace(
            node, blocks=parts.blocks(said, thought), model=model if role == ASSISTANT else None
        )

    def _part(self, row: Row) -> Row:
        """As the APIs have it: the text, or the pieces of it that are in the table of fragments."""
        kind = parts.text(row["type"])
        text = row["text"]
        if text is None and kind in ("text", "reasoning"):
            try:
                payload = parts.fields(json.loads(parts.text(row["payload"]) or "{}"))
            except (ValueError, RecursionError):
                payload = {}
            pieces = [parts.fields(one) for one in parts.items(payload.get("text_ref"))]
            text = "".join(self._piece(one) for one in pieces) or payload.get("text")
        return {"type": "file" if kind == "attachment" else kind, "text": text}

    def _piece(self, piece: Row) -> str:
        literal = piece.get("literal")
        if isinstance(literal, str):
            return literal
        fragment = piece.get("fragment")
        return self._fragments.get(fragment, "") if isinstance(fragment, int) else ""


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
