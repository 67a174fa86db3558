"""The engine process as the server holds it: started, watched, restarted, asked, and ended.

Publishes a snapshot (`status`) that costs nothing to read. Owns no runs: what was submitted to a
process that died is the listener's to submit again. Requests to the text thread survive a death.
Event loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from msgspec import structs

from hobnob.server.engine import snapshot_files
from hobnob.server.engine.lookups import Lookups
from hobnob.server.engine.process import BadFrame, EngineProcess
from hobnob.server.engine.protocol import (
    Cancel,
    ChatMessage,
    Command,
    Configure,
    Forget,
    Found,
    LoadFailed,
    LoadProgress,
    Lookup,
    Ready,
    Render,
    Rendered,
    Report,
    Shutdown,
    Stats,
    Stepped,
    Submit,
    TextReady,
    Tokenize,
)
from hobnob.server.engine.questions import Questions
from hobnob.server.engine.state import EngineState, EngineStatus, Listener
from hobnob.server.errors import ModelLoading, ModelUnavailable, ServerStopping
from hobnob.server.wire import Failure

ANSWER_RETRY_SECONDS = 5

_T = TypeVar("_T")

Spawn = Callable[[], Awaitable[EngineProcess]]
"""Starts a process. Raises OSError where none can be started."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Bounds of the watch, in seconds. A step of a large model on a CPU can take minutes."""

    step_s: float = 120.0  # between frames while runs are in the engine
    load_s: float = 900.0  # between signs of progress while it loads
    answer_s: float = 60.0  # for a question to the text thread
    close_s: float = 2.2  # between Shutdown and the kill: it saves what it can
    end_s: float = 5.0  # between the end of its frames and the kill
    first_backoff_s: float = 1.0  # before the second restart in a row; the first is at once
    max_backoff_s: float = 30.0
    loads: int = 5  # deaths in a row before the weights were loaded; then it has failed


