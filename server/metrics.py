"""The server's numbers for Prometheus, from what is published and counted anyway.

Imported when they are first asked for: the library is no part of starting. The names are a
contract (docs/api.md).
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

import hobnob
from hobnob.server.engine.state import EngineState, EngineStatus
from hobnob.server.status import StatusReport
from hobnob.server.tally import Histogram, Tally

CONTENT_TYPE = CONTENT_TYPE_LATEST

STATS = (
    # field of Stats, metric, what it says; counters begin again with each engine
    ("cells_used", "hobnob_cells_used", "KV cells that hold something."),
    ("cells_cached", "hobnob_cells_cached", "KV cells that only hold prefixes for later."),
    ("cells_total", "hobnob_cells_capacity", "KV cells there are."),
    ("prefill_tps", "hobnob_prefill_tokens_per_second", "Prompt tokens, moving average."),
    ("decode_tps", "hobnob_decode_tokens_per_second", "Reply tokens, moving average."),
    ("threads", "hobnob_threads", "CPU threads of the last step."),
    ("saved_bytes", "hobnob_saved_bytes", "RAM that holds states of runs put aside."),
    ("snapshot_ram_bytes", "hobnob_snapshot_ram_bytes", "RAM that holds finished conversations."),
    ("snapshot_disk_bytes", "hobnob_snapshot_disk_bytes", "The same on disk."),
)
STATS_COUNTED = (
    ("evicted_cells", "hobnob_evicted_cells", "Cells of cached prefixes given up."),
    ("saved", "hobnob_saved_stretches", "Stretches of cells saved to RAM."),
    ("restored", "hobnob_restored_stretches", "Stretches of cells put back from RAM."),
    ("moved_cells", "hobnob_moved_cells", "Cells moved to win back gaps."),
    ("snapshot_written_bytes", "hobnob_snapshot_written_bytes", "Of snapshots, to disk."),
    ("restored_tokens", "hobnob_restored_tokens", "Tokens put back from snapshots."),
    ("drafted", "hobnob_drafted_tokens", "Tokens guessed by speculation."),
    ("accepted", "hobnob_accepted_tokens", "Guessed tokens that were drawn."),
)


def text(report: StatusReport, tally: Tally) -> bytes:
    """All of them in the text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Numbers(report, tally))
    return generate_latest(registry)


class _Numbers(Collector):
    def __init__(self, report: StatusReport, tally: Tally) -> None:
        self._report = report
        self._tally = tally

    def collect(self) -> Iterator[Metric]:
        status = self._report.engine_status
        yield from self._server(status)
        yield from _engine(status)
        yield from self._runs()
        yield from self._requests()

    def _server(self, status: EngineStatus) -> Iterator[Metric]:
        shown = self._report.snapshot()
        info = GaugeMetricFamily(
            "hobnob_info", "Always 1; the labels say what runs.", labels=("version", "model")
        )
        info.add_metric((hobnob.__version__, shown["model"]["id"]), 1)
        yield info
        yield GaugeMetricFamily(
            "hobnob_uptime_seconds", "Of the server.", shown["server"]["uptime_s"]
        )
        sequences = shown["sequences"]
        yield GaugeMetricFamily(
            "hobnob_sequences_running", "Runs in a sequence.", sequences["running"]
        )
        yield GaugeMetricFamily(
            "hobnob_sequences_waiting", "Runs that wait for one.", sequences["waiting"]
        )
        yield GaugeMetricFamily("hobnob_sequences_max", "Runs at once.", sequences["max"])
        yield GaugeMetricFamily(
            "hobnob_saving", "1 while replies can be logged.", int(shown["runs"]["saving"])
        )
        ready = status.state is EngineState.READY
        yield GaugeMetricFamily("hobnob_engine_ready", "1 while runs go on.", int(ready))
        yield CounterMetricFamily(
            "hobnob_engine_restarts", "Deaths that were followed by another.", status.restarts
        )

    def _runs(self) -> Iterator[Metric]:
        tally = self._tally
        ends = CounterMetricFamily(
            "hobnob_runs", "Runs that ended in the engine, by reason.", labels=("reason",)
        )
        for reason, count in sorted(tally.ends.items()):
            ends.add_metric((reason,), count)
        yield ends
        yield CounterMetricFamily(
            "hobnob_prompt_tokens", "Prompts of ended runs.", tally.prompt_tokens
        )
        yield CounterMetricFamily(
            "hobnob_cached_prompt_tokens", "Of these, resident already.", tally.cached_tokens
        )
        yield CounterMetricFamily(
            "hobnob_prefill_tokens", "Prompt tokens computed.", tally.prefilled_tokens
        )
        yield CounterMetricFamily(
            "hobnob_decode_tokens", "Reply tokens computed.", tally.decoded_tokens
        )
        yield _histogram(
            "hobnob_time_to_first_token_seconds", "Per run, in the engine.", tally.first_token
        )
        yield _histogram(
            "hobnob_time_per_token_seconds", "Mean gap after the first, per run.", tally.token
        )
        yield _histogram("hobnob_step_decode_seconds", "Per step, inside.", tally.step_decode)
        yield _histogram("hobnob_step_overhead_seconds", "Per step, around.", tally.step_overhead)

    def _requests(self) -> Iterator[Metric]:
        answers = CounterMetricFamily(
            "hobnob_requests", "Answers begun.", labels=("method", "route", "status")
        )
        for labels, count in sorted(self._tally.requests.items()):
            answers.add_metric(labels, count)
        yield answers
        refusals = CounterMetricFamily(
            "hobnob_refusals", "Requests refused with 503, by code.", labels=("code",)
        )
        for code, count in sorted(self._tally.refusals.items()):
            refusals.add_metric((code,), count)
        yield refusals


def _engine(status: EngineStatus) -> Iterator[Metric]:
    for field, name, what in STATS:
        yield GaugeMetricFamily(name, what, getattr(status.stats, field))
    for field, name, what in STATS_COUNTED:
        yield CounterMetricFamily(name, what, getattr(status.stats, field))


def _histogram(name: str, what: str, found: Histogram) -> Metric:
    labels = (*(str(bound) for bound in found.bounds), "+Inf")
    buckets = [(label, n) for label, (_, n) in zip(labels, found.cumulative(), strict=True)]
    return HistogramMetricFamily(name, what, buckets, found.sum)
