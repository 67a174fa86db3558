"""One server's life: open the parts in order, serve, stop within bounds, close in reverse.

Given everything it needs: it reads no config, and does not know what engine it is handed.
Stopping: new work is refused, every stream is told `server_stopping`, connections that still
hold on are cut, and whatever does not close in time is left to the operating system.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import hobnob
from hobnob.exits import Exit
from hobnob.paths import Paths
from hobnob.server import reserve, wire
from hobnob.server.app import Parts, build_app
from hobnob.server.changes import Changes
from hobnob.server.engine.state import EnginePort
from hobnob.server.lifecycle import Lifecycle
from hobnob.server.listener import EdgeServer, url_of
from hobnob.server.lock import State, remove_state, write_state
from hobnob.server.requests import RunSettings
from hobnob.server.routes.admin import ModelLister
from hobnob.server.runs import Runs
from hobnob.server.security import Policy
from hobnob.server.served import ServedModel
from hobnob.server.status import Identity, StatusReport
from hobnob.server.tally import Tally
from hobnob.server.temporary import Temporary
from hobnob.server.titling import Titling
from hobnob.store.store import Store
from hobnob.store.values import Stale, StoreError

STOP_SECONDS = 4.5
"""From the wish to stop to the end of the process, at the most."""
GOODBYE_SECONDS = 1.0
"""For every reader to be told."""
FORGET_SECONDS = 1.0
"""For deleting temporary conversations; the next server deletes what is left."""
LINGER_SECONDS = 1.0
"""For connections to end by themselves after that; then they are cut."""
IDLE_CHECK_SECONDS = 5.0
LOG_KEPT_MS = 24 * 3600 * 1000
"""After a run's end; then its stream answers 410 with the id of the stored message."""
PRUNE_SECONDS = 3600.0

_STOPPING = wire.StreamError("server_stopping", "The server is stopping.")

log = logging.getLogger("hobnob.server")


class EngineService(EnginePort, Protocol):
    """An engine that is started and closed by whoever serves."""

    async def start(self) -> None: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Setup:
    """What main.py has decided. The lock is held, the folders are there, the port is ours."""

    paths: Paths
    listener: socket.socket
    policy: Policy
    settings: RunSettings
    model: ServedModel
    models: ModelLister
    explain: Sequence[str] = ()
    starter: bool = False
    idle_stop_s: float | None = None
    """None: the server runs until it is told to stop."""
    full_durability: bool = False
    """Messages and ends of replies outlive a loss of power, for the price of an fsync each."""
    model_titles: bool = False
    """The model is asked for a title after the first reply of a conversation."""


async def serve(setup: Setup, engine: EngineService) -> Exit:
    """Returns when the server has stopped and everything is closed."""
    lifecycle = Lifecycle()
    _watch_signals(lifecycle, setup.paths)
    reserve.release(setup.paths.reserve_file)
    async with AsyncExitStack() as stack:
        stack.callback(reserve.hold, setup.paths.reserve_file)
        store = await Store.open(
            setup.paths.database,
            full=setup.full_durability,
            on_taken_over=lambda error: _taken_over(lifecycle, error),
        )
        stack.push_async_callback(store.close)
        await engine.start()
        stack.push_async_callback(engine.close)
        runs = Runs(store, engine, setup.settings, now_ms=_now_ms, on_broken=lifecycle.fail)
        await runs.start()
        stack.push_async_callback(runs.stop)
        state = _state(setup, await store.instance())
        changes = Changes(store)
        passing = Temporary(store, runs)
        await passing.adopt()
        report = _report(setup, state, engine, runs, lifecycle)
        parts = Parts(
            store=store,
            engine=engine,
            runs=runs,
            changes=changes,
            temporary=passing,
            lifecycle=lifecycle,
            policy=setup.policy,
            model=setup.model,
            report=report,
            models=setup.models,
            tally=Tally(engine),
        )
        server = EdgeServer(build_app(parts), on_listening=lambda: _listening(setup.paths, state))
        pruning = asyncio.create_task(_prune_logs(store))
        stack.callback(pruning.cancel)
        deleting = asyncio.create_task(passing.run())
        stack.callback(deleting.cancel)
        if setup.model_titles:
            titling = asyncio.create_task(Titling(store, runs).run())
            stack.callback(titling.cancel)
        async with _stopping_when_idle(lifecycle, runs, setup.idle_stop_s):
            await _until_stopped(server, setup, parts, engine)
    log.info("stopped")
    return Exit.INTERNAL if lifecycle.failed else Exit.OK


# ---- serving ----------------------------------------------------------------------------------


def _state(setup: Setup, instance: str) -> State:
    host, port, url = url_of(setup.listener)
    return State(
        pid=os.getpid(),
        host=host,
        port=port,
        url=url,
        version=hobnob.__version__,
        wire=wire.WIRE_VERSION,
        started_at=_now_ms(),
        instance=instance,
    )


