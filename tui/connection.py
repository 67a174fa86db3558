"""The line to one server: its address and key, what each failure means, and trying again.

httpx is used here and nowhere else; its errors end here as Dropped (try again) or ClientError.
No proxy for loopback, no redirects (the key would follow them), no compressed answers (a small
one could grow without bound). A local server that has gone is started again.
"""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any

import httpx

from hobnob import __version__, launch
from hobnob.exits import Exit
from hobnob.launch import LaunchError, Server, Target
from hobnob.server.wire import API
from hobnob.tui.notice import ClientError, Notice, NoticeKind

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 60.0
IDLE_SECONDS = 45.0
"""Silence on a stream that means the connection is dead: three keep-alives missed."""
PATIENCE_SECONDS = 30.0
FIRST_PATIENCE_SECONDS = 2.0
"""For a server that never answered yet: most likely its address is wrong."""
MAX_DELAY_SECONDS = 5.0
MAX_RETRY_AFTER_SECONDS = 20.0
MAX_ANSWER_BYTES = 64 * 1024 * 1024

_BUSY = frozenset({"server_overloaded", "queue_timeout", "model_loading", "server_stopping"})
_CODE_OF_STATUS = {
    401: "unauthorized",
    403: "forbidden",
    413: "body_too_large",
    429: "server_overloaded",
    502: "server_overloaded",
    503: "server_overloaded",
    504: "server_overloaded",
    529: "server_overloaded",
}

RESTARTED = Notice(NoticeKind.RESTARTED, "the server was restarted")

OnNotice = Callable[[Notice], None]


class Dropped(Exception):
    """The connection failed or ended too soon. `unsent`: the server never saw the request."""

    def __init__(self, reason: str, *, unsent: bool = False):
        super().__init__(reason)
        self.reason = reason
        self.unsent = unsent


