"""How much video memory is free, asked of the driver only now and then."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hobnob.server.engine.devices import Device

PAUSE_SECONDS = 1.0


class VideoMemory:
    """Free and all bytes of the GPUs, as they were at most a second ago."""

    def __init__(self, gpus: Callable[[], Sequence[Device]], clock: Callable[[], float]) -> None:
        self._gpus = gpus
        self._clock = clock
        self._found = (0, 0)
        self._looked_at: float | None = None

    def __call__(self) -> tuple[int, int]:
        now = self._clock()
        if self._looked_at is None or now - self._looked_at >= PAUSE_SECONDS:
            self._looked_at, gpus = now, self._gpus()
            self._found = sum(g.free_bytes for g in gpus), sum(g.total_bytes for g in gpus)
        return self._found
