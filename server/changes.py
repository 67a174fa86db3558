"""The feed of what changes in the history: any number of readers, each with a cursor of its own.

The store is the buffer. A reader that falls behind costs its cursor and one page, and then finds
each conversation once, as it is by then. Knows nothing of HTTP. Event loop thread only.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from dataclasses import asdict

from hobnob.server import wire
from hobnob.server.errors import Gone
from hobnob.store.store import Store
from hobnob.store.values import Conversation, Deletion, StoreError

PAGE = 100
"""Changes that a reader takes from the store at once."""

_FORGOTTEN = "What was deleted since then is not known any more: read the lists again."


class Changes:
    """Of one store. `close` before the store is closed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._wakes: weakref.WeakSet[asyncio.Event] = weakref.WeakSet()
        self.closing: wire.StreamError | None = None
        store.listen(self._wake)

    async def follow(self, owner: str, after: int | None) -> ChangeReader:
        """What changes after that number; with None from now on, which the first event tells.

        Raises Gone when the number is too old, or of another database.
        """
        if after is None:
            start = await self._store.last_change()
            return ChangeReader(self, owner, start, [wire.Change(start, wire.Position(start))])
        if await self.since(owner, after, limit=1) is None:
            raise Gone(_FORGOTTEN)
        return ChangeReader(self, owner, after)

    def close(self, error: wire.StreamError) -> None:
        """Ends every reader with `error`. Safe to call twice."""
        if self.closing is None:
            self.closing = error
            self._wake()

    # ---- for readers

    async def since(self, owner: str, after: int, *, limit: int = PAGE) -> list[wire.Change] | None:
        found = await self._store.changes(owner, after, limit=limit)
        return None if found is None else [_change(one) for one in found]

    def subscribe(self, wake: asyncio.Event) -> None:
        """`wake` is set after each write for as long as somebody else keeps it alive."""
        self._wakes.add(wake)

    @property
    def readers(self) -> int:
        return len(self._wakes)

    def _wake(self) -> None:
        for wake in self._wakes:
            wake.set()


class ChangeReader:
    """Reads from a cursor on. Ends after a StreamError; dropping it is enough to end it too.

    A read that is cancelled loses nothing: the next one goes on.
    """

    def __init__(
        self, changes: Changes, owner: str, after: int, first: list[wire.Change] | None = None
    ) -> None:
        self._changes = changes
        self._owner = owner
        self._cursor = after
        self._page = deque(first or ())
        self._wake = asyncio.Event()
        self._over = False
        changes.subscribe(self._wake)

    async def next_within(self, seconds: float) -> wire.Change | None:
        """The next one, or None when none came in time. StopAsyncIteration at the end."""
        try:
            async with asyncio.timeout(seconds):
                return await self._next()
        except TimeoutError:
            return None

    async def _next(self) -> wire.Change:
        while not self._page:
            if self._over:
                raise StopAsyncIteration
            self._wake.clear()
            error = self._changes.closing or await self._read()
            if error is not None:
                self._over = True
                return wire.Change(None, error)
            if not self._page:
                await self._wake.wait()
        return self._page.popleft()

    async def _read(self) -> wire.StreamError | None:
        """The next page, if there is one; an error when there will be none."""
        try:
            page = await self._changes.since(self._owner, self._cursor)
        except StoreError as error:
            return wire.StreamError("internal", str(error))
        if page is None:
            return wire.StreamError(Gone.code, _FORGOTTEN)
        if page:
            self._page.extend(page)
            assert page[-1].seq is not None, "a change has its number"
            self._cursor = page[-1].seq
        return None


def _change(one: Conversation | Deletion) -> wire.Change:
    if isinstance(one, Deletion):
        return wire.Change(one.change, wire.ConversationDeleted(one.conversation))
    fields = asdict(one)
    del fields["owner"]
    return wire.Change(one.change, wire.ConversationChanged(fields))
