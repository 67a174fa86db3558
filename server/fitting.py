"""Whether a model would fit into the memory that is free now: an estimate for people.

Reads the files' headers, remembers what they say while a file stays the same, and loads nothing.
The engine makes a choice of its own when it loads a model.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hobnob.server.engine import fit, gguf, machine
from hobnob.server.engine.fit import LEAST_CELLS, Need
from hobnob.server.engine.state import EngineStatus

VALUE_BYTES = 2.0  # of a key or a value, f16
STEP_ROWS = 512
UNTOLD_SHARE = 1.15  # of the files' size, where the header does not tell what a model takes
TIGHT_SHARE = 0.85  # of the free memory; beyond it other programs will feel it
REMEMBERED = 1000
GB = 10**9


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes that are free now."""

    ram: int
    video: int = 0
    video_total: int = 0  # 0: no GPU in use

    @classmethod
    def of(cls, status: EngineStatus, loaded_bytes: int = 0) -> Room:
        """With what the model that is loaded would give back of the video memory."""
        stats, ready = status.stats, status.ready
        ours = loaded_bytes if ready is not None and ready.gpu_layers else 0
        video = min(stats.video_total, stats.video_free + ours)
        return cls(machine.memory_available(), video, stats.video_total)


@dataclass(frozen=True, slots=True)
class Fitting:
    verdict: str  # fits | tight | part | too_large
    words: str
    need_bytes: int


def judge(size: int, need: Need | None, room: Room) -> Fitting:
    """A model whose files have `size` bytes."""
    if room.video_total and need is not None:
        return _on_gpu(need, room)
    if need is None:
        taken = int(size * UNTOLD_SHARE)
    else:
        taken = size + LEAST_CELLS * need.cell * len(need.layers) + STEP_ROWS * need.row
    words = f"needs about {_gb(taken)} of {_gb(room.ram)} free memory"
    if taken > room.ram:
        return Fitting("too_large", words, taken)
    if taken > TIGHT_SHARE * room.ram:
        return Fitting("tight", f"{words}, which leaves little", taken)
    return Fitting("fits", words, taken)


def _on_gpu(need: Need, room: Room) -> Fitting:
    chosen = fit.choose(need, [room.video], cells=0, n_ubatch=STEP_ROWS)
    layers = [need.output, *(layer + LEAST_CELLS * need.cell for layer in reversed(need.layers))]
    taken, rest = sum(layers), sum(layers[chosen.n_layers :])
    if not rest:
        words = f"needs about {_gb(taken)} of {_gb(room.video)} free video memory"
        return Fitting("fits", words, taken)
    words = (
        f"{chosen.n_layers} of {len(layers)} layers on the GPU, about {_gb(rest)} "
        f"in {_gb(room.ram)} of free memory"
    )
    return Fitting("part" if rest <= room.ram else "too_large", words, taken)


class Fittings:
    """Used from any thread, one call at a time."""

    def __init__(self) -> None:
        self._needs: OrderedDict[tuple[str, int, int], Need | None] = OrderedDict()

    def judged(self, models: list[dict[str, Any]], status: EngineStatus) -> list[dict[str, Any]]:
        """The models as JSON values, each with its `fit`; null for one that cannot be loaded."""
        loaded = sum(one.get("size") or 0 for one in models if one.get("loaded"))
        room = Room.of(status, loaded)
        return [{**one, "fit": self._fit(one, room)} for one in models]

    def _fit(self, model: dict[str, Any], room: Room) -> dict[str, Any] | None:
        if model.get("problem"):
            return None
        try:
            found = judge(int(model["size"]), self._need(Path(model["path"])), room)
        except (KeyError, OSError, gguf.GGUFError):
            return None
        return {"verdict": found.verdict, "words": found.words, "need_bytes": found.need_bytes}

    def _need(self, path: Path) -> Need | None:
        found = path.stat()
        key = (str(path), found.st_mtime_ns, found.st_size)
        if key not in self._needs:
            self._needs[key] = Need.of(gguf.read(path), VALUE_BYTES)
            if len(self._needs) > REMEMBERED:
                self._needs.popitem(last=False)
        return self._needs[key]


def _gb(number: int) -> str:
    return f"{number / GB:.1f} GB"