class Engine:
    def __init__(self, configure: Configure, spawn: Spawn, *, patience: Patience | None = None):
        self._configure = configure
        self._spawn = spawn
        self._patience = patience or Patience()
        limits = [limit for limit in (configure.n_ctx, configure.n_cells) if limit > 0]
        self._status = EngineStatus(n_ctx_limit=min(limits, default=0))
        self._listeners: list[Listener] = []
        self._questions = Questions()
        self._lookups = Lookups()
        self._text_known = asyncio.Event()
        self._process: EngineProcess | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._forgotten: list[str] = []  # groups, in this life
        self._in_engine: set[str] = set()  # submitted and not finished, in this life
        self._alive_at = 0.0  # when it last gave a sign of progress
        self._answered_at = 0.0
        self._worked = False  # this life has drawn a token
        self._closing = False

    # ---- life

    async def start(self) -> None:
        """Begins to start it and returns; `status` and the listeners tell how it goes."""
        assert self._supervisor is None, "the engine is started once"
        self._supervisor = asyncio.create_task(self._supervise(), name="engine supervisor")
        self._supervisor.add_done_callback(self._supervised)

    async def close(self) -> None:
        """Ends the process within three seconds. Safe to call twice, and before `start`."""
        self._closing = True
        self._questions.refuse(ServerStopping("The server is stopping."))
        self._text_known.set()
        if self._process is not None:
            self._process.send(Shutdown())
            await self._process.wait(self._patience.close_s)
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.wait([self._supervisor])
        await self._remove_files(self._forgotten)

    @property
    def status(self) -> EngineStatus:
        return self._status

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    # ---- requests

    async def text(self) -> TextReady:
        """Waits until the vocabulary is loaded. Raises ModelUnavailable or ModelLoading."""
        if self._status.text is None:
            await self._bounded(self._text_known.wait())
        if self._status.text is None:
            self._refuse_if_over()
        assert self._status.text is not None, "known, or refused"
        return self._status.text

    async def render(
        self, messages: list[ChatMessage], *, add_generation_prompt: bool = True
    ) -> list[int]:
        """Token ids through the chat template. Raises InvalidRequest with what that says."""
        self._refuse_if_over()
        question = Render(self._questions.next_id(), messages, add_generation_prompt)
        return await self._bounded(self._questions.put(question))

    async def tokenize(self, text: str, *, inside: bool = False) -> list[int]:
        self._refuse_if_over()
        question = Tokenize(self._questions.next_id(), text, inside)
        return await self._bounded(self._questions.put(question))

    async def resident(self, prompt: list[int], *, owner: str, exact: bool) -> int | None:
        """Leading tokens that a run would not compute; None where that is not known now."""
        if self._closing or self._status.state is not EngineState.READY:
            return None
        return await self._lookups.put(lambda id: self._send(Lookup(id, owner, prompt, exact)))

    def submit(self, submit: Submit) -> None:
        assert self._status.state is EngineState.READY, "only a ready engine takes runs"
        if not self._in_engine:
            self._alive_at = _now()  # it was idle: silence before now means nothing
        self._in_engine.add(submit.run)
        self._send(submit)

    def cancel(self, run: str) -> None:
        if run in self._in_engine:
            self._send(Cancel(run))

    async def forget(self, group: str) -> None:
        """The files are removed here too: the engine may be loading, or dead."""
        self._forgotten.append(group)
        self._send(Forget(group))
        await self._remove_files([group])

    async def _remove_files(self, groups: list[str]) -> None:
        folder = Path(self._configure.snapshot_folder)
        if not self._configure.snapshot_folder:
            return
        for group in groups:
            await asyncio.to_thread(snapshot_files.forget, folder, snapshot_files.tag_of(group))

    # ---- the supervisor's task

    async def _supervise(self) -> None:
        """One life after another until it is closed or has failed for good."""
        idle_lives = 0  # in a row that drew no token
        failed_loads = 0  # in a row that did not get ready
        while not self._closing:
            self._worked = False
            reason = await self._live()
            written, self._forgotten = self._forgotten, []
            await self._remove_files(written)  # what it wrote before it was told
            if self._closing or self._status.state is EngineState.FAILED:
                return
            failed_loads = 0 if self._status.state is EngineState.READY else failed_loads + 1
            idle_lives = 0 if self._worked else idle_lives + 1
            for_good = failed_loads >= self._patience.loads
            self._buried(reason, for_good=for_good)
            if for_good:
                return
            await asyncio.sleep(self._backoff_s(idle_lives))

    async def _live(self) -> str:
        """From the start of one process to its death; why it died."""
        try:
            process = await self._spawn()
        except OSError as error:
            return f"The engine process cannot be started: {error.strerror or error}."
        self._process = process
        self._alive_at = _now()
        self._publish(pid=process.pid)
        process.send(self._configure)
        watch = asyncio.create_task(self._watch(process), name="engine watch")
        try:
            async with aclosing(process.reports()) as reports:
                async for report in reports:
                    self._heard(report)
                    if self._status.state is EngineState.FAILED:
                        process.send(Shutdown())
                        self._publish(pid=None)
                        break
        except BadFrame as error:
            process.kill(f"it sent what is not a report ({error})")
        except asyncio.CancelledError:
            process.kill("the server stopped")
            raise
        finally:
            watch.cancel()
        return await process.wait(self._patience.end_s)

    def _supervised(self, task: asyncio.Task[None]) -> None:
        """A fault of ours in the supervisor must not leave runs waiting for ever."""
        if task.cancelled() or (error := task.exception()) is None:
            return
        if self._process is not None:
            self._process.kill("the server lost its way")
        failure = Failure("internal", "The server cannot speak to the engine any more; restart it.")
        self._give_up(failure)
        self._publish(state=EngineState.FAILED, failure=failure, pid=None)
        asyncio.get_running_loop().call_exception_handler(
            {"message": "the engine's supervisor has failed", "exception": error, "task": task}
        )

    async def _watch(self, process: EngineProcess) -> None:
        """Kills a process that gives no sign of life while there is work for it."""
        # Whatever begins meanwhile is given at least as long, so no limit is passed in sleep.
        shortest = min(self._patience.step_s, self._patience.load_s)
        while True:
            limit = self._limit_s()
            silent = _now() - self._alive_at
            if limit is not None and silent >= limit:
                process.kill(f"it did not react for {silent:.0f} s")
                return
            left = shortest if limit is None else min(limit - silent, shortest)
            await asyncio.sleep(max(left, 0.01))

    def _limit_s(self) -> float | None:
        """How long it may be silent now; None while it has nothing to do."""
        if self._status.state is EngineState.READY:
            return self._patience.step_s if self._in_engine else None
        return self._patience.load_s

    def _buried(self, reason: str, *, for_good: bool) -> None:
        """Takes note of a death and tells the listeners."""
        self._process = None
        self._in_engine.clear()
        failure = Failure("model_unavailable", reason) if for_good else None
        self._status = replace(
            self._status,
            state=EngineState.FAILED if for_good else EngineState.RESTARTING,
            pid=None,
            restarts=self._status.restarts + (0 if for_good else 1),
            load_done=0.0,
            stats=Stats(),
            failure=failure,
            last_death=reason,
        )
        reading = self._questions.died(reason)
        self._lookups.died()
        for listener in self._listeners:
            listener.on_death(reason, reading=reading)
        if failure is not None:
            self._give_up(failure)
        self._tell()

    def _backoff_s(self, idle_lives: int) -> float:
        """At once the first time, so that a reply goes on within seconds; then ever more slowly."""
        if idle_lives <= 1:
            return 0.0
        seconds = self._patience.first_backoff_s * 2.0 ** min(idle_lives - 2, 16)
        return min(seconds, self._patience.max_backoff_s)

    # ---- what the process says

    def _heard(self, report: Report) -> None:
        match report:
            case Rendered():
                self._answered_at = _now()
                self._questions.answered(report)
            case Found():
                self._lookups.answered(report)
            case Stepped():
                self._stepped(report)
            case LoadProgress():
                self._alive_at = _now()
                self._publish(load_done=report.done)
            case TextReady():
                self._alive_at = _now()
                self._publish(text=report)
                self._text_known.set()
                self._questions.can_ask(self._send)
            case Ready():
                self._alive_at = _now()
                if report.measured is not None:  # a reply that waits for the next one waits less
                    self._configure = structs.replace(self._configure, measured=report.measured)
                self._publish(state=EngineState.READY, ready=report, load_done=1.0)
            case LoadFailed():
                failure = Failure(report.code, report.message)
                self._give_up(failure)
                self._publish(state=EngineState.FAILED, failure=failure)

    def _stepped(self, stepped: Stepped) -> None:
        self._alive_at = _now()
        for output in stepped.outputs:
            self._worked = self._worked or bool(output.tokens)
            if output.finish is not None:
                self._in_engine.discard(output.run)
        self._status = replace(self._status, stats=stepped.stats)
        for listener in self._listeners:
            listener.on_stepped(stepped)

    def _give_up(self, failure: Failure) -> None:
        """Nobody will be answered any more."""
        self._questions.refuse(ModelUnavailable(failure.message))
        self._text_known.set()

    # ---- small things

    def _publish(self, **changes: Any) -> None:
        self._status = replace(self._status, **changes)
        self._tell()

    def _tell(self) -> None:
        for listener in self._listeners:
            listener.on_status(self._status)

    def _send(self, command: Command) -> None:
        if self._process is not None:
            self._process.send(command)

    def _refuse_if_over(self) -> None:
        if self._closing:
            raise ServerStopping("The server is stopping.")
        if self._status.state is EngineState.FAILED:
            assert self._status.failure is not None, "a failed engine says why"
            raise ModelUnavailable(self._status.failure.message)

    async def _bounded(self, answer: Awaitable[_T]) -> _T:
        try:
            async with asyncio.timeout(self._patience.answer_s):
                return await answer
        except TimeoutError:
            # Many questions take long together; one that is never answered stops all others.
            if self._process is not None and _now() - self._answered_at > self._patience.answer_s:
                self._process.kill("it did not answer a question about a text")
            raise ModelLoading(
                "The engine did not answer in time.", retry_after_s=ANSWER_RETRY_SECONDS
            ) from None


def _now() -> float:
    return asyncio.get_running_loop().time()
