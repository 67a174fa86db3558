"""The store's verbs. Every one is scoped by its owner: what belongs to another is NotFound.

A verb that writes is one transaction, done when it returns, and is done too when its caller is
cancelled while waiting. Raises the errors of values.py and nothing of sqlite3.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from sqlite3 import Connection
from typing import Any, BinaryIO, Self, TypeVar

from hobnob.store import (
    changes,
    comparisons,
    conversations,
    grafting,
    imports,
    log,
    messages,
    pages,
    runs,
    search,
    soundness,
    titles,
    turns,
    upkeep,
)
from hobnob.store.conversations import UNSET, Unset
from hobnob.store.database import Database
from hobnob.store.erasing import Eraser
from hobnob.store.turns import NewConversation
from hobnob.store.values import (
    Append,
    Beginning,
    Comparison,
    Conversation,
    Deletion,
    Hit,
    LoggedEvent,
    Message,
    NewRun,
    Page,
    Replies,
    Run,
    Said,
    Stale,
    Turn,
)

PRUNE_RUNS = 50
"""Logs dropped in one transaction, so that other writes get in between."""

BACKUP_WAIT_SECONDS = 5.0
"""For what was deleted to be overwritten first: a copy is kept for longer than a reader stays."""

T = TypeVar("T")
Clock = Callable[[], int]


def utc_ms() -> int:
    return time.time_ns() // 1_000_000


def _last_written_ms(path: Path) -> int:
    """Of the database and its log, as the file system has it."""
    files = (path, path.with_name(path.name + "-wal"))
    return max((file.stat().st_mtime_ns // 1_000_000 for file in files if file.exists()), default=0)


class Store:
    def __init__(self, database: Database, clock: Clock, last_written_ms: int) -> None:
        self._db = database
        self._clock = clock
        self._eraser = Eraser(database)
        self._copying = asyncio.Lock()
        self._listeners: list[Callable[[], None]] = []
        self.last_written_ms = last_written_ms
        """When an earlier process last worked on runs; 0 for a new database. The files' own times
        say only when somebody last looked, so they count where nothing else is known."""

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        clock: Clock = utc_ms,
        full: bool = False,
        on_taken_over: Callable[[Stale], None] = lambda _: None,
    ) -> Self:
        """Creates or migrates the database; earlier openers' writes are refused from now on.

        `full`: a message, a cancel and the end of a reply, once acknowledged, outlive a loss of
        power. `on_taken_over` is called when a write is refused because of a later opener, or
        because the file is not there any more.
        Raises SchemaTooNew (file unchanged), Damaged, Locked, WriteFailed.
        """
        database = Database(path, full=full, on_taken_over=on_taken_over)
        store = cls(database, clock, _last_written_ms(database.path))
        try:
            await database.open()
            if (alive_at := await database.read(turns.alive_at)) is not None:
                store.last_written_ms = alive_at
            upkeep.remove_copies(database.path)
            if await database.read(upkeep.erasure_mark) is not None:
                store._eraser.wake()  # the last process did not come to it
        except BaseException:
            await database.close()
            raise
        return store

    async def close(self) -> None:
        """Finishes what was begun; bounded, and safe to call twice. Afterwards verbs are Closed."""
        await self._eraser.close()
        await self._db.close()

    async def instance(self) -> str:
        """The random id of this database."""
        return await self._db.read(
            lambda c: str(c.execute("SELECT value FROM meta WHERE key = 'instance'").fetchone()[0])
        )

    # ---- conversations ----

    async def create_conversation(
        self,
        owner: str,
        *,
        title: str = "",
        system: str | None = None,
        settings: dict[str, Any] | None = None,
    ) -> Conversation:
        now = self._clock()
        return await self._change(
            lambda c: conversations.get(
                c,
                conversations.insert(
                    c, owner, title=title, system=system, settings=settings, now=now
                ),
            )
        )

    async def import_conversation(
        self, owner: str, conversation: Conversation, messages: Sequence[Message]
    ) -> bool:
        """One from a file, with its ids and times; False, and nothing written, where there is one
        of that id. Raises IdTaken, BadParent."""
        return await self._change(
            lambda c: imports.insert(c, owner, conversation, messages), durable=True
        )

    async def conversation(self, owner: str, id: str) -> Conversation:
        """By its id, or by the first 4 or more characters of it if no other begins so."""
        return await self._db.read(lambda c: conversations.by_id_or_prefix(c, owner, id))

    async def conversations(
        self,
        owner: str,
        *,
        limit: int = 50,
        before: int | None = None,
        query: str | None = None,
        pinned: bool | None = None,
        title: str | None = None,
    ) -> list[Conversation]:
        """Newest change first, below the change number `before`; those that match the query, with
        `pinned` only those that are, or are not, and with `title` only those called exactly so."""
        return await self._db.read(
            lambda c: conversations.listing(
                c, owner, limit=limit, before=before, query=query, pinned=pinned, title=title
            )
        )

    async def temporary(self) -> list[tuple[str, str]]:
        """Owner and id of the temporary conversations, which are in no list."""
        return await self._db.read(conversations.temporary)

    async def update_conversation(
        self,
        owner: str,
        id: str,
        *,
        title: str | Unset = UNSET,
        system: str | None | Unset = UNSET,
        settings: dict[str, Any] | Unset = UNSET,
        head: str | Unset = UNSET,
        pinned: bool | Unset = UNSET,
    ) -> Conversation:
        now = self._clock()

        def update(c: Connection) -> Conversation:
            n = conversations.find(c, owner, id)
            at = UNSET if isinstance(head, Unset) else messages.find_in(c, n, head)
            conversations.update(
                c, n, now=now, title=title, system=system, settings=settings, head=at, pinned=pinned
            )
            return conversations.get(c, n)

        return await self._change(update)

    async def beginning(self, owner: str, id: str, run: str) -> Beginning | None:
        """None where the run is not the first that completed, or the conversation temporary."""
        return await self._db.read(lambda c: titles.beginning(c, owner, id, run))

    async def retitle(self, owner: str, id: str, title: str, *, was: str) -> bool:
        """False, and nothing written, where it has another title by now."""
        now = self._clock()
        return await self._change(lambda c: titles.replace(c, owner, id, title, was, now=now))

    async def delete_conversation(self, owner: str, id: str) -> None:
        """Rows, log and index entries are gone when this returns, and overwritten soon after
        (`erased`). Cancel its running runs first: what they append later is dropped.
        """

        def delete(c: Connection) -> None:
            changes.delete(c, conversations.find(c, owner, id))
            upkeep.mark_for_erasure(c)

        await self._change(delete)
        self._eraser.wake()

    async def erased(self) -> None:
        """Waits until no byte in the files is left of what was deleted."""
        await self._eraser.erased()

    # ---- what changed ----

    async def last_change(self) -> int:
        """The change number of the last write."""
        return await self._db.read(changes.last)

    async def changes(
        self, owner: str, after: int, *, limit: int = 100
    ) -> list[Conversation | Deletion] | None:
        """What changed after that number, each conversation once, the oldest change first. None
        when nobody knows any more what was deleted since: then everything has to be read again.
        """
        return await self._db.read(lambda c: changes.after(c, owner, after, limit=limit))

    def listen(self, listener: Callable[[], None]) -> None:
        """It is called after each write that may have given something a new change number."""
        self._listeners.append(listener)

    # ---- turns and runs ----

    async def begin_turn(
        self,
        owner: str,
        conversation: str | None,
        *,
        parent: str | None,
        text: str,
        run: NewRun,
        aside: bool = False,
        about: str | None = None,
        title: str | None = None,
        system: str | None = None,
        settings: dict[str, Any] | None = None,
        temporary: bool = False,
        history: Sequence[Said] = (),
    ) -> Turn:
        """The user's message, the reply's row and the run, in one transaction.

        `parent` is the reply that the message follows, None for one without (a new root: the
        first message, or another version of it). Without a conversation it is created as well,
        with system and settings, `temporary` or not, and with `history`, which the message then
        follows. The title is set where there is none. The reply becomes the conversation's head,
        unless it is `aside` and there is one. `about`: the reply at the end of the branch that it
        asks to be summed up. A known idempotency key gives the earlier turn, or KeyReused if its
        request was another. Raises BadParent.
        """
        place = conversation or NewConversation(
            system=system, settings=settings, temporary=temporary, history=history
        )
        now = self._clock()
        return await self._change(
            lambda c: turns.begin_turn(
                c,
                owner,
                place,
                parent=parent,
                text=text,
                run=run,
                aside=aside,
                about=about,
                title=title,
                now=now,
            ),
            durable=True,
        )

    async def begin_reply(
        self,
        owner: str,
        conversation: str,
        *,
        parent: str,
        run: NewRun,
        aside: bool = False,
        opening: Callable[[Turn], Sequence[LoggedEvent]] | None = None,
    ) -> Turn:
        """Another reply to a user's message, and its run. As begin_turn otherwise. `opening`
        gives the events that its log begins with; the thread that writes calls it."""
        now = self._clock()
        return await self._change(
            lambda c: turns.begin_reply(
                c,
                owner,
                conversation,
                parent=parent,
                run=run,
                aside=aside,
                opening=opening,
                now=now,
            ),
            durable=True,
        )

    async def graft(
        self, owner: str, conversation: str, *, onto: str, first: str, leaf: str
    ) -> Conversation:
        """Copies the messages of a branch, from `first` to `leaf`, below the reply `onto`, and
        shows them from now on. Where they are there already nothing is copied again. Raises
        BadParent for messages that cannot follow there."""
        now = self._clock()
        return await self._change(
            lambda c: grafting.graft(
                c, owner, conversation, onto=onto, first=first, leaf=leaf, now=now
            ),
            durable=True,
        )

    async def append(self, batch: Sequence[Append]) -> list[str]:
        """The log rows of a step, of all runs, and the ends among them, in one transaction.

        Appending the same again changes nothing. Returns the runs that were passed over, because
        their conversation was deleted.
        """
        if not batch:
            return []
        now = self._clock()
        ends = any(item.end is not None for item in batch)
        if ends:
            return await self._change(lambda c: turns.append(c, batch, now=now), durable=True)
        return await self._db.write(lambda c: turns.append(c, batch, now=now))

    async def set_attempt(self, run_ids: Sequence[str]) -> None:
        """These runs have been handed to an engine (once more)."""
        if run_ids:
            await self._db.write(lambda c: runs.set_attempt(c, run_ids))

    async def ask_cancel(self, owner: str, id: str) -> None:
        """The run is not to go on after this process, unless it has ended."""
        await self._db.write(lambda c: runs.ask_cancel(c, runs.find(c, owner, id)), durable=True)

    async def run(self, owner: str, id: str) -> Run:
        return await self._db.read(lambda c: runs.get(c, runs.find(c, owner, id)))

    async def find_turn(self, owner: str, idempotency_key: str) -> tuple[Turn, str] | None:
        """The turn begun under this key, and the hash of its request ("" if it had none)."""

        def find(c: Connection) -> tuple[Turn, str] | None:
            found = runs.by_key(c, owner, idempotency_key)
            return None if found is None else (turns.get(c, found[0], created=False), found[1])

        return await self._db.read(find)

    async def in_flight(self) -> list[Run]:
        """The runs of all owners that have not ended, oldest first."""
        return await self._db.read(runs.in_flight)

    # ---- the log ----

    async def events(self, owner: str, run_id: str, after: int = 0) -> list[LoggedEvent]:
        """The run's events numbered above `after`; none once the log is pruned."""
        after = min(after, 2**63 - 1)  # SQLite's largest; there are never so many
        return await self._db.read(lambda c: log.events(c, runs.find(c, owner, run_id), after))

    async def whole_log(self, owner: str, run_id: str) -> list[LoggedEvent] | None:
        """All of the run's events; None once the log is pruned."""

        def read(c: Connection) -> list[LoggedEvent] | None:
            run = runs.find(c, owner, run_id)
            return None if runs.is_log_pruned(c, run) else log.events(c, run, 0)

        return await self._db.read(read)

    async def prune(self, older_than_ms: int) -> int:
        """Drops the logs of runs that ended longer ago than this; how many it were."""
        ended_before = self._clock() - older_than_ms
        total = 0
        while True:
            pruned = await self._db.write(lambda c: log.prune(c, ended_before, limit=PRUNE_RUNS))
            total += pruned
            if pruned < PRUNE_RUNS:
                return total

    # ---- messages ----

    async def branch(
        self, owner: str, conversation: str, leaf: str | None = None, *, tokens: bool = True
    ) -> list[Message]:
        """From the root to the leaf, or to the head. Without tokens it is quicker to read."""
        return await self._db.read(
            lambda c: messages.branch(
                c, conversations.find(c, owner, conversation), leaf, tokens=tokens
            )
        )

    async def page(
        self,
        owner: str,
        conversation: str,
        *,
        leaf: str | None = None,
        newest: bool = False,
        before: str | None = None,
        limit: int | None = None,
    ) -> Page:
        """The last messages of the branch to the leaf, or to the head; or those that lead to the
        message `before`. With `newest` the branch goes on from the leaf: to the head if that is
        below it, or else to the last message below it. The conversation's id may be a prefix."""
        return await self._db.read(
            lambda c: pages.page(
                c, owner, conversation, leaf=leaf, newest=newest, before=before, limit=limit
            )
        )

    async def messages(
        self, owner: str, conversation: str, *, tokens: bool = True
    ) -> list[Message]:
        """The whole tree in the order of writing: parents precede their children."""
        return await self._db.read(
            lambda c: messages.tree(c, conversations.find(c, owner, conversation), tokens=tokens)
        )

    async def message(self, owner: str, id: str) -> Message:
        return await self._db.read(lambda c: messages.get(c, messages.find(c, owner, id)))

    async def replies(self, owner: str, conversation: str, message: str) -> Replies:
        """All replies to a user's message. Raises BadParent for a reply."""
        return await self._db.read(
            lambda c: comparisons.replies(c, conversations.find(c, owner, conversation), message)
        )

    async def comparisons(self, owner: str, *, limit: int = 50) -> list[Comparison]:
        """The user's messages with several replies; those first that have the newest ones."""
        return await self._db.read(lambda c: comparisons.listing(c, owner, limit=limit))

    async def search(self, owner: str, query: str, *, limit: int = 20) -> list[Hit]:
        """Messages that match, the best first. Any text is a query (see search.py)."""
        return await self._db.read(lambda c: search.search(c, owner, query, limit=limit))

    # ---- upkeep ----

    async def backup(self, path: Path) -> None:
        """The database of now as one file, beside all that goes on. Replaces an earlier one."""
        with suppress(TimeoutError):
            async with asyncio.timeout(BACKUP_WAIT_SECONDS):
                await self.erased()
        await self._db.with_reader(lambda c: upkeep.back_up(c, path, stop=self._db.closing))

    async def open_copy(self) -> BinaryIO:
        """As `backup`, as an open file that has no name any more; to be closed by the caller."""
        path = upkeep.copy_of(self._db.path)
        async with self._copying:
            await self.backup(path)
            file = open(path, "rb")
            path.unlink()
            return file

    async def check(self) -> list[str]:
        """What is wrong with the database, a sentence each: pages, references, parts, index, and
        where these are sound the rows. Slow, and writes wait while the index is read."""
        problems = await self._db.with_reader(upkeep.problems_of_file)
        problems += await self._db.outside(
            lambda c: upkeep.problems_of_index(c, stop=self._db.closing)
        )
        return problems or await self._db.with_reader(soundness.odd_rows)

    def _change(
        self, function: Callable[[Connection], T], *, durable: bool = False
    ) -> asyncio.Future[T]:
        """A write that listeners hear of, also when its caller no longer waits for it."""
        future = self._db.write(function, durable=durable)
        future.add_done_callback(self._changed)
        return asyncio.shield(future)

    def _changed(self, written: asyncio.Future[Any]) -> None:
        if not written.cancelled():
            written.exception()  # its caller is told, if there is one
        for listener in self._listeners:
            listener()
