"""Temporary conversations: who holds them, and their deletion when nobody does.

A client holds one by an open stream, so that its death is noticed by the connection's end. After
GRACE_SECONDS without a holder, or a message, the conversation is deleted; all are when the server
stops. Those of a server that was killed wait as long for their holders in the next one. Event loop
thread only.
"""

from __future__ import annotations

import asyncio
import logging
import math

from hobnob.server import errors, wire
from hobnob.server.deletion import delete
from hobnob.server.runs import Runs
from hobnob.store.store import Store
from hobnob.store.values import NotFound, StoreError

GRACE_SECONDS = 30.0
"""Without a holder: long enough to connect again, and to begin to hold what was just made."""
CHECK_SECONDS = 2.0

log = logging.getLogger(__name__)

Key = tuple[str, str]
"""Owner and id of a conversation."""


_GONE = wire.StreamError(errors.NotFound.code, "This conversation is gone.")
_STOPPING = wire.StreamError(errors.ServerStopping.code, "The server is stopping.")


class Temporary:
    """Of one store. `adopt` before the first request, `close` before the server waits for its
    streams."""

    def __init__(self, store: Store, runs: Runs) -> None:
        self._store = store
        self._runs = runs
        self._holds: dict[Key, set[Hold]] = {}
        self._due: dict[Key, float] = {}  # those that nobody holds
        self._some = asyncio.Event()  # there are such
        self._closing = False

    async def adopt(self) -> None:
        """Those of an earlier server: who held them there has time to do so here."""
        for owner, id in await self._store.temporary():
            self.touch(owner, id)

    def touch(self, owner: str, id: str) -> None:
        """Something was written there: who did so has time to hold it."""
        key = owner, id
        if not self._holds.get(key):
            self._due[key] = asyncio.get_running_loop().time() + GRACE_SECONDS
            self._some.set()

    async def hold(self, owner: str, id: str) -> Hold:
        """Raises NotFound, and InvalidRequest for a conversation that stays anyway."""
        found = await self._store.conversation(owner, id)
        if not found.temporary:
            raise errors.InvalidRequest("This conversation is not temporary.")
        key = owner, found.id
        made = Hold(self, key)
        if self._closing:
            made.end(_STOPPING)
        self._holds.setdefault(key, set()).add(made)
        self._due.pop(key, None)
        return made

    def release(self, hold: Hold) -> None:
        """Safe to call twice."""
        holds = self._holds.get(hold.key, set())
        if hold in holds:
            holds.remove(hold)
            if not holds:
                del self._holds[hold.key]
                self.touch(*hold.key)

    def gone(self, owner: str, id: str) -> None:
        """It was deleted: its holders learn of it."""
        self._due.pop((owner, id), None)
        for hold in self._holds.pop((owner, id), set()):
            hold.end(_GONE)

    def close(self) -> None:
        """Ends every hold. Safe to call twice."""
        self._closing = True
        for holds in self._holds.values():
            for hold in holds:
                hold.end(_STOPPING)

    async def run(self) -> None:
        """Deletes what nobody holds, until it is cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            await self._some.wait()
            await asyncio.sleep(CHECK_SECONDS)
            for key in list(self._due):
                # Asked anew for each: while one is deleted, somebody may take hold of another.
                if self._due.get(key, math.inf) <= clock():
                    await self._delete(key)
            if not self._due:
                self._some.clear()

    async def delete_all(self) -> None:
        """The server stops."""
        for key in await self._store.temporary():
            await self._delete(key)

    async def _delete(self, key: Key) -> None:
        try:
            await delete(self._store, self._runs, *key)
        except NotFound:
            pass  # somebody else was quicker
        except StoreError as error:
            log.warning("a temporary conversation was not deleted: %s", error)
            self._due[key] = asyncio.get_running_loop().time() + GRACE_SECONDS
            return
        self.gone(*key)


class Hold:
    """A stream that only says why it ends: what counts is that it is open."""

    def __init__(self, temporary: Temporary, key: Key) -> None:
        self._temporary = temporary
        self._over = asyncio.Event()
        self._why: wire.StreamError | None = None
        self.key = key

    def end(self, why: wire.StreamError) -> None:
        if not self._over.is_set():
            self._why = why
            self._over.set()

    def release(self) -> None:
        self._temporary.release(self)

    async def next_within(self, seconds: float) -> wire.Event | None:
        """None when the time is over. StopAsyncIteration after the one event."""
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            return None
        why, self._why = self._why, None
        if why is None:
            raise StopAsyncIteration
        return wire.Event(None, why)
