"""In the engine's place when there is no model to load: the server still has the history."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hobnob.server.engine import snapshot_files
from hobnob.server.engine.protocol import ChatMessage, Submit, TextReady
from hobnob.server.engine.state import EngineState, EngineStatus, Listener
from hobnob.server.errors import ModelUnavailable
from hobnob.server.wire import Failure


class AbsentEngine:
    """Failed from the start, with a reason; takes no work."""

    def __init__(self, failure: Failure, snapshots: Path) -> None:
        self._failure = failure
        self._snapshots = snapshots
        self._status = EngineStatus(state=EngineState.FAILED, failure=failure)

    @property
    def status(self) -> EngineStatus:
        return self._status

    async def start(self) -> None:
        """Nothing to start."""

    async def close(self) -> None:
        """Nothing to close."""

    def listen(self, listener: Listener) -> None:
        """There will be no news."""

    async def text(self) -> TextReady:
        raise ModelUnavailable(self._failure.message)

    async def render(
        self, messages: list[ChatMessage], *, add_generation_prompt: bool = True
    ) -> list[int]:
        raise ModelUnavailable(self._failure.message)

    async def tokenize(self, text: str, *, inside: bool = False) -> list[int]:
        raise ModelUnavailable(self._failure.message)

    async def resident(self, prompt: list[int], *, owner: str, exact: bool) -> int | None:
        return None

    def submit(self, submit: Submit) -> None:
        raise AssertionError("a failed engine takes no runs")

    def cancel(self, run: str) -> None:
        """No run is ever in it."""

    async def forget(self, group: str) -> None:
        """What an engine of an earlier server kept."""
        tag = snapshot_files.tag_of(group)
        await asyncio.to_thread(snapshot_files.forget, self._snapshots, tag)
