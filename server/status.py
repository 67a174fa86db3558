"""What `hobnob status` shows, and what anyone may know: read from published snapshots.

Never asks the engine anything, so it answers at once whatever the engine does; what memory the
processes take is asked of the system. The names are a contract (docs/scripting.md).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import hobnob
from hobnob.server import wire
from hobnob.server.engine import machine
from hobnob.server.engine.state import EnginePort, EngineStatus
from hobnob.server.lifecycle import Lifecycle
from hobnob.server.runs import Runs
from hobnob.server.served import ServedModel


@dataclass(frozen=True, slots=True)
class Identity:
    """What does not change while the server lives."""

    url: str
    instance: str
    on_demand: bool
    model: ServedModel
    starter: bool  # the bundled model answers, because no other was chosen or found
    explain: Sequence[str]  # how capacity came about, one line per number


class StatusReport:
    def __init__(
        self, identity: Identity, engine: EnginePort, runs: Runs, lifecycle: Lifecycle
    ) -> None:
        self._identity = identity
        self._engine = engine
        self._runs = runs
        self._lifecycle = lifecycle

    @property
    def engine_status(self) -> EngineStatus:
        return self._engine.status

    def health(self) -> dict[str, Any]:
        """Without a key anyone may read this: no model, no path, no version."""
        state = "stopping" if self._lifecycle.stopping else self._engine.status.state.value
        return {"state": state, "wire": wire.WIRE_VERSION, "instance": self._identity.instance}

    def snapshot(self) -> dict[str, Any]:
        status = self._engine.status
        stats = status.stats
        return {
            "server": self._server(),
            "engine": _engine(status),
            "model": self._model(status),
            "sequences": {
                "running": stats.running,
                # Those that wait for the engine itself are not in its statistics.
                "waiting": max(stats.waiting, self._runs.waiting_count),
                "max": status.ready.n_seq_max if status.ready is not None else 0,
            },
            "cells": {
                "used": stats.cells_used,
                "cached": stats.cells_cached,
                "total": stats.cells_total or (status.ready.n_cells if status.ready else 0),
            },
            "throughput": {
                "prefill_tps": round(stats.prefill_tps, 2),
                "decode_tps": round(stats.decode_tps, 2),
            },
            "step": {
                "count": stats.steps,
                "decode_s": stats.decode_s,
                "overhead_s": stats.overhead_s,
            },
            "speculation": {"drafted": stats.drafted, "accepted": stats.accepted},
            "snapshots": {
                "ram_bytes": stats.snapshot_ram_bytes,
                "disk_bytes": stats.snapshot_disk_bytes,
                "written_bytes": stats.snapshot_written_bytes,
                "restored_tokens": stats.restored_tokens,
                "ram_max": stats.snapshot_ram_max,
                "disk_max": stats.snapshot_disk_max,
            },
            "memory": {
                "server_bytes": machine.memory_of(os.getpid()),
                "engine_bytes": machine.memory_of(status.pid) if status.pid else None,
                "available_bytes": machine.memory_available(),
            },
            "video": {"free_bytes": stats.video_free, "total_bytes": stats.video_total}
            if stats.video_total
            else None,
            "runs": {
                "live": self._runs.live_count,
                "waiting": self._runs.waiting_count,
                "saving": self._runs.saving,
            },
            "capacity": [*self._identity.explain, *(status.ready.explain if status.ready else [])],
        }

    def _server(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "url": self._identity.url,
            "version": hobnob.__version__,
            "wire": wire.WIRE_VERSION,
            "instance": self._identity.instance,
            "uptime_s": round(self._lifecycle.uptime_s, 3),
            "on_demand": self._identity.on_demand,
            "stopping": self._lifecycle.stopping,
        }

    def _model(self, status: EngineStatus) -> dict[str, Any]:
        ready, text = status.ready, status.text
        return {
            "id": self._identity.model.id,
            "path": self._identity.model.path,
            "name": text.name if text is not None else None,
            "n_ctx": ready.n_ctx if ready is not None else None,
            "n_ctx_train": text.n_ctx_train if text is not None else None,
            "device": ready.device if ready is not None else None,
            "gpu_layers": ready.gpu_layers if ready is not None else None,
            "threads": ready.n_threads if ready is not None else None,
            "starter": self._identity.starter,
        }


def _engine(status: EngineStatus) -> dict[str, Any]:
    failure = status.failure
    return {
        "pid": status.pid,
        "state": status.state.value,
        "restarts": status.restarts,
        "load_done": round(status.load_done, 4),
        "failure": None if failure is None else {"code": failure.code, "message": failure.message},
        "last_death": status.last_death,
    }
