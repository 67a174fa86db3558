"""Temporary conversations of this client: the one it holds, and those that are to be deleted.

Knows no screen. What cannot be deleted here is deleted by the server, which notices that nobody
holds it any more.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from hobnob.tui.line import Connect, Line
from hobnob.tui.notice import ClientError

GONE = (
    "This temporary conversation is gone: the server was stopped, or lost sight of this chat for "
    "too long."
)

Release = Callable[[], object]
Keep = Callable[[str, Callable[[], None]], Release]
"""Holds a conversation from now on, and says when it is gone. What comes back lets go of it."""


class Temporary:
    def __init__(self, line: Line, keep: Keep | None = None) -> None:
        """`keep`: another way to hold one than a task of the event loop."""
        self._line = line
        self._keep = keep or self._in_a_task
        self._held: str | None = None
        self._release: Release | None = None
        self.left: list[str] = []
        """Those that were left and are to be deleted."""
        self.on_gone: Callable[[], None] = lambda: None
        """The one that is held is gone, not by us."""

    def hold(self, id: str) -> None:
        """From the event loop: it lives from now on for as long as this process does."""
        if self._held != id:
            self._let_go()
            self._held = id
            self._release = self._keep(id, lambda: self._gone(id))

    def _in_a_task(self, id: str, gone: Callable[[], None]) -> Release:
        async def holding() -> None:
            await _until_gone((await self._line.get()).hold(id), gone)

        return asyncio.get_running_loop().create_task(holding()).cancel

    def _gone(self, id: str) -> None:
        if self._held == id:
            self._held = self._release = None
            self.on_gone()

    def leave(self, *, but: str | None = None) -> None:
        """Nobody needs it any more, unless it is this one."""
        if self._held is None or self._held == but:
            return
        self.left.append(self._held)
        self._let_go()

    def _let_go(self) -> None:
        if self._release is not None:
            self._release()
        self._held = self._release = None

    async def forget(self) -> None:
        """Delete those that were left. Raises ClientError."""
        for id in list(self.left):
            try:
                await (await self._line.get()).delete_conversation(id)
            except ClientError as error:
                if error.code != "not_found":
                    raise
            if id in self.left:
                self.left.remove(id)


async def _until_gone(holding: Coroutine[Any, Any, None], gone: Callable[[], None]) -> None:
    try:
        await holding
    except ClientError as error:
        if error.code == "not_found":
            gone()


def beside(connect: Connect) -> Keep:
    """Holds from threads, each with an event loop and a connection of its own: for who stands
    still while a line is read, and would not take hold again after an outage."""

    def keep(id: str, gone: Callable[[], None]) -> Release:
        loop = asyncio.new_event_loop()

        async def holding() -> None:
            with suppress(ClientError):
                async with connect(lambda notice: None) as client:
                    await _until_gone(client.hold(id), gone)

        task = loop.create_task(holding())

        def run() -> None:
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # for the main thread
            with suppress(asyncio.CancelledError):
                loop.run_until_complete(task)
            loop.close()

        threading.Thread(target=run, name="hold", daemon=True).start()

        def release() -> None:
            with suppress(RuntimeError):  # it has ended by itself
                loop.call_soon_threadsafe(task.cancel)

        return release

    return keep
