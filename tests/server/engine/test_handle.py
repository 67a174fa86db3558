"""The engine's handle, with a real process that has no model in it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from random import Random

import fake_worker
import pytest
from simulated_worker import SimulatedWorker
from virtual_loop import VirtualLoop

from hobnob.server.engine import snapshot_files
from hobnob.server.engine.absent import AbsentEngine
from hobnob.server.engine.handle import Engine, Patience
from hobnob.server.engine.process import MAX_LOG_BYTES, EngineProcess
from hobnob.server.engine.protocol import ChatMessage, Configure, Sampling, Stepped, Submit
from hobnob.server.engine.state import EngineState, EngineStatus
from hobnob.server.errors import (
    EngineFailed,
    InvalidRequest,
    ModelLoading,
    ModelUnavailable,
    ServerStopping,
)
from hobnob.server.wire import Failure

PATIENCE = Patience(first_backoff_s=0.01, max_backoff_s=0.02, close_s=0.5, end_s=1.0)


class Witness:
    """A listener that remembers, and lets a test wait for what it needs to see."""

    def __init__(self, engine: Engine):
        self.engine = engine
        self.steps: list[Stepped] = []
        self.deaths: list[str] = []
        self.readings: list[bool] = []  # whether it had a text to read at each death
        self.states: list[EngineState] = []
        self.progress: list[float] = []
        self._news = asyncio.Event()
        engine.listen(self)

    def on_stepped(self, stepped: Stepped) -> None:
        self.steps.append(stepped)
        self._news.set()

    def on_death(self, reason: str, *, reading: bool) -> None:
        self.deaths.append(reason)
        self.readings.append(reading)
        self._news.set()

    def on_status(self, status: EngineStatus) -> None:
        if not self.states or self.states[-1] is not status.state:
            self.states.append(status.state)
        self.progress.append(status.load_done)
        self._news.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                self._news.clear()
                await self._news.wait()

    async def until_ready(self, restarts: int = 0) -> None:
        await self.until(
            lambda: (
                self.engine.status.state is EngineState.READY
                and self.engine.status.restarts >= restarts
            )
        )


@contextlib.asynccontextmanager
async def engine_at(
    tmp_path: Path, mode: str = "ok", patience: Patience = PATIENCE
) -> AsyncIterator[Witness]:
    command = [sys.executable, fake_worker.__file__, mode]
    engine = Engine(
        Configure("/models/fake.gguf", n_ctx=1024),
        partial(EngineProcess.spawn, command, tmp_path / "logs" / "engine.log"),
        patience=patience,
    )
    witness = Witness(engine)
    await engine.start()
    try:
        yield witness
    finally:
        await engine.close()


async def test_what_one_process_measured_is_told_to_the_next(tmp_path: Path) -> None:
    async with engine_at(tmp_path) as witness:
        await witness.until_ready()
        first = witness.engine.status
        assert first.ready is not None and first.ready.measured is not None
        assert first.ready.measured.of == b"%d" % (first.pid or 0)
        os.kill(first.pid or 0, signal.SIGKILL)
        await witness.until_ready(restarts=1)
        second = witness.engine.status
        assert second.pid != first.pid and second.ready is not None
        assert second.ready.measured == first.ready.measured


def submit(run: str) -> Submit:
    return Submit(run, [1, 2], Sampling(seed=1))


def user(text: str) -> list[ChatMessage]:
    return [ChatMessage("user", text)]


async def test_it_loads_answers_and_steps(tmp_path: Path) -> None:
    async with engine_at(tmp_path) as witness:
        engine = witness.engine
        assert engine.status.state is EngineState.LOADING
        assert await engine.render(user("abc")) == [3]
        assert await engine.tokenize("ab") == [97, 98]
        assert (await engine.text()).n_vocab == 1000
        await witness.until_ready()
        assert 0.5 in witness.progress
        engine.submit(submit("r1"))
        await witness.until(lambda: bool(witness.steps))
        assert witness.steps[0].outputs[0].tokens == [100]
        assert engine.status.stats.running == 1
        engine.cancel("r1")
        await witness.until(lambda: len(witness.steps) == 2)
        assert witness.steps[1].outputs[0].finish is not None
        engine.cancel("r1")  # over: nothing is sent
        assert engine.status.pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(engine.status.pid, 0)


async def test_what_is_in_the_cells_is_asked_of_a_ready_engine_and_of_no_other(
    tmp_path: Path,
) -> None:
    async with engine_at(tmp_path) as witness:
        engine = witness.engine
        assert await engine.resident([1, 2, 3], owner="me", exact=True) is None
        await witness.until_ready()
        assert await engine.resident([1, 2, 3], owner="me", exact=True) == 2
        assert await engine.resident([1, 2, 3], owner="die", exact=True) is None
        await witness.until_ready(restarts=1)
        assert await engine.resident([1], owner="me", exact=False) == 0
    assert await engine.resident([1, 2], owner="me", exact=False) is None


@pytest.mark.parametrize("mode", ["ok", "mute", "refuse", "crash"])
async def test_a_deleted_conversation_leaves_no_file_whatever_the_engine_does(
    tmp_path: Path, mode: str
) -> None:
    folder = tmp_path / "snapshots"
    snapshot_files.make_folder(folder)

    def write(group: str) -> None:
        root, ids = bytes(16), bytes(80)
        key, tag = snapshot_files.chained(root, ids), snapshot_files.tag_of(group)
        snapshot_files.write(folder, snapshot_files.Entry(key, root, tag, True, ids, 3), b"abc")

    command = [sys.executable, fake_worker.__file__, mode]
    engine = Engine(
        Configure("/models/fake.gguf", snapshot_folder=str(folder)),
        partial(EngineProcess.spawn, command, tmp_path / "engine.log"),
        patience=PATIENCE,
    )
    write("stays")
    write("goes")
    witness = Witness(engine)
    await engine.start()
    await witness.until(lambda: engine.status.pid is not None or bool(witness.deaths))
    await engine.forget("goes")
    assert len(list(folder.iterdir())) == 1
    absent = AbsentEngine(Failure("model_not_found", "There is none."), folder)
    await absent.forget("stays")
    assert list(folder.iterdir()) == []
    write("goes")  # the engine had not heard of it yet
    await engine.close()
    assert mode == "crash" or list(folder.iterdir()) == []


async def test_after_a_kill_it_restarts_and_says_why(tmp_path: Path) -> None:
    async with engine_at(tmp_path) as witness:
        await witness.until_ready()
        pid = witness.engine.status.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await witness.until_ready(restarts=1)
        assert len(witness.deaths) == 1 and "SIGKILL" in witness.deaths[0]
        assert witness.engine.status.last_death == witness.deaths[0]
        assert witness.engine.status.pid != pid
        assert witness.states[-2:] == [EngineState.RESTARTING, EngineState.READY]


async def test_the_cause_in_its_log_is_part_of_the_reason(tmp_path: Path) -> None:
    async with engine_at(tmp_path) as witness:
        await witness.until_ready()
        witness.engine.submit(submit("exit"))
        await witness.until(lambda: bool(witness.deaths))
        assert witness.deaths[0] == (
            "The engine ended with exit code 3: GGML_ASSERT(n_tokens > 0) failed"
        )


@pytest.mark.parametrize("fault", ["hang", "garbage"])
async def test_an_engine_that_hangs_or_talks_nonsense_is_killed_and_replaced(
    tmp_path: Path, fault: str
) -> None:
    patience = Patience(step_s=0.2, first_backoff_s=0.01, close_s=0.5)
    async with engine_at(tmp_path, patience=patience) as witness:
        await witness.until_ready()
        witness.engine.submit(submit(fault))
        await witness.until_ready(restarts=1)
        assert "was killed because" in witness.deaths[0]


async def test_a_stopped_process_is_killed_too(tmp_path: Path) -> None:
    patience = Patience(step_s=0.2, first_backoff_s=0.01, close_s=0.5)
    async with engine_at(tmp_path, patience=patience) as witness:
        await witness.until_ready()
        assert witness.engine.status.pid is not None
        os.kill(witness.engine.status.pid, signal.SIGSTOP)
        witness.engine.submit(submit("r1"))
        await witness.until_ready(restarts=1)
        assert "did not react" in witness.deaths[0]


def test_a_process_that_a_driver_holds_is_left_and_another_one_started() -> None:
    """It is killed and does not end, so its side of the socket stays open."""
    workers: list[SimulatedWorker] = []

    async def spawn() -> EngineProcess:
        number = len(workers) + 1
        workers.append(
            SimulatedWorker(["x"], Random(1), number, calm=True, submitted=lambda submit: None)
        )
        return workers[-1].as_process()

    async def held() -> None:
        engine = Engine(Configure("x"), spawn, patience=Patience(step_s=10.0))
        witness = Witness(engine)
        await engine.start()
        await witness.until_ready()
        workers[0].hangs = workers[0].unkillable = True
        engine.submit(submit("r1"))
        await witness.until_ready(restarts=1)
        assert ["a driver may be holding it" in death for death in witness.deaths] == [True]
        engine.submit(submit("r1"))
        workers[1].drain()
        workers[1].step(["r1"])
        await witness.until(lambda: bool(witness.steps))
        await engine.close()

    loop = VirtualLoop()
    loop.run_until_complete(held())
    loop.close()


async def test_an_idle_engine_may_be_silent(tmp_path: Path) -> None:
    patience = Patience(step_s=0.05, close_s=0.5)
    async with engine_at(tmp_path, patience=patience) as witness:
        await witness.until_ready()
        await asyncio.sleep(0.2)
        assert not witness.deaths


async def test_a_question_survives_the_death_of_the_process_that_was_asked(
    tmp_path: Path,
) -> None:
    async with engine_at(tmp_path) as witness:
        await witness.until_ready()
        pid = witness.engine.status.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)  # so that it cannot answer before it dies
        asking = asyncio.create_task(witness.engine.render(user("abc")))
        await asyncio.sleep(0)
        os.kill(pid, signal.SIGKILL)
        assert await asking == [3]
        assert witness.engine.status.restarts == 1


async def test_a_question_that_kills_twice_is_given_up(tmp_path: Path) -> None:
    async with engine_at(tmp_path) as witness:
        with pytest.raises(EngineFailed, match="SIGKILL"):
            await witness.engine.render(user("die"))
        assert await witness.engine.render(user("abc")) == [3]
        assert len(witness.deaths) == 2
        assert witness.readings == [True, True]
        witness.engine.submit(submit("die"))
        await witness.until_ready(restarts=3)
        assert witness.readings == [True, True, False]


async def test_what_the_template_says_is_an_invalid_request(tmp_path: Path) -> None:
    async with engine_at(tmp_path) as witness:
        with pytest.raises(InvalidRequest, match="Roles must alternate"):
            await witness.engine.render(user("bad template"))


async def test_a_text_that_is_never_answered_does_not_stop_the_next(tmp_path: Path) -> None:
    patience = Patience(answer_s=0.3, first_backoff_s=0.01, close_s=0.5)
    async with engine_at(tmp_path, patience=patience) as witness:
        await witness.until_ready()
        with pytest.raises(ModelLoading):
            await witness.engine.render(user("hang"))
        await witness.until_ready(restarts=1)
        assert await witness.engine.render(user("abc")) == [3]


async def test_a_model_that_cannot_be_loaded_is_a_failed_engine(tmp_path: Path) -> None:
    async with engine_at(tmp_path, "refuse") as witness:
        asking = asyncio.create_task(witness.engine.text())
        await witness.until(lambda: witness.engine.status.state is EngineState.FAILED)
        with pytest.raises(ModelUnavailable, match="no GGUF"):
            await asking
        with pytest.raises(ModelUnavailable, match="no GGUF"):
            await witness.engine.render(user("abc"))
        failure = witness.engine.status.failure
        assert failure is not None and failure.code == "model_unavailable"
        assert not witness.deaths


async def test_dying_again_and_again_while_loading_is_a_failed_engine(tmp_path: Path) -> None:
    async with engine_at(tmp_path, "crash") as witness:
        asking = asyncio.create_task(witness.engine.render(user("abc")))
        await witness.until(lambda: witness.engine.status.state is EngineState.FAILED)
        assert len(witness.deaths) == PATIENCE.loads
        with pytest.raises(ModelUnavailable, match="CUDA error: out of memory"):
            await asking
        assert "\x1b" not in witness.deaths[0]
        assert witness.engine.status.restarts == PATIENCE.loads - 1


async def test_a_program_that_is_not_there_is_a_failed_engine(tmp_path: Path) -> None:
    spawn = partial(EngineProcess.spawn, ["/nowhere"], tmp_path / "e.log")
    engine = Engine(Configure("x"), spawn, patience=PATIENCE)
    witness = Witness(engine)
    await engine.start()
    await witness.until(lambda: engine.status.state is EngineState.FAILED)
    assert engine.status.last_death is not None and "cannot be started" in engine.status.last_death
    await engine.close()


async def test_a_load_without_a_sign_of_life_is_killed(tmp_path: Path) -> None:
    patience = Patience(load_s=0.1, loads=2, first_backoff_s=0.01, close_s=0.5)
    async with engine_at(tmp_path, "mute", patience) as witness:
        await witness.until(lambda: witness.engine.status.state is EngineState.FAILED)
        assert "did not react" in witness.deaths[-1]


async def test_closing_ends_a_process_that_will_not_go_and_refuses_what_waits(
    tmp_path: Path,
) -> None:
    async with engine_at(tmp_path, "slow") as witness:
        await witness.until_ready()
        asking = asyncio.create_task(witness.engine.render(user("hang")))
        await asyncio.sleep(0.05)
        pid = witness.engine.status.pid
        assert pid is not None
        await witness.engine.close()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        with pytest.raises(ServerStopping):
            await asking
        with pytest.raises(ServerStopping):
            await witness.engine.render(user("abc"))
        assert not witness.deaths


async def test_it_can_be_closed_before_it_was_started(tmp_path: Path) -> None:
    spawn = partial(EngineProcess.spawn, ["/nowhere"], tmp_path / "e.log")
    await Engine(Configure("x"), spawn).close()


async def test_the_log_is_private_and_bounded(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "engine.log"
    log.parent.mkdir()
    log.write_bytes(b"x" * (MAX_LOG_BYTES + 1))
    async with engine_at(tmp_path) as witness:
        await witness.until_ready()
        assert log.stat().st_size < MAX_LOG_BYTES
        assert log.stat().st_mode & 0o777 == 0o600
        assert log.with_name("engine.log.old").exists()
