"""`hobnob history import`: reads the files, gives the server one conversation after the other, and
says what came of each.

A conversation is imported as a whole or not at all, and never twice: whoever is interrupted runs
the same command again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hobnob.exits import Exit, ExitError
from hobnob.launch import Target
from hobnob.tui import verbs
from hobnob.tui.client import Client
from hobnob.tui.importing import file, tree
from hobnob.tui.importing.values import Empty, Reading, Ready, Unreadable, words
from hobnob.tui.notice import ClientError
from hobnob.tui.plain import Notes, Output, print_json
from hobnob.tui.records import Conversation

OF_ONE = frozenset({"invalid_request", "context_length_exceeded", "conflict", "body_too_large"})
"""Refusals of one conversation: the others may be taken."""


def bring(target: Target, files: Sequence[Path], *, dry_run: bool, as_json: bool) -> Exit:
    report = Report(dry_run=dry_run, as_json=as_json)
    readings = [(path, reading) for path in files if (reading := report.read(path)) is not None]

    async def work(client: Client) -> None:
        known = {one.id for one in await verbs.every_conversation(client)}
        for path, reading in readings:
            for ready in report.ready(path, reading):
                if ready.id in known:
                    report.already.append(ready)
                    continue
                if dry_run:
                    report.took(path, ready, _shown(ready))
                else:
                    await _send(client, report, path, ready)
                known.add(ready.id)

    with report.told():
        if readings:
            verbs.once(target, work)
    return Exit.USAGE if report.failed else Exit.OK


async def _send(client: Client, report: Report, path: Path, ready: Ready) -> None:
    try:
        made, imported = await client.import_conversation(ready.body)
    except ClientError as error:
        if error.code not in OF_ONE:
            raise
        report.fail(path, error.message.rstrip("."), ready.title)
        return
    if imported:
        report.took(path, ready, made)
    else:  # another import was quicker, or an answer of the server's was lost
        report.already.append(ready)


@dataclass(slots=True)
class Report:
    """What came of each conversation; said on stderr, or as one JSON object at the end."""

    dry_run: bool
    as_json: bool
    imported: list[dict[str, Any]] = field(default_factory=list)
    already: list[Ready] = field(default_factory=list)
    failed: list[dict[str, str | None]] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    notes: Notes = field(default_factory=Notes)
    output: Output | None = None

    def read(self, path: Path) -> Reading | None:
        """None where nothing of the file can be read, which is said."""
        self.notes.progress(f"Reading {path} …")
        try:
            reading = file.read(path)
        except Unreadable as error:
            self.fail(path, str(error).rstrip("."))
            return None
        finally:
            self.notes.clear()
        for sentence in reading.unreadable:
            self.fail(path, sentence)
        self.left_out.update(reading.left_out)
        return reading

    def ready(self, path: Path, reading: Reading) -> Iterator[Ready]:
        now_ms = time.time_ns() // 1_000_000
        for number, found in enumerate(reading.found, start=1):
            self.notes.progress(f"{path}: {number} of {len(reading.found)}")
            try:
                yield tree.ready(found, now_ms)
            except Empty:
                self.left_out["empty conversation"] += 1
            except Unreadable as error:
                self.fail(path, str(error), found.title or found.id)
        self.notes.clear()

    def took(self, path: Path, ready: Ready, made: Conversation) -> None:
        self.left_out.update(ready.left_out)
        count = len(ready.body["messages"])
        about = {"id": made.id, "title": made.title, "messages": count, "file": str(path)}
        self.imported.append(about)
        if not self.as_json:
            self.notes.clear()
            self.output = self.output or Output.stdout()
            self.output.write_now(f"{verbs.conversation_line(made)}\n")

    def fail(self, path: Path, reason: str, title: str | None = None) -> None:
        self.failed.append({"file": str(path), "title": title, "reason": reason})
        which = "" if title is None else f"{title[:60]!r} was not imported: "
        self.notes.error(f"{path}: {which}{reason}.")

    @contextmanager
    def told(self) -> Iterator[None]:
        """The summary, also where something ended the work on the way."""
        try:
            yield
        except ExitError:
            if self.imported and not self.dry_run:
                self.notes.say("The same command again imports the rest.")
            self._tell()
            raise
        self._tell()

    def _tell(self) -> None:
        self.notes.clear()
        if self.as_json:
            print_json(
                {
                    "dry_run": self.dry_run,
                    "imported": self.imported,
                    "already": [{"id": one.id, "title": one.title} for one in self.already],
                    "failed": self.failed,
                    "left_out": dict(self.left_out),
                }
            )
            return
        done = "would be imported" if self.dry_run else _were(self.imported, "imported")
        there = f"; {_number(self.already)} {_were(self.already, 'here already')}"
        self.notes.say(f"{_number(self.imported)} {done}{there if self.already else ''}.")
        if left := words(self.left_out):
            self.notes.say(f"Left out: {left}.")


def _shown(ready: Ready) -> Conversation:
    updated, pinned = ready.body["updated_at"], ready.body["pinned"]
    return Conversation(ready.id, ready.title, updated_at=updated, pinned=pinned)


def _number(some: Sequence[object]) -> str:
    return "1 conversation" if len(some) == 1 else f"{len(some) or 'No'} conversations"


def _were(some: Sequence[object], what: str) -> str:
    return f"{'was' if len(some) == 1 else 'were'} {what}"
