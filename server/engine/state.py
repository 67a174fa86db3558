"""What is known of the engine from outside, and what the server's core needs of it.

Values and protocols only. `handle.Engine` fulfils `EnginePort`; tests and simulations bring a
scripted one. All methods and callbacks belong to the event loop's thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from hobnob.server.engine.protocol import (
    ChatMessage,
    Ready,
    Stats,
    Stepped,
    Submit,
    TextReady,
)
from hobnob.server.wire import Failure

CHEAP_EXACT_ROWS = 48


class EngineState(Enum):
    LOADING = "loading"  # first start: the weights are being read; runs wait
    READY = "ready"  # runs go on
    RESTARTING = "restarting"  # it died; a new process is starting or loading; runs wait
    FAILED = "failed"  # it cannot load; `EngineStatus.failure` says why; nothing will run


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """A snapshot; a new one replaces it on every change, so reading it costs nothing."""

    state: EngineState = EngineState.LOADING
    pid: int | None = None
    restarts: int = 0
    load_done: float = 0.0  # 0..1
    text: TextReady | None = None  # of this or an earlier life: the file is the same
    ready: Ready | None = None  # of this or an earlier life; `state` tells whether it holds now
    n_ctx_limit: int = 0  # what the configuration allows a window to be; 0: says nothing
    stats: Stats = field(default_factory=Stats)
    failure: Failure | None = None  # set when FAILED
    last_death: str | None = None  # one sentence: why the last process ended

    @property
    def exact_by_default(self) -> bool:
        """Whether runs that do not say are exact: where bit-equal steps cost under a fifth of the
        prefill speed. On CPUs steps of 63 rows do (docs/decisions/0004); a GPU needs large ones."""
        ready = self.ready
        return ready is not None and ready.device == "cpu" and ready.exact_rows >= CHEAP_EXACT_ROWS

    def exact(self, asked: bool | None) -> bool | None:
        """Whether a run that asks so (None: does not say) is computed in bit-equal steps. None:
        the weights must be loaded first."""
        if asked is False:
            return False
        if self.ready is None:
            return None
        return self.ready.exact_rows > 0 and (asked or self.exact_by_default)


class Listener(Protocol):
    """Told of the engine's news, in the order in which they happened."""

    def on_stepped(self, stepped: Stepped) -> None: ...

    def on_death(self, reason: str, *, reading: bool) -> None:
        """The process is gone; nothing that was submitted to it is known any more. `reading`: it
        had a text to read, and may have died of that rather than of a run."""

    def on_status(self, status: EngineStatus) -> None:
        """State, progress or readiness changed (statistics alone do not count)."""


class EnginePort(Protocol):
    """The engine as the server's core sees it."""

    @property
    def status(self) -> EngineStatus: ...

    def listen(self, listener: Listener) -> None: ...

    async def text(self) -> TextReady:
        """Waits until the vocabulary is loaded. Raises ModelUnavailable or ModelLoading."""

    async def render(
        self, messages: list[ChatMessage], *, add_generation_prompt: bool = True
    ) -> list[int]:
        """Token ids of the messages through the chat template. Survives a restart."""

    async def tokenize(self, text: str, *, inside: bool = False) -> list[int]:
        """Token ids of plain text; `inside`: text that goes on from other text."""

    async def resident(self, prompt: list[int], *, owner: str, exact: bool) -> int | None:
        """Leading tokens that a run would not compute; None where that is not known now."""

    def submit(self, submit: Submit) -> None:
        """Only while READY."""

    def cancel(self, run: str) -> None:
        """No effect on a run that is not there."""

    async def forget(self, group: str) -> None:
        """Drops what was kept of a conversation's runs, from the disk too when this returns."""
