"""A TCP proxy in the test's own loop that shapes the answer to a stream request at a chosen byte.

Counted are the bytes after the answer's head as they travel, the framing of chunks included. What
happens there is one of KINDS; every other request, and a stream for which nothing is chosen, passes
unchanged. One request a connection.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

KINDS = ("reset", "close", "half-close", "stall", "delay", "split", "coalesce")
"""The first four end what the client reads; `stall` by never sending the rest."""

EVENTS_REQUEST = re.compile(rb"^GET \S*/runs/[^/ ]+/events")
RESET = struct.pack("ii", 1, 0)
DELAY_SECONDS = 0.002

Choose = Callable[[], tuple[str, int] | None]
"""Asked once for each stream request: what happens, and after how many bytes."""


class ShapingProxy:
    def __init__(self, target: str, choose: Choose) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname or "", parts.port or 0)
        self._choose = choose
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            up, down = await asyncio.open_connection(*self._target)
            try:
                down.write(_one_request(head))
                chosen = self._choose() if EVENTS_REQUEST.match(head) else None
                writer.write(await up.readuntil(b"\r\n\r\n"))
                await self._pass(up, reader, writer, chosen)
            finally:
                down.close()
                writer.close()

    async def _pass(
        self,
        up: asyncio.StreamReader,
        client: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        chosen: tuple[str, int] | None,
    ) -> None:
        if chosen is None:
            while data := await up.read(65536):
                writer.write(data)
                await writer.drain()
            return
        kind, offset = chosen
        first = await _at_most(up, offset)
        writer.write(first)
        await writer.drain()
        if len(first) < offset:
            return
        if kind in ("delay", "split", "coalesce"):
            await asyncio.sleep(DELAY_SECONDS if kind == "delay" else 0)
            if kind == "split":
                writer.write(await up.read(1))
                await asyncio.sleep(0)
            writer.write(await up.read())
            await writer.drain()
        elif kind == "reset":
            raw: socket.socket = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            writer.transport.abort()
        elif kind == "half-close":
            writer.write_eof()
            await client.read()  # until the client closes its side
        elif kind == "stall":
            await client.read()  # until the client has had enough


@asynccontextmanager
async def shaping_proxy(target: str, choose: Choose) -> AsyncIterator[ShapingProxy]:
    proxy = ShapingProxy(target, choose)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()


async def _at_most(up: asyncio.StreamReader, count: int) -> bytes:
    try:
        return await up.readexactly(count)
    except asyncio.IncompleteReadError as error:
        return error.partial


def _one_request(head: bytes) -> bytes:
    return re.sub(rb"(?im)^connection:.*\r\n", b"", head).replace(
        b"\r\n", b"\r\nConnection: close\r\n", 1
    )
