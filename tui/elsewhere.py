"""Brings what others wrote into the open conversation onto the screen.

Takes neither the focus nor the place nor what is typed: messages that follow those shown are
put below them; another version takes the place of one only while the end is being watched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hobnob.tui.joint import Joint, is_known, mark_versions
from hobnob.tui.notice import ClientError
from hobnob.tui.talk import Talk
from hobnob.tui.view import TranscriptView

DELETED = (
    "This conversation was deleted elsewhere. What you see is not stored any more; "
    "Ctrl+N begins a new one."
)
VERSION = "another version is open elsewhere: Ctrl+R shows it"


class Elsewhere:
    def __init__(self, talk: Talk, view: TranscriptView) -> None:
        self._talk = talk
        self._view = view
        self._busy = asyncio.Lock()
        self.hint = ""
        """What is to be said of it below the messages."""

    async def bring(self, *, wanted: Callable[[], bool], may_replace: Callable[[], bool]) -> bool:
        """True when something is shown that was not. `wanted` is asked again after each wait."""
        async with self._busy:
            if not (wanted() and self._talk.behind):
                return False
            try:
                there = await self._talk.news()
            except ClientError:
                return False  # the next change brings it
            if not (wanted() and self._talk.behind):
                return False
            if self._passes_over(there, may_replace):
                self._talk.pass_over()
                return False
            assert there is not None, "what does not join is passed over"
            await self._show(there)
            return True

    def _passes_over(self, there: Joint | None, may_replace: Callable[[], bool]) -> bool:
        entries = self._talk.entries
        if there is not None and there.kept == len(entries):
            return False
        if there is not None and self._talk.is_lost(there.kept):
            return False
        if there is not None and is_known(entries, there):
            return True
        if there is not None and may_replace():
            return False
        self.hint = VERSION
        return True

    async def _show(self, there: Joint) -> None:
        self.hint = ""
        entries = self._talk.entries
        for entry in mark_versions(entries[: there.kept], there.siblings):
            self._view.sync(entry)
        shorter = there.kept < len(entries)
        made = self._talk.take_in(there)
        if shorter:
            await self._view.drop_from(there.kept)
        for entry in made:
            if self._talk.entries is not entries:
                return  # another conversation was opened meanwhile
            await self._view.add(entry)
