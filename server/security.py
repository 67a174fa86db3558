"""Who may speak to the server, and how: the guard in front of every route. Pure ASGI.

In this order: WebSocket refused; a bound to the headers; Host (DNS rebinding) and Origin (other
people's web pages) checked; the key compared; a body only as JSON (a web page cannot send that
without asking first) and only up to a bound. No CORS header is ever sent. Refusals come in the
API's own envelope.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hobnob.server import errors, wire
from hobnob.server.lifecycle import Lifecycle
from hobnob.server.routes import envelopes

MAX_HEADER_BYTES = 64 * 1024
"""Of the target and all header lines. The listener holds no more of a head that is incomplete,
but takes one that comes at once."""
MAX_BODY_BYTES = 10 * 1024 * 1024
MAX_IMPORT_BYTES = 64 * 1024 * 1024
"""Of a conversation that is imported: what a client reads of one, too."""
DRAIN_BYTES = 64 * 1024 * 1024
"""What is read and thrown away of a refused body, so that the client gets to read the refusal."""
DRAIN_SECONDS = 5.0
BODY_SECONDS = 60.0
"""For a body to arrive."""

IMPORT_PATH = f"{wire.API}/conversations/import"
HEALTH_PATHS = frozenset({"/health", f"{wire.API}/health"})
QUIET_PATHS = HEALTH_PATHS | {
    "/metrics",
    *(f"{wire.API}/{name}" for name in ("status", "steps", "changes")),
}
"""Asking these is not using the server: they don't keep an idle one alive."""

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")
_JSON = re.compile(r"application/(?:json|[a-z0-9.+-]+\+json)\s*(?:;.*)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Policy:
    """What the guard demands. A host with a port (`name:8000`) is only that port."""

    keys: tuple[bytes, ...]
    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    loopback: bool = True
    """False: bound to the network, so any IP address is a fair name for this machine."""
    max_body_bytes: int = MAX_BODY_BYTES
    max_import_bytes: int = MAX_IMPORT_BYTES
    quiet: frozenset[str] = field(default=QUIET_PATHS)

    def max_bytes(self, path: str) -> int:
        """Of a body to that address."""
        return self.max_import_bytes if path == IMPORT_PATH else self.max_body_bytes


def host_allowed(header: str, policy: Policy) -> bool:
    """Whether the Host header names this machine.

    Loopback names pass with any port: a tunnel or a proxy may sit in between, and a page that
    rebinds its own name to 127.0.0.1 still sends its own name.
    """
    match = _HOST.fullmatch(header)
    if match is None or int(match["port"] or 0) > 65535:
        return False
    name = match["name"].lower()
    if name == "localhost" or name in policy.hosts or header.lower() in policy.hosts:
        return True
    try:
        address = ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return address.is_loopback or not policy.loopback


def key_matches(headers: Headers, keys: Iterable[bytes]) -> bool:
    """Whether any credential is a key. Every pair is compared, in constant time, as bytes."""
    given = [value.encode("latin-1") for value in headers.getlist("x-api-key")]
    for value in headers.getlist("authorization"):
        scheme, _, credential = value.partition(" ")
        if scheme.lower() == "bearer":
            given.append(credential.encode("latin-1"))
    allowed = False
    for known in keys:
        for one in given:
            allowed |= hmac.compare_digest(one.strip(), known)
    return allowed


class Guard:
    """The middleware. Also counts the requests under way and turns new ones away when stopping."""

    def __init__(self, app: ASGIApp, *, policy: Policy, lifecycle: Lifecycle) -> None:
        assert all(policy.keys), "an empty key would let everyone in"
        self._app = app
        self._policy = policy
        self._lifecycle = lifecycle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            _check_size(scope)
            self._check(scope["method"], scope["path"], Headers(scope=scope))
        except errors.HobnobError as error:
            await _drain(receive)
            await envelopes.response(scope["path"], error)(scope, receive, send)
            return
        bounded = _Bounded(receive, self._policy.max_bytes(scope["path"]))
        if scope["path"] in self._policy.quiet:
            await self._app(scope, bounded, send)
            return
        with self._lifecycle.request():
            await self._app(scope, bounded, send)

    def _check(self, method: str, path: str, headers: Headers) -> None:
        self._check_sender(headers)
        if path not in HEALTH_PATHS:
            if not key_matches(headers, self._policy.keys):
                raise errors.Unauthorized(
                    "A valid key is needed: `Authorization: Bearer KEY` or `x-api-key: KEY`. "
                    "`hobnob key` prints it."
                )
            if self._lifecycle.stopping:
                raise errors.ServerStopping("The server is stopping.")
        self._check_body(headers, self._policy.max_bytes(path))

    def _check_sender(self, headers: Headers) -> None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not host_allowed(hosts[0], self._policy):
            raise errors.Forbidden("This host name is not one that the server answers to.")
        if set(headers.getlist("origin")) - self._policy.origins:
            raise errors.Forbidden("Requests from web pages are refused.")

    def _check_body(self, headers: Headers, limit: int) -> None:
        length = headers.get("content-length")
        if length is not None and not length.isdecimal():
            raise errors.InvalidRequest("The Content-Length is not a number.")
        if length is None and "transfer-encoding" not in headers:
            return
        if length is not None and int(length[:20]) > limit:
            raise errors.BodyTooLarge(_too_large(limit))
        if length is not None and int(length) == 0:
            return
        if not _JSON.fullmatch(headers.get("content-type", "")):
            raise errors.UnsupportedMedia(
                "The body must be JSON: `Content-Type: application/json`."
            )


def _check_size(scope: Scope) -> None:
    # As it was sent; a scope may leave that out.
    target = len(scope.get("raw_path") or scope["path"].encode()) + len(
        scope.get("query_string", b"")
    )
    if target + sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEADER_BYTES:
        raise errors.HeadersTooLarge(
            f"The request's headers are over the limit of {MAX_HEADER_BYTES} bytes."
        )


class _Bounded:
    """A `receive` that reads a body up to the bounds of size and time."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._limit = limit
        self._bytes = 0
        self._complete = False
        self._deadline = asyncio.get_running_loop().time() + BODY_SECONDS

    async def __call__(self) -> Message:
        if self._complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(408, "The body did not arrive in time.") from None
        if message["type"] != "http.request":
            return message
        self._complete = not message.get("more_body", False)
        self._bytes += len(message.get("body", b""))
        if self._bytes > self._limit:
            if not self._complete:
                await _drain(self._receive)
            # The one kind of exception that FastAPI lets through from here.
            raise HTTPException(413, _too_large(self._limit))
        return message


async def _drain(receive: Receive) -> None:
    """Read on for a while: a connection closed on unread data is reset, and the reply lost."""
    left = DRAIN_BYTES
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return
    except TimeoutError:
        return


def _too_large(limit: int) -> str:
    return f"The body is over the limit of {limit} bytes."