class Backoff:
    """Growing, jittered delays until `patience_s` after the first failure; then None."""

    def __init__(self, patience_s: float, clock: Callable[[], float] = time.monotonic):
        self._patience_s = patience_s
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Things went well: the next failure is the first."""
        self._failures = 0
        self._deadline = 0.0

    def next(self, asked_s: float | None = None) -> float | None:
        """The delay before the next try, at least what the server asked for, within reason."""
        now = self._clock()
        if self._failures == 0:
            self._deadline = now + self._patience_s
        longest = min(MAX_DELAY_SECONDS, 0.1 * 2 ** min(self._failures, 16))
        self._failures += 1
        delay = max(longest * random.uniform(0.5, 1.0), bounded_retry_after(asked_s))
        return delay if now + delay <= self._deadline else None


class Connection:
    """Safe for any number of requests at once on one event loop."""

    def __init__(
        self,
        target: Target,
        *,
        start: bool = True,
        server_args: Sequence[str] = (),
        on_notice: OnNotice | None = None,
        patience_s: float = PATIENCE_SECONDS,
        idle_s: float = IDLE_SECONDS,
    ):
        self._target = target
        self._start = start
        self._server_args = server_args
        self._on_notice = on_notice
        self._server: Server | None = None
        self._http: httpx.AsyncClient | None = None
        self._met = False  # the server has answered at least once
        self.servers = 0
        """How many local servers this connection has gone to: a reader of a stream whose server
        was another knows by it that it was restarted, whoever of us found the new one."""
        self.patience_s = patience_s
        self.idle_s = idle_s

    @property
    def local(self) -> bool:
        return self._target.url is None

    @property
    def url(self) -> str:
        if self._target.url is not None:
            return self._target.url
        return self._server.url if self._server is not None else ""

    @property
    def instance(self) -> str | None:
        """The random id of the local server's database; None for a server given by address."""
        return self._server.instance if self._server is not None else None

    async def __aenter__(self) -> Connection:
        if self.local:
            try:
                await self._find_server()
            except LaunchError as error:
                raise _not_started(error) from None
        else:
            self._build(self.url, self._target.key)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._http is not None:
            await self._http.aclose()

    def tell(self, notice: Notice) -> None:
        if self._on_notice is not None:
            self._on_notice(notice)

    # ---- one answer ---------------------------------------------------------------------------

    async def json(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = True,
        answer_s: float = ANSWER_SECONDS,
        once: bool = False,
    ) -> Any:
        """The JSON that a native route answers, tried until patience ends. Raises ClientError.

        `repeatable=False` for a request that would act twice: once the server may have seen it,
        it is not sent again. `once`: a look that is not worth waiting for, and no reason to start
        a server.
        """
        known = self._met or self.local
        lost = Backoff(self.patience_s if known else FIRST_PATIENCE_SECONDS)
        busy = Backoff(self.patience_s)
        while True:
            try:
                return await self._once(method, path, params, body, headers, answer_s)
            except Dropped as dropped:
                if once:
                    await self.look()
                delay = lost.next() if (repeatable or dropped.unsent) and not once else None
                if delay is None:
                    raise self.unreachable(dropped.reason) from None
                self.tell(Notice(NoticeKind.RECONNECTING, dropped.reason, delay))
            except ClientError as refused:
                wait = busy.next(refused.retry_after_s) if is_busy(refused) and not once else None
                if wait is None:
                    raise
                delay = wait
                self.tell(Notice(NoticeKind.BUSY, refused.message, delay))
            await asyncio.sleep(delay)
            try:
                if await self.revive():
                    self.tell(RESTARTED)
            except Dropped:
                pass  # the next try finds the same out, and counts it

    async def _once(
        self,
        method: str,
        path: str,
        params: Mapping[str, str | int] | None,
        body: Any,
        headers: Mapping[str, str] | None,
        answer_s: float,
    ) -> Any:
        sent: dict[str, Any] = {"params": params, "headers": headers}
        if body is not None:
            # ASCII only: a lone surrogate travels as its escape, and the server replaces it.
            sent["content"] = json.dumps(body).encode("ascii")
            sent["headers"] = {"Content-Type": "application/json", **(headers or {})}
        async with self._exchange(method, path, answer_s, sent) as response:
            raw = await _read(response)
            self._met = True
            if response.status_code >= 300:
                raise self._refusal(response, raw)
            if not raw:
                return None
            try:
                return json.loads(raw)
            except ValueError:
                raise _not_ours(self.url) from None

    async def download(
        self, path: str, take: Callable[[bytes], object], answer_s: float = ANSWER_SECONDS
    ) -> None:
        """Gives the bytes of a file to `take`, piece by piece. Tried once: what was taken cannot
        be taken back. Raises ClientError, and what `take` raises."""
        try:
            async with self._exchange("GET", path, answer_s, {}) as response:
                if response.status_code != 200:
                    raise self._refusal(response, await _read(response))
                if _is_compressed(response):
                    raise _not_ours(self.url)
                async for piece in response.aiter_raw():
                    take(piece)
        except Dropped as dropped:
            raise self.unreachable(dropped.reason) from None

    # ---- a stream -----------------------------------------------------------------------------

    @asynccontextmanager
    async def stream(self, path: str, headers: Mapping[str, str]) -> AsyncIterator[httpx.Response]:
        """An open event stream (200) or its end (204). Raises Dropped and ClientError.

        An httpx error in the body of the `async with` becomes Dropped too.
        """
        wanted = {"Accept": "text/event-stream", "Cache-Control": "no-store", **headers}
        async with self._exchange("GET", path, self.idle_s, {"headers": wanted}) as response:
            self._met = True
            if response.status_code == 204:
                yield response
                return
            if response.status_code != 200:
                raise self._refusal(response, await _read(response))
            kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "text/event-stream" or _is_compressed(response):
                raise _not_ours(self.url)
            yield response

    @asynccontextmanager
    async def _exchange(
        self, method: str, path: str, read_s: float, sent: dict[str, Any]
    ) -> AsyncIterator[httpx.Response]:
        assert self._http is not None, "a Connection is used inside its `async with`"
        if self._server and not launch.still_serves(self._target.paths, self._server):
            raise Dropped("the server has stopped", unsent=True)
        timeout = httpx.Timeout(CONNECT_SECONDS, read=read_s, write=ANSWER_SECONDS, pool=None)
        url = f"{self.url}{API}{path}"
        try:
            async with self._http.stream(method, url, timeout=timeout, **sent) as response:
                yield response
        except httpx.ConnectTimeout:
            raise Dropped("the server does not answer", unsent=True) from None
        except (httpx.ConnectError, httpx.ProxyError):
            raise Dropped("no connection to the server", unsent=True) from None
        except httpx.TimeoutException:
            raise Dropped("the server went silent") from None
        except httpx.TransportError:
            raise Dropped("the connection was lost") from None
        except httpx.InvalidURL:
            raise ClientError("bad_address", f"The address {url!r} cannot be used.") from None

    def _refusal(self, response: httpx.Response, raw: bytes) -> ClientError:
        if response.status_code == 401 and not self.local:
            # The server's own words are for who writes a client.
            message = launch.needs_key(self.url, "another key")
            return ClientError("unauthorized", message, status=401)
        return _refusal(response, raw, self.url)

    # ---- the local server ---------------------------------------------------------------------

    async def revive(self, *, start: bool = True) -> bool:
        """Start the local server again if it has gone (or, without `start`, only look for it);
        True when another one serves now.

        Raises Dropped when that failed but may work later, ClientError when it cannot.
        """
        if not self.local:
            return False
        before = self._server
        try:
            await self._find_server(start=start)
        except LaunchError as error:
            if error.exit_code is Exit.UNREACHABLE:
                raise Dropped(error.message.rstrip(".")) from None
            raise _not_started(error) from None
        return self._server != before

    async def look(self) -> None:
        """A local server may have another address by now; where it has none, the next try finds
        the same out."""
        with suppress(Dropped, ClientError):
            await self.revive(start=False)

    async def restart(self, args: Sequence[str]) -> None:
        """End the local server and start it with other arguments, which hold from then on; with
        the old ones again if it does not start. Raises ClientError."""
        if not self.local:
            raise ClientError("not_local", f"The server at {self.url} is not started from here.")
        before = self._server_args
        try:
            await asyncio.to_thread(launch.stop, self._target.paths, restarting=True)
            self._server_args = args
            await self._find_server()
        except LaunchError as error:
            self._server_args = before
            raise _not_started(error) from None
        self.tell(RESTARTED)

    async def _find_server(self, *, start: bool = True) -> None:
        paths = self._target.paths
        if self._start and start:
            server: Server | None = await self._ensure()
        else:
            server = await asyncio.to_thread(launch.find, paths)
        if server is None:
            await asyncio.to_thread(launch.refuse_silent, paths)
            raise LaunchError("No hobnob server is running.")
        if server != self._server:
            self._server = server
            self.servers += 1
            old, self._http = self._http, None
            self._build(server.url, self._target.key or launch.read_key(paths))
            if old is not None:
                await old.aclose()

    async def _ensure(self) -> Server:
        """launch.ensure in a thread that ends soon after we are cancelled. Who was told that the
        server starts is told when it has."""
        loop = asyncio.get_running_loop()
        given_up = threading.Event()
        starting = False

        def starts(sentence: str) -> None:
            nonlocal starting
            starting = True
            self.tell(Notice(NoticeKind.STARTING, sentence))

        def progress(sentence: str) -> None:
            loop.call_soon_threadsafe(starts, sentence)

        def ensure() -> Server:
            return launch.ensure(
                self._target.paths,
                args=self._server_args,
                progress=progress,
                cancelled=given_up.is_set,
            )

        try:
            server = await asyncio.to_thread(ensure)
        finally:
            given_up.set()
        if starting:
            self.tell(Notice(NoticeKind.CONNECTED, "the server has started"))
        return server

    def _build(self, url: str, key: str | None) -> None:
        # Without TLS there is nothing to verify, and loading the certificates takes a while.
        tls = url.startswith("https:")
        headers = {"User-Agent": f"hobnob/{__version__}", "Accept-Encoding": "identity"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        try:
            self._http = httpx.AsyncClient(
                headers=headers,
                trust_env=not launch.is_loopback(url),
                follow_redirects=False,
                verify=True if tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=8),
            )
        except (ValueError, ImportError, httpx.InvalidURL) as error:
            # A proxy variable that httpx cannot use (socks without its extra, a bad address).
            raise ClientError(
                "unreachable", f"The proxy settings in the environment cannot be used: {error}"
            ) from None

    def unreachable(self, reason: str) -> ClientError:
        place = "The local server" if self.local else f"The server at {self.url}"
        return ClientError("unreachable", f"{place} cannot be reached: {reason}.")


