"""Counted as it happens, read by Prometheus' own parser, without waiting for the engine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from fake_engine import FakeEngine
from prometheus_client.parser import text_string_to_metric_families
from support_edge import Edge, edge_at

from hobnob.server.engine.protocol import Output, Record, Stepped
from hobnob.server.tally import Histogram, Tally

PLAYED = "hobnob_requests_total"


@pytest.fixture
async def edge(tmp_path: Path) -> AsyncIterator[Edge]:
    async with edge_at(tmp_path, sockets=False) as opened:
        yield opened


async def scraped(edge: Edge) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Name and labels of every sample with its value."""
    answer = await edge.client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    found = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


def record(decode_s: float, *, prefill_rows: int = 0, accepted: int = 0) -> Record:
    return Record(0.0, 1, prefill_rows, 1, 0, 9, 0, 2, decode_s, 0.0002, 0, 0, 0, 0, accepted)


def test_a_histogram_counts_up_to_each_bound_the_bound_included() -> None:
    found = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        found.add(value)
    assert found.cumulative() == [(1.0, 2), (2.0, 3), (float("inf"), 4)]
    assert (found.count, found.sum) == (4, 12.0)


def test_each_step_is_counted_once_with_its_tokens() -> None:
    engine = FakeEngine()
    tally = Tally(engine)
    tally.on_stepped(Stepped(records=[record(0.02, accepted=3), record(0.3, prefill_rows=64)]))
    tally.on_stepped(Stepped(outputs=[Output("r")]))
    assert (tally.decoded_tokens, tally.prefilled_tokens) == (5, 64)
    assert tally.step_decode.count == len(tally.records) == 2
    assert tally.step_decode.sum == pytest.approx(0.32)


async def test_a_run_counts_its_end_its_tokens_and_its_times(edge: Edge) -> None:
    assert (await edge.chat("hello")).status_code == 200
    found = await scraped(edge)
    assert found["hobnob_runs_total", (("reason", "end_turn"),)] == 1
    assert found["hobnob_prompt_tokens_total", ()] == len("uhello")
    assert found["hobnob_time_to_first_token_seconds_count", ()] == 1
    assert found["hobnob_time_to_first_token_seconds_sum", ()] == 0.75
    assert found["hobnob_time_to_first_token_seconds_bucket", (("le", "0.5"),)] == 0
    assert found["hobnob_time_to_first_token_seconds_bucket", (("le", "1.0"),)] == 1
    assert found["hobnob_time_per_token_seconds_count", ()] == 1


async def test_requests_are_counted_by_route_so_that_no_client_can_make_labels(edge: Edge) -> None:
    for n in range(20):
        await edge.call("GET", f"/conversations/{n:08x}")
        await edge.client.get(f"/nothing/{n}")
        await edge.client.request(f"M{n}", "/health")
        await edge.client.get("/hobnob/v1/status", headers={"authorization": "Bearer wrong"})
    found = await scraped(edge)
    labels = [dict(labels) for name, labels in found if name == PLAYED]
    assert len(labels) == 4
    by_route = {(one["route"], one["method"], one["status"]) for one in labels}
    assert by_route == {
        ("/hobnob/v1/conversations/{id}", "GET", "404"),
        ("other", "GET", "404"),
        ("/health", "other", "405"),
        ("other", "GET", "401"),
    }
    assert all(value == 20 for (name, _), value in found.items() if name == PLAYED)


async def test_refusals_for_want_of_a_place_are_counted_by_code(tmp_path: Path) -> None:
    async with edge_at(tmp_path, sockets=False) as edge:
        edge.lifecycle.request_stop()
        await edge.runs.stop()
        edge.lifecycle._stop.clear()  # the guard lets through, the registry refuses
        assert (await edge.chat()).status_code == 503
        found = await scraped(edge)
    assert found["hobnob_refusals_total", (("code", "server_stopping"),)] == 1


async def test_metrics_need_the_key(edge: Edge) -> None:
    answer = await edge.client.get("/metrics", headers={"authorization": ""})
    assert answer.status_code == 401


async def test_an_engine_that_never_answers_does_not_keep_the_numbers_back(tmp_path: Path) -> None:
    async with edge_at(tmp_path, FakeEngine(loading=True), sockets=False, playing=False) as edge:
        await edge.send()
        found = await scraped(edge)
    assert found["hobnob_engine_ready", ()] == 0
    assert found["hobnob_sequences_waiting", ()] == 1


async def test_restarts_are_counted(edge: Edge) -> None:
    edge.engine.die_and_restart()
    assert (await scraped(edge))["hobnob_engine_restarts_total", ()] == 1


async def test_scraping_is_not_using_the_server(edge: Edge) -> None:
    edge.lifecycle._last -= 100
    await edge.client.get("/metrics")
    await edge.call("GET", "/steps")
    assert edge.lifecycle.idle_s() >= 100


async def test_the_last_steps_are_listed_oldest_first(edge: Edge) -> None:
    for listener in edge.engine._listeners:
        listener.on_stepped(Stepped(records=[record(n / 1000) for n in range(2000)]))
    steps = (await edge.call("GET", "/steps", params={"newest": 3})).json()["steps"]
    assert [step["decode_s"] for step in steps] == [1.997, 1.998, 1.999]
    named = {"decodes", "prefill_rows", "running", "overhead_s", "cells_used", "cells_cached"}
    assert named <= set(steps[0])
    refused: httpx.Response = await edge.call("GET", "/steps", params={"newest": 5000})
    assert refused.status_code == 400


def test_the_library_is_loaded_when_the_numbers_are_first_asked_for() -> None:
    code = "import sys, hobnob.server.serving; print('prometheus_client' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
