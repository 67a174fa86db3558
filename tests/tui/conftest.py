"""The scripted server and the real command that asks it, for all tests of the clients."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fake_server import FakeServer
from support_cli import Cli


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    fake = FakeServer()
    async with fake.running():
        yield fake


@pytest.fixture
def hobnob(server: FakeServer, tmp_path: Path) -> Cli:
    return Cli(tmp_path / "home", server.url)
