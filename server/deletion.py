"""Deleting a conversation with all that there is of it: runs, rows, index, log, snapshots."""

from __future__ import annotations

from hobnob.server.runs import Runs
from hobnob.store.store import Store


async def delete(store: Store, runs: Runs, owner: str, id: str) -> None:
    """Raises NotFound. What its runs append meanwhile is dropped."""
    await runs.cancel_conversation(owner, id)
    await store.delete_conversation(owner, id)
    # A turn that was accepted in between is deleted too; now its run learns of it.
    await runs.cancel_conversation(owner, id)
