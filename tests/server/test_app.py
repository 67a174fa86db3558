"""The application as a whole: what it answers where nothing is, and when something breaks."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from support_edge import KEY, Edge, edge_at

from hobnob.server import listener
from hobnob.server.security import MAX_BODY_BYTES
from hobnob.server.wire import API

NATIVE, OPENAI, ANTHROPIC = "/hobnob/v1/nope", "/v1/nope", "/v1/messages"


@pytest.fixture
async def edge(tmp_path: Path) -> AsyncIterator[Edge]:
    async with edge_at(tmp_path, sockets=False) as opened:
        yield opened


@pytest.mark.parametrize("path", [NATIVE, "/", "/docs", "/openapi.json", "/hobnob/v1/status/"])
async def test_nothing_is_served_that_is_not_ours(edge: Edge, path: str) -> None:
    answer = await edge.client.get(path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        (NATIVE, {"code", "message"}),
        (OPENAI, {"message", "type", "param", "code"}),
        (ANTHROPIC, {"type", "message"}),
    ],
)
async def test_an_unknown_path_is_refused_in_its_api_s_envelope(
    edge: Edge, path: str, shape: set[str]
) -> None:
    answer = await edge.client.post(path, json={})
    assert answer.status_code == 404
    assert set(answer.json()["error"]) == shape


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/hobnob/v1/stop"])
async def test_the_wrong_method_is_refused_with_the_right_one_named(edge: Edge, path: str) -> None:
    answer = await edge.client.get(path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "POST"


async def test_a_fault_of_ours_is_a_500_in_the_envelope_without_details(edge: Edge) -> None:
    async def broken() -> None:
        raise ZeroDivisionError("secret detail")

    edge.app.add_api_route("/v1/broken", broken)
    transport = httpx.ASGITransport(edge.app, raise_app_exceptions=False)
    headers = {"x-api-key": KEY}
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.get("/v1/broken", headers=headers)
    assert (answer.status_code, answer.json()["error"]["type"]) == (500, "server_error")
    assert "secret detail" not in answer.text


async def test_a_store_that_cannot_write_is_told_as_such(edge: Edge) -> None:
    await edge.store.close()
    answer = await edge.call("POST", "/conversations", json={"title": "x"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "server_stopping")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/hobnob/v1/count"])
async def test_a_body_over_the_bound_is_refused_and_the_client_gets_to_read_why(
    tmp_path: Path, path: str
) -> None:
    async with edge_at(tmp_path) as edge:
        body = b'"' + b"x" * (2 * MAX_BODY_BYTES) + b'"'
        answer = await edge.raw(path, body)
        assert answer.status_code == 413
        assert "error" in answer.json()
        assert (await edge.client.get("/health")).status_code == 200


async def test_stop_is_answered_and_refuses_new_work_from_then_on(edge: Edge) -> None:
    assert (await edge.call("POST", "/stop")).json() == {"stopping": True}
    assert edge.lifecycle.stopping
    answer = await edge.chat()
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "server_stopping")
    assert answer.headers["connection"] == "close"


async def test_models_on_this_machine_are_listed(edge: Edge) -> None:
    assert (await edge.call("GET", "/models")).json()["models"][0]["id"] == "tiny.gguf"


async def test_bytes_that_are_not_http_get_a_json_refusal(tmp_path: Path) -> None:
    async with edge_at(tmp_path) as edge:
        port = urlsplit(edge.url).port
        assert port is not None
        answer = await _raw_exchange(port, b"GET / HTTP/1.1\r\nbad header\r\n\r\n")
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert json.loads(body)["error"]["code"] == "invalid_request"
        await _raw_exchange(port, b"\x16\x03\x01\x02\x00" + b"\x00" * 100)
        assert (await edge.client.get("/health")).status_code == 200


async def _raw_exchange(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


async def test_an_upgrade_to_a_websocket_is_not_made(tmp_path: Path) -> None:
    async with edge_at(tmp_path) as edge:
        headers = {
            "connection": "upgrade",
            "upgrade": "websocket",
            "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
            "sec-websocket-version": "13",
        }
        answer = await edge.client.get("/hobnob/v1/nope", headers=headers)
        assert answer.status_code == 404


async def test_every_route_is_documented(edge: Edge) -> None:
    page = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    for _, path in edge.routes():
        path = path.removeprefix(API).replace("{name:path}", "{id}")
        assert f"{path}`" in page or f"{path}?" in page or f"{path} {{" in page, path


def test_the_web_side_of_the_server_loads_neither_the_engine_nor_the_terminal() -> None:
    code = (
        "import sys, hobnob.server.serving;"
        "print([n for n in ('numpy', 'llama_cpp', 'textual', 'jinja2') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_loopback_socket_of_these_tests_is_not_reachable_from_elsewhere() -> None:
    opened = listener.bind("127.0.0.1", 0, or_any=False)
    assert opened.getsockname()[0] == "127.0.0.1"
    assert opened.family == socket.AF_INET
    opened.close()
