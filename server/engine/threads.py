"""How many threads a step computes with, from what steps cost. Pure.

llama.cpp's threads meet at barriers many times a step: where another program takes one of the
cores, all of them wait for the thread that is not running. Fewer threads are then faster.
"""

from __future__ import annotations


class Threads:
    """Told what steps cost; `count` is the number for the next one."""

    def __init__(self, most: int, *, adapt: bool = True) -> None:
        self.most = most
        self.count = most
        self._adapt = adapt

    def observe(self, decodes: int, prefill_rows: int, seconds: float) -> None:
        """What a step with `count` threads cost."""
