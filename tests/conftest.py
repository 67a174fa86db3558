"""Fixtures that every test may use, and the path to the shared fakes in tests/support."""

from __future__ import annotations

import gc
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from fake_server import FakeServer
    from support_cli import Cli

sys.path.insert(0, str(Path(__file__).parent / "support"))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that llama.cpp computes in no time; see tests/support/tiny_model.py."""
    from tiny_model import write_tiny  # in tests/support, which is on the path from here on

    return write_tiny(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    """The scripted server that clients are tested with."""
    from fake_server import FakeServer

    fake = FakeServer()
    async with fake.running():
        yield fake


@pytest.fixture
def hobnob(server: FakeServer, tmp_path: Path) -> Cli:
    """The real command, which asks it."""
    from support_cli import Cli

    return Cli(tmp_path / "home", server.url)


@pytest.fixture
def hobnob_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty HOBNOB_HOME, so that no test touches the user's files or meets their server."""
    home = tmp_path / "hobnob-home"
    monkeypatch.setenv("HOBNOB_HOME", str(home))
    for name in ("HOBNOB_URL", "HOBNOB_KEY", "HOBNOB_MODEL"):
        monkeypatch.delenv(name, raising=False)
    yield home


def pytest_configure() -> None:
    """No example fails because the machine was busy: speed is measured in bench/."""
    settings.register_profile("hobnob", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("hobnob")


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: without going through it again and again
    a test of the app takes a fifth less."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 10)


def pytest_unconfigure() -> None:
    """llama_cpp opens /dev/null twice when it is imported, and leaves that to the interpreter's
    end, which in a run that was cut short (-x) complains of it."""
    opened = sys.modules.get("llama_cpp._utils")
    if opened is not None:
        opened.outnull_file.close()
        opened.errnull_file.close()
