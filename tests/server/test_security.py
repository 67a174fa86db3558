"""The guard, in front of an application that says yes to everything that gets through."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hobnob.server.lifecycle import Lifecycle
from hobnob.server.security import MAX_HEADER_BYTES, Guard, Policy, host_allowed

KEY = "secret-key"
POLICY = Policy(keys=(KEY.encode(),), max_body_bytes=1000)
NATIVE = "/hobnob/v1/conversations"


async def yes(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads the whole body and answers with its length, or with the refusal's status."""
    size, status = 0, 200
    try:
        while True:
            message = await receive()
            size += len(message.get("body", b""))
            if not message.get("more_body", False):
                break
    except HTTPException as error:
        status = error.status_code
    headers = [(b"content-type", b"text/plain")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": str(size).encode()})


def guarded(policy: Policy = POLICY, lifecycle: Lifecycle | None = None) -> ASGIApp:
    return Guard(yes, policy=policy, lifecycle=lifecycle or Lifecycle())


async def call(
    method: str = "GET",
    path: str = NATIVE,
    *,
    policy: Policy = POLICY,
    lifecycle: Lifecycle | None = None,
    headers: list[tuple[str, str]] | None = None,
    key: str | None = KEY,
    host: str = "localhost",
    content: Any = None,
) -> httpx.Response:
    sent = [("host", host), *(headers or [])]
    if key is not None:
        sent.append(("authorization", f"Bearer {key}"))
    transport = httpx.ASGITransport(guarded(policy, lifecycle))
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        raw = [(name.encode(), value.encode("latin-1")) for name, value in sent]
        request = httpx.Request(method, f"http://x{path}", headers=raw, content=content)
        return await client.send(request)


# ---- key


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("authorization", "")],
        [("authorization", "Bearer ")],
        [("authorization", "Bearer")],
        [("authorization", "Bearer clé")],
        [("authorization", "Basic x")],
        [("authorization", f"Basic {KEY}")],
        [("authorization", KEY)],
        [("authorization", "Bearer a"), ("authorization", "Bearer b")],
        [("x-api-key", "")],
        [("x-api-key", "clé\xff")],
        [("x-api-key", KEY.upper())],
        [("x-api-key", KEY[:-1])],
    ],
)
async def test_a_request_without_a_valid_key_is_refused(headers: list[tuple[str, str]]) -> None:
    answer = await call(headers=headers, key=None)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "unauthorized"
    assert answer.headers["www-authenticate"] == "Bearer"
    assert KEY not in answer.text


@pytest.mark.parametrize(
    "headers",
    [
        [("authorization", f"Bearer {KEY}")],
        [("authorization", f"bearer {KEY}")],
        [("x-api-key", KEY)],
        [("x-api-key", f" {KEY} ")],
        [("authorization", "Bearer other"), ("x-api-key", KEY)],
    ],
)
async def test_either_header_carries_the_key(headers: list[tuple[str, str]]) -> None:
    assert (await call(headers=headers, key=None)).status_code == 200


async def test_each_of_several_keys_opens() -> None:
    policy = Policy(keys=(b"one", b"two"))
    answers = [await call(policy=policy, key=key) for key in ("one", "two", "three")]
    assert [answer.status_code for answer in answers] == [200, 200, 401]


async def test_an_empty_key_is_a_programming_error() -> None:
    with pytest.raises(AssertionError, match="empty key"):
        guarded(Policy(keys=(b"",)))


@pytest.mark.parametrize("path", ["/health", "/hobnob/v1/health"])
async def test_health_needs_no_key(path: str) -> None:
    assert (await call(path=path, key=None)).status_code == 200


@pytest.mark.parametrize("path", ["/healthz", "/health/", "/hobnob/v1/status", "/", "/v1/models"])
async def test_everything_else_needs_one(path: str) -> None:
    assert (await call(path=path, key=None)).status_code == 401


# ---- host and origin


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:7113", "127.0.0.1", "127.0.0.1:1", "127.8.9.1", "[::1]", "[::1]:80"],
)
async def test_loopback_names_are_answered_whatever_the_port(host: str) -> None:
    assert (await call(host=host)).status_code == 200


HOSTILE = [
    "evil.example",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "localhost:",
    "localhost:70000",
    "localhost:80:80",
    "localhost evil",
    "192.168.1.7",
    "[::2]",
    "::1",
    "0.0.0.0",
    "user@localhost",
    "2130706433",
    "",
]


@pytest.mark.parametrize("host", HOSTILE)
async def test_other_host_names_are_refused(host: str) -> None:
    answer = await call(host=host)
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "forbidden"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example"])
async def test_even_health_is_not_answered_under_another_name(host: str) -> None:
    assert (await call(path="/health", host=host, key=None)).status_code == 403


async def test_two_host_headers_are_refused() -> None:
    assert (await call(headers=[("host", "localhost")])).status_code == 403


def test_listed_hosts_pass_with_any_port_and_listed_ports_only_alone() -> None:
    policy = Policy(keys=(b"k",), hosts=frozenset({"box.lan", "proxy:8080"}))
    assert host_allowed("box.lan", policy)
    assert host_allowed("Box.lan:99", policy)
    assert host_allowed("proxy:8080", policy)
    assert not host_allowed("proxy:8081", policy)
    assert not host_allowed("proxy", policy)


def test_on_the_network_any_address_is_a_fair_name_but_no_other_name_is() -> None:
    policy = Policy(keys=(b"k",), loopback=False)
    assert host_allowed("192.168.1.7:7113", policy)
    assert host_allowed("[fe80::1]", policy)
    assert not host_allowed("evil.example", policy)


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "http://localhost.evil.example", "http://localhost:7113", ""],
)
async def test_requests_from_web_pages_are_refused_without_cors_headers(origin: str) -> None:
    answer = await call(headers=[("origin", origin)])
    assert answer.status_code == 403
    assert not any(name.startswith("access-control") for name in answer.headers)


