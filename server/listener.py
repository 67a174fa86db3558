"""The listening socket and uvicorn on it: bound before anything is loaded, ended on our terms.

uvicorn waits for open streams without end and leaves signals to itself; here main.py decides.
A client that takes the bytes of its reply too slowly is cut off, so that memory stays bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import socket
import sys
from collections.abc import Callable, Generator
from ipaddress import ip_address

from starlette.types import ASGIApp
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from hobnob.server.errors import HeadersTooLarge
from hobnob.server.security import MAX_HEADER_BYTES

STALL_SECONDS = 60.0
"""How long a client may leave 64 KiB of its reply unread, beyond what the kernel buffers."""
HEADERS_SECONDS = 30.0
"""How long a new connection may take to bring its first request's headers, and any connection
from the first byte of a later request's."""
KEEP_ALIVE_SECONDS = 75
BACKLOG = 512


class PortTaken(Exception):
    """Another program listens there."""


def bind(host: str, port: int, *, or_any: bool) -> socket.socket:
    """A listening socket, which nobody answers yet. With `or_any` a taken port gives way.

    Raises PortTaken, or OSError for an address that is not ours or not allowed.
    """
    family, address = _resolve(host, port)
    try:
        return _listening(family, address)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        if not or_any:
            raise PortTaken(f"{host}:{port}") from None
    return _listening(family, (address[0], 0, *address[2:]))


def is_loopback(host: str) -> bool:
    """Of the address as bound: a name counts by what it resolves to."""
    try:
        return ip_address(_resolve(host, 0)[1][0]).is_loopback
    except (OSError, ValueError):
        return False


def url_of(listener: socket.socket) -> tuple[str, int, str]:
    """Host, port and URL as a client on this machine calls them."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", ""):
        host = "127.0.0.1"
    elif host == "::":
        host = "::1"
    return host, port, f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Deadline:
    """When a connection is cut off, unless something happens before."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> None:
        self._loop = loop
        self._transport = transport
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        return self._timer is not None

    def set(self, seconds: float) -> None:
        self.clear()
        self._timer = self._loop.call_later(seconds, self._transport.abort)

    def clear(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class PatientProtocol(H11Protocol):
    """uvicorn's, with an end to patience."""

    _headers: _Deadline
    _unread: _Deadline

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._headers = _Deadline(self.loop, transport)
        self._unread = _Deadline(self.loop, transport)
        self._headers.set(HEADERS_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._headers.clear()
        self._unread.clear()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._headers.clear()
        elif not self._headers.is_set:  # the next head has begun
            self._headers.set(HEADERS_SECONDS)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        over = self.cycle is None or self.cycle.response_complete
        if over and not self._headers.is_set and self.conn.trailing_data[0]:
            self._headers.set(HEADERS_SECONDS)  # the next head came with what is answered now

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread.set(STALL_SECONDS)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unread.clear()

    def send_400_response(self, msg: str) -> None:
        """As JSON, in the shape that both the native and the OpenAI API can read."""
        code, line = "invalid_request", "400 Bad Request"
        # uvicorn leaves out what h11 says of the kind of fault, but calls this in its handler.
        if getattr(sys.exc_info()[1], "error_status_hint", 400) == HeadersTooLarge.status:
            code, line = HeadersTooLarge.code, "431 Request Header Fields Too Large"
            msg = f"The request's headers are over the limit of {MAX_HEADER_BYTES} bytes."
        kind = "invalid_request_error"
        error = {"message": msg, "type": kind, "param": None, "code": code}
        body = json.dumps({"error": error}).encode()
        head = (
            f"HTTP/1.1 {line}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        # Also where a body breaks off in the middle, unless its answer has begun.
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(head.encode() + body)
        self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """WebSockets are refused, and no package is missing for them."""


class EdgeServer(Server):
    """uvicorn's server: says when it listens, leaves signals alone, lets go of connections."""

    def __init__(self, app: ASGIApp, *, on_listening: Callable[[], None]) -> None:
        super().__init__(
            Config(
                app,
                http=PatientProtocol,
                ws="none",
                loop="asyncio",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=BACKLOG,
                h11_max_incomplete_event_size=MAX_HEADER_BYTES,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
            )
        )
        self._on_listening = on_listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_listening()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    def let_go(self) -> None:
        """Cut what is still open, unsent bytes and all, and wait for nobody any more."""
        self.force_exit = True
        for connection in list(self.server_state.connections):
            if isinstance(connection, PatientProtocol):
                connection.transport.abort()


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int, int, int]]:
    """The first address of a host; IPv4 before IPv6, as clients that call `localhost` expect."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    found.sort(key=lambda info: info[0] != socket.AF_INET)
    family, _, _, _, address = found[0]
    return family, (*address, 0, 0)[:4]


def _listening(family: socket.AddressFamily, address: tuple[str, int, int, int]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A port just left by us can be bound again at once; one in use still cannot.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address if family == socket.AF_INET6 else address[:2])
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener
