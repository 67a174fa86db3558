"""The user's conversations as far as they were read, and deletions that can still be undone.

No screen. Those that are pinned come first and are read whole; pages of the others are added as
the end of the list comes into sight. What is about to be deleted is not among `shown`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from hobnob.tui.line import Line
from hobnob.tui.notice import ClientError
from hobnob.tui.records import Conversation

if TYPE_CHECKING:
    from hobnob.tui.client import Client

PAGE = 50
MOST_AT_ONCE = 500
"""What the server gives at once; the rest is read on demand."""


class Library:
    UNDO_SECONDS: ClassVar[float] = 6.0

    def __init__(self, line: Line) -> None:
        self._line = line
        self._pinned: list[Conversation] = []
        self._others: list[Conversation] = []
        self._deleted: dict[str, float] = {}
        self._leaving: set[str] = set()  # the server is being told
        self.query = ""
        self.has_more = False
        self._read = False

    @property
    def shown(self) -> list[Conversation]:
        gone = self._leaving | self._deleted.keys()
        return [one for one in (*self._pinned, *self._others) if one.id not in gone]

    async def refresh(self) -> None:
        """Read as many again as there are now, from the newest on."""
        wanted = min(MOST_AT_ONCE, max(PAGE, len(self._others) if not self.query else PAGE))
        client, query = await self._line.get(), self.query or None
        pinned, page = await asyncio.gather(
            pinned_ones(client, query),
            client.conversations(limit=wanted, query=query, pinned=False),
        )
        self._pinned = pinned
        # One that was pinned or unpinned in between is in both answers, or in none.
        known = {one.id for one in pinned}
        self._others = [one for one in page if one.id not in known]
        self.has_more = len(page) >= wanted
        self._read = True

    async def more(self) -> None:
        """Read the next page."""
        if not self._others or not self.has_more:
            return
        client = await self._line.get()
        page = await client.conversations(
            limit=PAGE, before=self._others[-1].change, query=self.query or None, pinned=False
        )
        known = {one.id for one in (*self._pinned, *self._others)}
        self._others += [one for one in page if one.id not in known]
        self.has_more = len(page) >= PAGE

    def changed(self, one: Conversation) -> bool:
        """Take in what was written elsewhere. False: only the server knows whether it belongs in
        the list, which is then to be read again."""
        if self.query or not self._read:
            return False
        if any(known.change >= one.change for known in (*self._pinned[:1], *self._others[:1])):
            return True
        self._drop(one.id)
        (self._pinned if one.pinned else self._others).insert(0, one)
        return True

    def gone(self, id: str) -> None:
        """It was deleted elsewhere."""
        self._deleted.pop(id, None)
        self._drop(id)

    def _drop(self, id: str) -> None:
        self._pinned = [one for one in self._pinned if one.id != id]
        self._others = [one for one in self._others if one.id != id]

    def delete_later(self, id: str) -> None:
        self._deleted[id] = asyncio.get_running_loop().time() + self.UNDO_SECONDS

    def undo(self) -> str | None:
        """Take back the last deletion that is not done yet; what was to be deleted."""
        return self._deleted.popitem()[0] if self._deleted else None

    async def delete_due(self) -> None:
        """Delete what can no longer be undone."""
        now = asyncio.get_running_loop().time() + 0.1
        await self._delete([id for id, due in self._deleted.items() if due <= now])

    async def delete_all(self) -> None:
        """The app ends: what was to be deleted is."""
        await self._delete(list(self._deleted))

    async def _delete(self, ids: list[str]) -> None:
        """Each is taken at once: another call leaves it alone, and it cannot be undone any more.
        Raises the first ClientError after all were tried; what failed is shown again."""
        client = self._line.client
        if client is None:
            return
        for id in ids:
            del self._deleted[id]
        self._leaving.update(ids)
        failed: ClientError | None = None
        for id in ids:
            try:
                await client.delete_conversation(id)
                self._drop(id)
            except ClientError as error:
                failed = failed or error
            finally:
                self._leaving.discard(id)
        if failed is not None:
            raise failed


async def pinned_ones(client: Client, query: str | None = None) -> list[Conversation]:
    """All that are pinned, newest change first."""
    found: list[Conversation] = []
    while True:
        before = found[-1].change if found else None
        page = await client.conversations(
            limit=MOST_AT_ONCE, before=before, query=query, pinned=True
        )
        found += [one for one in page if one.pinned]
        if len(page) < MOST_AT_ONCE or not page[-1].pinned:
            return found  # an older server knows no pins, and gives all
