"""The client that is being connected: those who need it wait here, without knowing how long.

Before the first paint there is none; while the server starts they wait; when it could not be
reached they are told, and a retry opens the line anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from hobnob.tui.notice import ClientError, Notice

if TYPE_CHECKING:
    from hobnob.tui.client import Client

Connect = Callable[[Callable[[Notice], None]], AbstractAsyncContextManager["Client"]]
"""Opens the connection, starting a server if need be; hears what to tell meanwhile."""


class Line:
    """Owned by the app; used from its event loop only."""

    def __init__(self, url: str | None = None) -> None:
        """`url`: the server that was named; None for the one of this machine."""
        self.url = url
        self._opened = asyncio.Event()
        self._client: Client | None = None
        self._error: ClientError | None = None

    @property
    def client(self) -> Client | None:
        return self._client

    async def get(self) -> Client:
        """The client, once there is one. Raises ClientError when it could not be connected."""
        await self._opened.wait()
        if self._error is not None:
            raise self._error
        assert self._client is not None, "an open line has a client"
        return self._client

    def open(self, client: Client) -> None:
        self._client, self._error = client, None
        self._opened.set()

    def fail(self, error: ClientError) -> None:
        self._client, self._error = None, error
        self._opened.set()

    def reset(self) -> None:
        """A new attempt begins."""
        self._client = self._error = None
        self._opened.clear()
