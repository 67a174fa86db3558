"""A real store whose disk the test can fill, slow down or stop."""

from __future__ import annotations

import asyncio

from hobnob.store.store import Store
from hobnob.store.values import Append, StoreError, WriteFailed


class FaultyStore(Store):
    """`broken`: appends raise it. `gate`: appends wait until it is set. All appends are counted."""

    broken: StoreError | None = None
    gate: asyncio.Event | None = None
    batches: list[list[Append]]

    async def append(self, batch: list[Append]) -> list[str]:  # type: ignore[override]
        if not hasattr(self, "batches"):
            self.batches = []
        if self.gate is not None:
            await self.gate.wait()
        if self.broken is not None:
            raise self.broken
        passed_over = await super().append(batch)
        self.batches.append(list(batch))
        return passed_over

    def fill_disk(self) -> None:
        self.broken = WriteFailed("the disk is full")

    def free_disk(self) -> None:
        self.broken = None
