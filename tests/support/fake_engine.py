"""A scripted engine with the face of `handle.Engine`: no process, no clock, driven by the test.

Every submitted run writes the same script, one piece a step; token i of a reply is
FIRST_TOKEN + i, so ids and texts can be told from each other. A prompt is one token per
character of each message (role mark included), so that counts are easy to reckon.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec

from hobnob.server.engine.protocol import (
    ChatMessage,
    Finish,
    Output,
    Place,
    PrefillProgress,
    Ready,
    Stepped,
    Submit,
    TextReady,
)
from hobnob.server.engine.state import EngineState, EngineStatus, Listener
from hobnob.server.errors import InvalidRequest, ModelUnavailable, ServerStopping
from hobnob.server.wire import Failure

FIRST_TOKEN = 1000
N_VOCAB = 5000

TEXT_READY = TextReady("Fake", "vocab-1", "template-1", True, N_VOCAB, 4096)
READY = Ready(4096, 8192, 8, 512, 2, 0, "cpu", 63)


@dataclass(slots=True)
class FakeRun:
    submit: Submit
    at: int  # pieces written
    told_replay: bool = False
    cancelled: bool = False
    outputs: list[Output] = field(default_factory=list)


class FakeEngine:
    """Ready at once unless `loading`; `step()` writes one piece of every run."""

    def __init__(
        self,
        script: Sequence[str] = ("Hello", ", ", "world", "!"),
        *,
        loading: bool = False,
        n_ctx: int = 4096,
        exact_rows: int = 63,
    ):
        self.script = list(script)
        self.runs: dict[str, FakeRun] = {}  # in the engine now
        self.submitted: list[Submit] = []  # ever
        self.cancelled: list[str] = []  # ever
        self.forgotten: list[str] = []  # conversations
        self.rendered: list[list[ChatMessage]] = []  # ever
        self.template_error: str | None = None
        self.in_cells = 0  # leading tokens of any prompt
        self.looked_up: list[tuple[list[int], str, bool]] = []  # ever
        self.closed = False
        self._ready = msgspec.structs.replace(READY, n_ctx=n_ctx, exact_rows=exact_rows)
        text = msgspec.structs.replace(TEXT_READY, n_ctx_train=n_ctx)
        self._status = EngineStatus(
            EngineState.LOADING if loading else EngineState.READY,
            pid=1,
            text=text,
            ready=None if loading else self._ready,
        )
        self._listeners: list[Listener] = []

    # ---- the face of handle.Engine

    @property
    def status(self) -> EngineStatus:
        return self._status

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    async def start(self) -> None:
        return None

    async def close(self) -> None:
        self.closed = True

    async def text(self) -> TextReady:
        self._refuse()
        assert self._status.text is not None
        return self._status.text

    async def render(
        self, messages: list[ChatMessage], *, add_generation_prompt: bool = True
    ) -> list[int]:
        self._refuse()
        await asyncio.sleep(0)
        self.rendered.append(messages)
        if self.template_error is not None:
            raise InvalidRequest(self.template_error, param="messages")
        return prompt_of(messages)

    async def tokenize(self, text: str, *, inside: bool = False) -> list[int]:
        self._refuse()
        return [ord(character) % N_VOCAB for character in text]

    async def resident(self, prompt: list[int], *, owner: str, exact: bool) -> int | None:
        if self._status.state is not EngineState.READY:
            return None
        self.looked_up.append((prompt, owner, exact))
        return min(self.in_cells, len(prompt) - 1)

    def submit(self, submit: Submit) -> None:
        assert self._status.state is EngineState.READY
        self.submitted.append(submit)
        self.runs[submit.run] = FakeRun(submit, at=len(submit.emitted))

    def cancel(self, run: str) -> None:
        self.cancelled.append(run)
        if run in self.runs:
            self.runs[run].cancelled = True

    async def forget(self, group: str) -> None:
        self.forgotten.append(group)

    # ---- what the test makes it do

    def step(self, *runs: str) -> None:
        """One step in which the given runs (or all) get one piece, or their end."""
        chosen = [self.runs[run] for run in runs] if runs else list(self.runs.values())
        self.report(*(advance(run, self.script) for run in chosen))

    def finish_all(self) -> None:
        """Steps until no run is left."""
        while self.runs:
            self.step()

    async def autoplay(self) -> None:
        """Steps whenever there is work, until cancelled: for tests of the edge."""
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                if self.runs and self._status.state is EngineState.READY:
                    self.step()
                await asyncio.sleep(0)

    def report(self, *outputs: Output) -> None:
        """Any outputs, exactly as given."""
        for output in outputs:
            if output.finish is not None:
                self.runs.pop(output.run, None)
        self._stepped(Stepped(outputs=list(outputs)))

    def queue(self, run: str, position: int, eta_s: float | None = None) -> None:
        self._stepped(Stepped(places=[Place(run, position, eta_s)]))

    def prefill(self, run: str, done: int, total: int, cached: int = 0) -> None:
        self._stepped(Stepped(prefills=[PrefillProgress(run, done, total, cached)]))

    def load(self, done: float) -> None:
        self._become(replace(self._status, load_done=done))

    def get_ready(self, ready: Ready | None = None) -> None:
        self._ready = ready or self._ready
        self._become(
            replace(self._status, state=EngineState.READY, ready=self._ready, load_done=1.0, pid=1)
        )

    def become_text(self, text: TextReady) -> None:
        """Another file with another vocabulary."""
        self._status = replace(self._status, text=text)

    def die(
        self, reason: str = "The engine was ended by SIGKILL.", *, reading: bool = False
    ) -> None:
        self.runs.clear()
        status = self._status
        self._status = replace(
            status,
            state=EngineState.RESTARTING,
            pid=None,
            restarts=status.restarts + 1,
            last_death=reason,
        )
        for listener in self._listeners:
            listener.on_death(reason, reading=reading)
        self._become(self._status)

    def die_and_restart(self, reason: str = "The engine was ended by SIGKILL.") -> None:
        self.die(reason)
        self.get_ready()

    def fail(self, code: str = "model_unavailable", message: str = "The file is cut off.") -> None:
        self._become(
            replace(self._status, state=EngineState.FAILED, failure=Failure(code, message))
        )

    # ---- inside

    def _refuse(self) -> None:
        if self.closed:
            raise ServerStopping("The server is stopping.")
        if self._status.state is EngineState.FAILED:
            assert self._status.failure is not None
            raise ModelUnavailable(self._status.failure.message)

    def _stepped(self, stepped: Stepped) -> None:
        for listener in self._listeners:
            listener.on_stepped(stepped)

    def _become(self, status: EngineStatus) -> None:
        self._status = status
        for listener in self._listeners:
            listener.on_status(status)


def advance(run: FakeRun, script: Sequence[str]) -> Output:
    """One step of one run: its next piece, or its end."""
    submit = run.submit
    replayed = None
    if submit.emitted and not run.told_replay:
        replayed = "".join(script[: len(submit.emitted)])
        run.told_replay = True
    if run.cancelled:
        return Output(submit.run, replayed=replayed, finish=_finish(run, "cancelled"))
    limit = submit.sampling.max_tokens or len(script) + 1
    if run.at >= len(script):
        return Output(submit.run, replayed=replayed, finish=_finish(run, "end_turn"))
    piece, token = script[run.at], FIRST_TOKEN + run.at
    run.at += 1
    finish = _finish(run, "max_tokens") if run.at >= limit else None
    return Output(submit.run, [token], piece, replayed, finish=finish)


def _finish(run: FakeRun, reason: str) -> Finish:
    return Finish(
        reason,
        prompt_tokens=len(run.submit.prompt),
        completion_tokens=run.at,
        decoded=run.at - len(run.submit.emitted),
        prefill_s=0.5,
        first_decode_s=0.25,
    )


def prompt_of(messages: list[ChatMessage]) -> list[int]:
    """One token for the role and one for each character."""
    return [ord(c) % N_VOCAB for message in messages for c in message.role[0] + message.text]