def _report(
    setup: Setup, state: State, engine: EnginePort, runs: Runs, lifecycle: Lifecycle
) -> StatusReport:
    identity = Identity(
        url=state.url,
        instance=state.instance,
        on_demand=setup.idle_stop_s is not None,
        model=setup.model,
        starter=setup.starter,
        explain=setup.explain,
    )
    return StatusReport(identity, engine, runs, lifecycle)


def _listening(paths: Paths, state: State) -> None:
    write_state(paths.state_file, state)
    reserve.hold(paths.reserve_file)
    log.info("listening on %s", state.url)


async def _until_stopped(
    server: EdgeServer, setup: Setup, parts: Parts, engine: EngineService
) -> None:
    loop = asyncio.get_running_loop()
    serving = asyncio.create_task(server.serve(sockets=[setup.listener]))
    wish = asyncio.create_task(parts.lifecycle.stop_requested())
    try:
        await asyncio.wait({serving, wish}, return_when=asyncio.FIRST_COMPLETED)
        loop.call_later(STOP_SECONDS, _give_up, setup.paths)
        parts.lifecycle.request_stop()
        remove_state(setup.paths.state_file, pid=os.getpid())
        await _say_goodbye(parts)
        server.should_exit = True
        loop.call_later(LINGER_SECONDS, server.let_go)
        await asyncio.gather(serving, engine.close())
    finally:
        wish.cancel()
        remove_state(setup.paths.state_file, pid=os.getpid())


async def _say_goodbye(parts: Parts) -> None:
    """To every reader, before uvicorn begins to wait for their connections."""
    parts.changes.close(_STOPPING)
    if not parts.lifecycle.restarting:
        await _forget_temporary(parts.temporary)
    parts.temporary.close()
    try:
        async with asyncio.timeout(GOODBYE_SECONDS):
            await parts.runs.stop()
    except TimeoutError:
        log.warning("the last events could not be stored in %g s", GOODBYE_SECONDS)


async def _forget_temporary(temporary: Temporary) -> None:
    try:
        async with asyncio.timeout(FORGET_SECONDS):
            await temporary.delete_all()
    except (TimeoutError, StoreError):
        log.warning("temporary conversations are deleted by the next server")


def _taken_over(lifecycle: Lifecycle, error: Stale) -> None:
    """Nothing can be stored here any more, and what is shown would soon be old."""
    if not lifecycle.stopping:
        log.error("%s", error)
        lifecycle.fail()


async def _prune_logs(store: Store) -> None:
    """At the start and every hour: replies are stored whole, their logs only serve late readers."""
    while True:
        try:
            await store.prune(LOG_KEPT_MS)
        except StoreError as error:
            log.warning("old run logs were not pruned: %s", error)
        await asyncio.sleep(PRUNE_SECONDS)


@asynccontextmanager
async def _stopping_when_idle(
    lifecycle: Lifecycle, runs: Runs, idle_stop_s: float | None
) -> AsyncIterator[None]:
    if idle_stop_s is None:
        yield
        return
    watch = asyncio.create_task(watch_idleness(lifecycle, runs, idle_stop_s))
    try:
        yield
    finally:
        watch.cancel()


async def watch_idleness(
    lifecycle: Lifecycle,
    runs: Runs,
    idle_stop_s: float,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Asks to stop once neither a request nor a run has been under way for so long. A reply that
    could not be saved yet is in this process alone: for its sake the server stays."""
    while lifecycle.idle_s() < idle_stop_s:
        await sleep(min(IDLE_CHECK_SECONDS, idle_stop_s / 4))
        if runs.live_count or runs.unsaved_count:
            lifecycle.touch()
    log.info("idle for %g s", idle_stop_s)
    lifecycle.request_stop()


# ---- signals ----------------------------------------------------------------------------------


def _watch_signals(lifecycle: Lifecycle, paths: Paths) -> None:
    """The first asks to stop, the second does not ask. SIGHUP: the terminal is gone. What whoever
    started the server has it ignore (nohup) stays ignored."""

    def wanted(number: signal.Signals) -> None:
        if lifecycle.stopping:
            _leave(paths, 128 + number)
        log.info("asked to stop by %s", number.name)
        lifecycle.request_stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, wanted, number)


def _give_up(paths: Paths) -> None:
    log.error("something did not close within %g s", STOP_SECONDS)
    _leave(paths, Exit.INTERNAL)


def _leave(paths: Paths, code: int) -> None:
    """At once. The lock and the engine's socket go with the process; the store survives it."""
    remove_state(paths.state_file, pid=os.getpid())
    logging.shutdown()
    os._exit(code)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
