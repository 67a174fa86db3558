"""The socket, and what becomes of clients that are too slow."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send
from support_http import served

from hobnob.server import listener


@pytest.fixture
async def opened() -> AsyncIterator[list[socket.socket]]:
    sockets: list[socket.socket] = []
    yield sockets
    for one in sockets:
        one.close()


def test_a_port_in_use_is_refused_when_it_was_asked_for(opened: list[socket.socket]) -> None:
    opened.append(listener.bind("127.0.0.1", 0, or_any=False))
    port = opened[0].getsockname()[1]
    with pytest.raises(listener.PortTaken, match=str(port)):
        listener.bind("127.0.0.1", port, or_any=False)


def test_a_port_in_use_gives_way_when_any_will_do(opened: list[socket.socket]) -> None:
    opened.append(listener.bind("127.0.0.1", 0, or_any=False))
    port = opened[0].getsockname()[1]
    opened.append(listener.bind("127.0.0.1", port, or_any=True))
    assert opened[1].getsockname()[1] not in (0, port)


def test_a_port_is_free_again_as_soon_as_its_server_is_gone() -> None:
    first = listener.bind("127.0.0.1", 0, or_any=False)
    port = first.getsockname()[1]
    client = socket.create_connection(("127.0.0.1", port))
    accepted, _ = first.accept()
    accepted.close()  # this side closes first and so keeps the connection's last state
    client.close()
    first.close()
    listener.bind("127.0.0.1", port, or_any=False).close()


def test_an_address_that_is_not_ours_is_an_error_and_not_a_taken_port() -> None:
    with pytest.raises(OSError):
        listener.bind("203.0.113.9", 0, or_any=True)
    with pytest.raises(OSError):
        listener.bind("no-such-host.invalid", 0, or_any=False)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("::", False)],
)
def test_loopback_is_judged_by_the_address(host: str, loopback: bool) -> None:
    assert listener.is_loopback(host) is loopback


def test_the_url_names_an_address_that_can_be_called(opened: list[socket.socket]) -> None:
    opened.append(listener.bind("0.0.0.0", 0, or_any=False))
    host, port, url = listener.url_of(opened[0])
    assert (host, url) == ("127.0.0.1", f"http://127.0.0.1:{port}")


def test_an_ipv6_address_is_bracketed(opened: list[socket.socket]) -> None:
    try:
        opened.append(listener.bind("::1", 0, or_any=False))
    except OSError:
        pytest.skip("this machine has no IPv6")
    host, port, url = listener.url_of(opened[0])
    assert (host, url) == ("::1", f"http://[::1]:{port}")


def endless(sent: list[int], done: asyncio.Event) -> ASGIApp:
    """Sends as fast as it may, until the connection is gone."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        gone = asyncio.create_task(receive_until_gone(receive))
        while not gone.done():
            body = b"x" * 65536
            await send({"type": "http.response.body", "body": body, "more_body": True})
            sent.append(len(body))
            await asyncio.sleep(0)
        done.set()

    return app


async def receive_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def connect(url: str) -> socket.socket:
    """A client that asks and then never reads; its own buffer is small."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, ("127.0.0.1", urlsplit(url).port))
    await loop.sock_sendall(client, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return client


async def test_a_reader_that_never_reads_is_dropped_and_memory_stays_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listener, "STALL_SECONDS", 0.2)
    sent: list[int] = []
    done = asyncio.Event()
    async with served(endless(sent, done)) as url:
        client = await connect(url)
        async with asyncio.timeout(10):
            await done.wait()
        assert sum(sent) < 32 * 1024 * 1024  # what the kernel takes; not what was generated
        client.close()


async def test_a_reader_that_reads_is_not_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "STALL_SECONDS", 1.0)
    sent: list[int] = []
    done = asyncio.Event()
    async with served(endless(sent, done)) as url:
        client = await connect(url)
        loop = asyncio.get_running_loop()
        read = 0
        while read < 4 * 1024 * 1024:
            read += len(await loop.sock_recv(client, 65536))
        assert not done.is_set()
        client.close()
        async with asyncio.timeout(10):
            await done.wait()


async def test_a_connection_that_asks_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "HEADERS_SECONDS", 0.1)
    async with served(endless([], asyncio.Event())) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
        writer.write(b"GET / HTTP/1.1\r\nHost: ")
        async with asyncio.timeout(10):
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
        writer.close()


async def answers(scope: Scope, receive: Receive, send: Send) -> None:
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.mark.parametrize("together", [False, True])
async def test_a_later_request_that_is_begun_and_not_finished_is_closed(
    monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    monkeypatch.setattr(listener, "HEADERS_SECONDS", 0.2)
    whole, begun = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET / HTTP/1.1\r\nHo"
    async with served(answers) as url, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
        writer.write(whole + begun if together else whole)
        await reader.readuntil(b"ok")
        if not together:
            writer.write(begun)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()


async def test_a_head_that_is_begun_while_the_reply_is_unread_has_its_time_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listener, "HEADERS_SECONDS", 0.3)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body = b"x" * (8 * 1024 * 1024)
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async with served(app) as url, asyncio.timeout(10):
        client = await connect(url)
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0.1)  # the reply is complete, and most of it is not sent
        await loop.sock_sendall(client, b"GET / HTTP/1.1\r\nHo")
        with contextlib.suppress(ConnectionError):
            while await loop.sock_recv(client, 1 << 20):
                pass
        client.close()


async def test_a_head_that_is_too_large_is_431_however_it_arrives() -> None:
    async with served(answers) as url, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        for size in (60_000, 10_000):  # the limit is passed by the last bytes that are sent
            writer.write(b"x-long: " + b"x" * size)
            await writer.drain()
            await asyncio.sleep(0.05)
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 431 ") and b"headers_too_large" in answer
        writer.close()


async def test_a_connection_may_rest_between_its_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "HEADERS_SECONDS", 0.2)
    whole = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with served(answers) as url, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
        for _ in range(2):
            writer.write(whole)
            await reader.readuntil(b"ok")
            await asyncio.sleep(0.4)
        writer.close()


@pytest.mark.parametrize("body", [b"zz\r\n", b"-1\r\n", b"3\r\nabcXX"])
async def test_a_body_that_is_no_body_is_answered(body: bytes) -> None:
    async def reads(scope: Scope, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            if not message.get("more_body"):
                await answers(scope, receive, send)
                return

    async with served(reads) as url, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
        head = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head)
        await writer.drain()
        await asyncio.sleep(0.05)  # the application waits for it already
        writer.write(body)
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 400 ") and b"invalid_request" in answer
        writer.close()