def is_busy(error: ClientError) -> bool:
    """Whether the same request may be taken later."""
    return error.code in _BUSY


def bounded_retry_after(asked_s: float | None) -> float:
    return 0.0 if asked_s is None else min(max(asked_s, 0.0), MAX_RETRY_AFTER_SECONDS)


def parse_retry_after(value: str | None) -> float | None:
    """Seconds; a date or nonsense counts as not given: our own delay is as good a guess."""
    if value is None or not value.strip().isdecimal():
        return None
    return float(value.strip()[:9])


async def _read(response: httpx.Response) -> bytes:
    """The whole body, bounded. Raises ClientError."""
    if _is_compressed(response):
        raise _not_ours(str(response.url))
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            raise ClientError("bad_answer", "The server's answer is too large to read.")
    return bytes(body)


def _is_compressed(response: httpx.Response) -> bool:
    """Nobody was asked to compress; a small answer could unpack to any size."""
    encoding: str = response.headers.get("content-encoding", "identity")
    return encoding.lower() != "identity"


def _refusal(response: httpx.Response, raw: bytes, url: str) -> ClientError:
    status = response.status_code
    if status < 400:
        return ClientError(
            "bad_answer",
            f"The server at {url} redirects elsewhere, which is not followed; "
            "set HOBNOB_URL to the server's own address.",
            status=status,
        )
    code, message = _envelope(raw)
    if code is None:
        code = _CODE_OF_STATUS.get(status)
        message = f"The server at {url} answered with HTTP status {status}."
    if code is None:
        return _not_ours(url, status)
    retry_after_s = parse_retry_after(response.headers.get("retry-after"))
    return ClientError(code, message, status=status, retry_after_s=retry_after_s)


def _envelope(raw: bytes) -> tuple[str | None, str]:
    """Code and message of an error in the native envelope."""
    try:
        error = json.loads(raw)["error"]
        code, message = error["code"], error["message"]
    except (ValueError, TypeError, KeyError, IndexError):
        return None, ""
    return (code, message) if isinstance(code, str) and isinstance(message, str) else (None, "")


def _not_ours(url: str, status: int | None = None) -> ClientError:
    return ClientError(
        "bad_answer", f"What answers at {url} is not a hobnob server.", status=status
    )


def _not_started(error: LaunchError) -> ClientError:
    return ClientError(error.code, error.message, exit_code=error.exit_code)
