"""Homes for tests of the real program; the server of each is stopped afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support_e2e import Home


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "home")
    yield home
    home.stop()


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """One whose server runs and has loaded its model: for tests that leave it so."""
    home = Home(tmp_path_factory.mktemp("running") / "home")
    home.run("ask", "-o", "max_tokens", "1", "hi")
    yield home
    home.stop()
