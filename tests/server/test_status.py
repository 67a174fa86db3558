"""The names of /status are a contract; /health tells strangers nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from fake_engine import READY, FakeEngine
from support_edge import MODEL, Edge, edge_at

from hobnob.server.engine import machine
from hobnob.server.engine.protocol import Stats
from hobnob.server.engine.state import EngineStatus


@pytest.fixture
async def edge(tmp_path: Path) -> AsyncIterator[Edge]:
    async with edge_at(tmp_path, sockets=False, playing=False) as opened:
        yield opened


CONTRACT = {
    "server": {"pid", "url", "version", "uptime_s"},
    "engine": {"pid", "state", "restarts"},
    "model": {"id", "path", "n_ctx"},
    "sequences": {"running", "waiting", "max"},
    "cells": {"used", "cached", "total"},
    "throughput": {"prefill_tps", "decode_tps"},
    "snapshots": {
        "ram_bytes",
        "disk_bytes",
        "ram_max",
        "disk_max",
        "written_bytes",
        "restored_tokens",
    },
    "memory": {"server_bytes", "engine_bytes", "available_bytes"},
}


async def test_every_promised_name_is_there(edge: Edge) -> None:
    status = (await edge.call("GET", "/status")).json()
    for section, names in CONTRACT.items():
        assert names <= set(status[section]), section
    assert status["server"]["pid"] == os.getpid()
    assert status["model"]["id"] == MODEL.id
    assert status["capacity"][0] == "8 streams"


async def test_a_model_that_has_not_loaded_leaves_no_name_out(tmp_path: Path) -> None:
    async with edge_at(tmp_path, FakeEngine(loading=True), sockets=False) as edge:
        status = (await edge.call("GET", "/status")).json()
        for section, names in CONTRACT.items():
            assert names <= set(status[section]), section
        assert status["engine"]["state"] == "loading"
        assert status["model"]["n_ctx"] is None


async def test_a_failed_model_is_reported_and_the_history_still_answers(edge: Edge) -> None:
    edge.engine.fail("model_unavailable", "The file is cut off.")
    engine = (await edge.call("GET", "/status")).json()["engine"]
    assert engine["state"] == "failed"
    assert engine["failure"] == {"code": "model_unavailable", "message": "The file is cut off."}
    answer = await edge.call("POST", "/conversations/new/messages", json={"text": "x"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_unavailable")
    assert (await edge.chat()).json()["error"]["message"] == "The file is cut off."
    assert (await edge.call("GET", "/conversations")).status_code == 200


async def test_waiting_counts_runs_that_the_engine_has_not_been_given(tmp_path: Path) -> None:
    async with edge_at(tmp_path, FakeEngine(loading=True), sockets=False, playing=False) as edge:
        await edge.send()
        sequences = (await edge.call("GET", "/status")).json()["sequences"]
        assert (sequences["running"], sequences["waiting"]) == (0, 1)


@pytest.mark.parametrize("path", ["/health", "/hobnob/v1/health"])
async def test_health_tells_strangers_state_wire_and_instance_only(edge: Edge, path: str) -> None:
    answer = await edge.client.get(path, headers={"authorization": ""})
    assert answer.status_code == 200
    assert answer.json() == {
        "state": "ready",
        "wire": 1,
        "instance": await edge.store.instance(),
    }


async def test_health_follows_the_engine_and_the_wish_to_stop(edge: Edge) -> None:
    states = []
    for change in (edge.engine.die, edge.engine.get_ready, edge.engine.fail):
        change()
        states.append((await edge.client.get("/health")).json()["state"])
    edge.lifecycle.request_stop()
    states.append((await edge.client.get("/health")).json()["state"])
    assert states == ["restarting", "ready", "failed", "stopping"]


class Published(FakeEngine):
    """Publishes statistics with its status, as the real handle does."""

    stats = Stats()

    @property
    def status(self) -> EngineStatus:
        return replace(super().status, stats=self.stats)


async def test_numbers_come_from_the_engine_s_last_report(tmp_path: Path) -> None:
    engine = Published()
    engine.stats = Stats(3, 2, 100, 40, 8192, 181.234, 42.0, 7, 0.02, 0.001)
    async with edge_at(tmp_path, engine, sockets=False, playing=False) as edge:
        status = (await edge.call("GET", "/status")).json()
    assert status["sequences"] == {"running": 3, "waiting": 2, "max": READY.n_seq_max}
    assert status["cells"] == {"used": 100, "cached": 40, "total": 8192}
    assert status["throughput"] == {"prefill_tps": 181.23, "decode_tps": 42.0}
    assert status["video"] is None


async def test_budgets_and_memory_are_told_beside_what_is_used(tmp_path: Path) -> None:
    engine = Published()
    engine.stats = Stats(
        snapshot_ram_bytes=5,
        snapshot_ram_max=50,
        snapshot_disk_bytes=7,
        snapshot_disk_max=70,
        video_free=3,
        video_total=9,
    )
    async with edge_at(tmp_path, engine, sockets=False, playing=False) as edge:
        status = (await edge.call("GET", "/status")).json()
    kept = status["snapshots"]
    assert (kept["ram_bytes"], kept["ram_max"]) == (5, 50)
    assert (kept["disk_bytes"], kept["disk_max"]) == (7, 70)
    assert status["video"] == {"free_bytes": 3, "total_bytes": 9}
    memory = status["memory"]
    if sys.platform == "linux":
        assert 10**6 < memory["server_bytes"] < memory["available_bytes"] + 10**12
        assert memory["engine_bytes"] is not None, "process 1 is always there"


def test_memory_of_a_process_that_is_not_there_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "statm").write_text("100 25 3 1 0 9 0\n")
    assert machine.memory_of(7, tmp_path) == 25 * os.sysconf("SC_PAGE_SIZE")
    assert machine.memory_of(8, tmp_path) is None
    (tmp_path / "7" / "statm").write_text("")
    assert machine.memory_of(7, tmp_path) is None