async def test_a_listed_origin_passes() -> None:
    policy = Policy(keys=(KEY.encode(),), origins=frozenset({"app://mine"}))
    assert (await call(policy=policy, headers=[("origin", "app://mine")])).status_code == 200
    assert (await call(policy=policy, headers=[("origin", "app://other")])).status_code == 403


async def test_a_preflight_gets_no_permission() -> None:
    headers = [
        ("origin", "https://evil.example"),
        ("access-control-request-method", "POST"),
        ("access-control-request-private-network", "true"),
    ]
    answer = await call("OPTIONS", headers=headers, key=None)
    assert answer.status_code == 403
    assert not any(name.startswith("access-control") for name in answer.headers)


# ---- bodies


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""],
)
async def test_a_body_that_a_web_page_could_send_unasked_is_refused(kind: str) -> None:
    headers = [("content-type", kind)] if kind else []
    answer = await call("POST", headers=headers, content=b'{"text": "x"}')
    assert answer.status_code == 415
    assert answer.json()["error"]["code"] == "unsupported_media_type"


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8"])
async def test_a_json_body_passes(kind: str) -> None:
    answer = await call("POST", headers=[("content-type", kind)], content=b"{}")
    assert (answer.status_code, answer.text) == (200, "2")


async def test_a_post_without_a_body_needs_no_content_type() -> None:
    assert (await call("POST")).status_code == 200
    assert (await call("POST", headers=[("content-length", "0")])).status_code == 200


JSON_TYPE = ("content-type", "application/json")


async def test_a_declared_body_over_the_bound_is_refused_before_it_is_read() -> None:
    answer = await call("POST", headers=[JSON_TYPE], content=b" " * 1001)
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "body_too_large"
    assert (await call("POST", headers=[JSON_TYPE], content=b" " * 1000)).status_code == 200


@pytest.mark.parametrize("length", ["-1", "1e3", "abc", "9" * 400])
async def test_an_odd_content_length_is_refused(length: str) -> None:
    answer = await call("POST", headers=[JSON_TYPE, ("content-length", length)])
    assert answer.status_code in (400, 413)


async def test_a_body_of_undeclared_length_is_bounded_too() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(11):
            yield b" " * 100

    answer = await call("POST", headers=[JSON_TYPE], content=chunks())
    assert answer.status_code == 413


async def test_a_head_over_the_bound_is_refused_also_where_it_comes_at_once() -> None:
    answer = await call(headers=[("x-long", "x" * MAX_HEADER_BYTES)])
    assert answer.status_code == 431
    assert answer.json()["error"]["code"] == "headers_too_large"
    assert (await call(headers=[("x-long", "x" * 60_000)])).status_code == 200
    assert (
        await call(path=f"{NATIVE}?{'x' * 30_000}", headers=[("x-long", "x" * 40_000)])
    ).status_code == 431


# ---- the rest


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        (NATIVE, {"code", "message"}),
        ("/v1/chat/completions", {"message", "type", "param", "code"}),
        ("/v1/messages", {"type", "message"}),
    ],
)
async def test_a_refusal_comes_in_the_envelope_of_its_api(path: str, shape: set[str]) -> None:
    answer = await call("POST", path, key=None)
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json()["error"]) == shape


async def test_a_stopping_server_refuses_new_work_but_still_tells_its_health() -> None:
    lifecycle = Lifecycle()
    lifecycle.request_stop()
    answer = await call(lifecycle=lifecycle)
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "server_stopping"
    assert "retry-after" in answer.headers
    assert (await call(path="/health", lifecycle=lifecycle)).status_code == 200


async def test_a_websocket_is_closed_before_it_is_accepted() -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await guarded()({"type": "websocket", "path": "/", "headers": []}, receive, send)
    assert [message["type"] for message in sent] == ["websocket.close"]


async def test_a_request_counts_as_use_until_it_is_answered_but_health_checks_never_do() -> None:
    now = [0.0]
    lifecycle = Lifecycle(clock=lambda: now[0])
    seen: list[float] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        now[0] += 10
        seen.append(lifecycle.idle_s())
        await yes(scope, receive, send)

    guard = Guard(app, policy=POLICY, lifecycle=lifecycle)
    transport = httpx.ASGITransport(guard)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        await client.get(NATIVE, headers={"x-api-key": KEY})
        assert (seen, lifecycle.idle_s()) == ([0.0], 0.0)
        await client.get("/health")
        assert lifecycle.idle_s() == 10.0


async def test_a_refusal_waits_for_the_body_so_that_the_client_can_read_it() -> None:
    """A connection closed on unread data is reset, and the refusal with it."""
    read: list[int] = []
    parts = [(b"x" * 100, True)] * 3 + [(b"", False)]

    async def receive() -> Message:
        body, more = parts[len(read)]
        read.append(len(body))
        return {"type": "http.request", "body": body, "more_body": more}

    answers: list[Message] = []

    async def send(message: Message) -> None:
        answers.append(message)

    headers = [(b"host", b"localhost"), (b"content-length", b"300")]
    scope = {"type": "http", "method": "POST", "path": "/v1/messages", "headers": headers}
    async with asyncio.timeout(5):
        await guarded()(scope, receive, send)
    assert len(read) == len(parts)
    assert answers[0]["status"] == 401
    assert json.loads(answers[1]["body"])["type"] == "error"
