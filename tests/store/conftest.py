from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support_turns import SettableClock

from hobnob.store.store import Store


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "hobnob.db"


@pytest.fixture
async def store(path: Path, clock: SettableClock) -> AsyncIterator[Store]:
    """An open store, found sound after the test."""
    store = await Store.open(path, clock=clock)
    yield store
    assert await store.check() == []
    await store.close()
