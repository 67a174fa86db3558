"""A client that never reads: memory stays bounded, the reply goes on, and it can come back."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from fake_engine import FakeEngine
from support_edge import KEY, edge_at

from hobnob.server import listener, wire
from hobnob.server.listener import PatientProtocol

PIECE = "größte 🦊 " * 400
PIECES = 1000
"""Together more than the kernel keeps for a connection, many times over."""
STALL_SECONDS = 0.3
HIGH_WATER_BYTES = 512 * 1024
"""Of one reader: what asyncio takes beyond its limit of 64 KiB is one event at the most."""


async def test_a_client_that_never_reads_is_dropped_and_comes_back_for_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "STALL_SECONDS", STALL_SECONDS)
    held: list[int] = []
    pause = PatientProtocol.pause_writing

    def watched(protocol: PatientProtocol) -> None:
        held.append(protocol.transport.get_write_buffer_size())
        pause(protocol)

    monkeypatch.setattr(PatientProtocol, "pause_writing", watched)
    engine = FakeEngine([PIECE] * PIECES, n_ctx=100_000)
    async with edge_at(tmp_path, engine, playing=False) as edge:
        run = (await edge.send())["run"]["id"]
        with socket.socket() as silent:
            silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            silent.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(silent, ("127.0.0.1", edge.client.base_url.port))
            path = f"{wire.API}/runs/{run}/events"
            lines = [f"GET {path} HTTP/1.1", "Host: localhost", f"x-api-key: {KEY}", "", ""]
            await loop.sock_sendall(silent, "\r\n".join(lines).encode())
            async with asyncio.timeout(120):
                while edge.runs.live_count:  # nobody waits for the one who does not read
                    engine.step()
                    await asyncio.sleep(0.002)  # or many steps become one large event
            await asyncio.sleep(2 * STALL_SECONDS)
            got = b""
            try:
                while data := await loop.sock_recv(silent, 65536):
                    got += data
            except ConnectionResetError:
                pass  # dropped
        assert held and max(held) < HIGH_WATER_BYTES
        whole = (await edge.client.get(path)).text
        last = got.decode(errors="ignore").rpartition("\nid: ")[2].split("\n")[0]
        count = whole.count("\nid: ")
        assert 0 < int(last) < count, "it got all of it, or nothing"
        answer = await edge.client.get(path, headers={"last-event-id": last})
        assert answer.text.count("\nid: ") == count - int(last)
        assert whole.endswith(answer.text.partition("\n\n")[2])
