"""What steps did and cost: kept for a while, and told now and then. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

from msgspec.structs import replace

from hobnob.server.engine.protocol import Record

KEPT = 1024
"""Steps whose records are kept."""

TELL_SECONDS = 0.25
"""Records are told at most this often while there is work; with the last frame before a rest."""

_FADE_SECONDS = 5.0  # of busy time, after which a rate has mostly forgotten


class _Rate:
    """Tokens per second over the last busy seconds."""

    def __init__(self) -> None:
        self._tokens = self._seconds = 0.0

    def add(self, tokens: int, seconds: float) -> None:
        fade = max(0.0, 1.0 - seconds / _FADE_SECONDS)
        self._tokens = self._tokens * fade + tokens
        self._seconds = self._seconds * fade + seconds

    def __float__(self) -> float:
        return self._tokens / self._seconds if self._seconds else 0.0


class Records:
    """The last steps', the newest last."""

    def __init__(self, now: float) -> None:
        self._ring: deque[Record] = deque(maxlen=KEPT)
        self._open: Record | None = None
        self.count = 0
        """Steps so far."""
        self._untold = 0  # of the newest
        self._told_at = now
        self._prefill, self._decode = _Rate(), _Rate()

    def __len__(self) -> int:
        return len(self._ring)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._ring)

    def __getitem__(self, n: int) -> Record:
        return self._ring[n]

    @property
    def prefill_tps(self) -> float:
        return float(self._prefill)

    @property
    def decode_tps(self) -> float:
        return float(self._decode)

    def open(self, record: Record) -> None:
        """A step's, without its overhead: what is done until it is closed belongs to that."""
        self._open = record
        self.count += 1

    def close(self, now: float) -> None:
        """The next step begins, or a wait. No effect where none is open."""
        if self._open is None:
            return
        record, took = self._open, now - self._open.at
        record = replace(record, overhead_s=max(0.0, took - record.decode_s))
        self._open = None
        self._ring.append(record)
        self._untold = min(self._untold + 1, KEPT)
        if record.prefill_rows:
            self._prefill.add(record.prefill_rows, took)
        if record.decodes + record.accepted:
            self._decode.add(record.decodes + record.accepted, took)

    def due(self, now: float, *, resting: bool) -> list[Record]:
        """Those to be told with a frame that is sent now: each is told once."""
        if now - self._told_at < TELL_SECONDS and not resting:
            return []
        told, self._untold, self._told_at = self._untold, 0, now
        return list(islice(self._ring, len(self._ring) - told, None))
