"""Runs and an engine that queues, loads, dies, is replaced, or is killed by one of them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from fake_engine import FIRST_TOKEN, READY, FakeEngine
from support_runs import (
    OWNER,
    Bench,
    bench_at,
    drain,
    next_of,
    numbered,
    stop_of,
    text_of,
    types_of,
)

from hobnob.server import wire
from hobnob.server.engine.protocol import Finish, Output

WHOLE = "Hello, world!"


async def test_after_a_death_the_run_goes_on_from_its_ids_and_the_shown_text_stays(
    tmp_path: Path,
) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
        reader = await bench.runs.follow(OWNER, turn.run.id)
        bench.engine.step()
        bench.engine.step()
        await next_of(reader, wire.BlockDelta)
        bench.engine.die("The engine was ended by SIGSEGV.")
        assert (await next_of(reader, wire.Restarted)).reason.endswith("SIGSEGV.")
        bench.engine.get_ready()
        again = bench.engine.submitted[-1]
        assert again.emitted == [FIRST_TOKEN, FIRST_TOKEN + 1]
        assert again.prompt == turn.run.prompt
        events = await bench.finish(turn)
        assert text_of(events) == WHOLE
        assert types_of(events).count("message_stop") == 1
        reply = await bench.saved(turn)
        assert (reply.text, len(reply.tokens)) == (WHOLE, 4)
        assert (await bench.store.run(OWNER, turn.run.id)).attempts == 2


async def test_ten_deaths_with_progress_in_between_do_no_harm(tmp_path: Path) -> None:
    async with bench_at(tmp_path, FakeEngine([f"{n} " for n in range(10)])) as bench:
        turn = await bench.send()
        for _ in range(10):
            bench.engine.step()
            bench.engine.die_and_restart()
        events = await bench.finish(turn)
        assert text_of(events) == "0 1 2 3 4 5 6 7 8 9 "
        assert stop_of(events).status == "completed"


async def test_a_replay_that_shows_more_is_completed_by_the_rest(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
        bench.engine.report(Output(turn.run.id, [FIRST_TOKEN], "Hel"))
        bench.engine.die_and_restart()
        assert text_of(await bench.finish(turn)) == WHOLE


async def test_a_replay_that_contradicts_what_was_shown_fails_the_run(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
        bench.engine.report(Output(turn.run.id, [FIRST_TOKEN], "Jello"))
        bench.engine.die_and_restart()
        bench.engine.step()
        events = await bench.read_all(turn.run.id)
        assert text_of(events) == "Jello"
        error = stop_of(events).error
        assert error is not None and error.code == "replay_mismatch"
        assert bench.engine.cancelled == [turn.run.id]
        bench.engine.step()  # the engine's own end comes later and changes nothing


async def test_a_run_that_was_cancelled_is_not_given_to_the_next_engine(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
        bench.engine.step()
        await bench.runs.cancel(OWNER, turn.run.id)
        bench.engine.die_and_restart()
        assert len(bench.engine.submitted) == 1
        assert stop_of(await bench.read_all(turn.run.id)).status == "cancelled"


async def test_cancelling_while_the_model_loads_ends_the_run_at_once(tmp_path: Path) -> None:
    async with bench_at(tmp_path, FakeEngine(loading=True)) as bench:
        turn = await bench.send()
        await bench.runs.cancel(OWNER, turn.run.id)
        assert stop_of(await bench.read_all(turn.run.id)).status == "cancelled"
        bench.engine.get_ready()
        assert not bench.engine.submitted


async def test_a_load_that_fails_ends_what_waits_with_its_reason(tmp_path: Path) -> None:
    async with bench_at(tmp_path, FakeEngine(loading=True)) as bench:
        turn = await bench.send()
        bench.engine.fail("model_unavailable", "The file is cut off.")
        stop = stop_of(await bench.read_all(turn.run.id))
        assert stop.error == wire.Failure("model_unavailable", "The file is cut off.")
        assert (await bench.saved(turn)).status == "failed"


async def test_a_window_that_turned_out_smaller_is_said_to_the_run(tmp_path: Path) -> None:
    async with bench_at(tmp_path, FakeEngine(loading=True)) as bench:
        turn = await bench.send("x" * 100)
        bench.engine.get_ready(msgspec.structs.replace(READY, n_ctx=101))
        error = stop_of(await bench.read_all(turn.run.id)).error
        assert error is not None and error.code == "context_length_exceeded"
        assert "101" in error.message


@pytest.mark.parametrize(("rows_before", "rows_after"), [(63, 63), (63, 0), (0, 63)])
async def test_a_reply_is_exact_only_if_every_engine_that_had_it_computed_it_so(
    tmp_path: Path, rows_before: int, rows_after: int
) -> None:
    async with bench_at(tmp_path, FakeEngine(exact_rows=rows_before)) as bench:
        turn = await bench.send(options={"exact": True})
        bench.engine.step()
        bench.engine.die()
        bench.engine.get_ready(msgspec.structs.replace(READY, exact_rows=rows_after))
        bench.engine.finish_all()
        reader = await bench.runs.follow(OWNER, turn.run.id)
        assert (await next_of(reader, wire.MessageDelta)).exact is (rows_before == rows_after)


async def test_what_came_of_drafts_is_told_at_the_end(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
        finish = Finish("end_turn", drafted=9, accepted=7)
        bench.engine.report(Output(turn.run.id, [3], "a", finish=finish))
        reader = await bench.runs.follow(OWNER, turn.run.id)
        timings = (await next_of(reader, wire.MessageDelta)).timings
        assert (timings.drafted, timings.accepted) == (9, 7)
        assert (await bench.saved(turn)).timings["accepted"] == 7


async def test_place_and_progress_are_news_and_the_latest_counts(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
        run = turn.run.id
        reader = await bench.runs.follow(OWNER, run)
        bench.engine.queue(run, 3, 9.0)
        bench.engine.queue(run, 2, 6.0)
        assert await next_of(reader, wire.Queued) == wire.Queued(2, 6.0)
        bench.engine.prefill(run, 10, 20, 4)
        assert await next_of(reader, wire.Prefill) == wire.Prefill(10, 20, 4)
        late = await bench.runs.follow(OWNER, run)
        assert (await anext(late)).payload == wire.Prefill(10, 20, 4)
        bench.engine.finish_all()
        assert all(event.seq is not None for event in await bench.read_all(run))


async def test_a_run_that_waits_too_long_ends_and_never_runs(tmp_path: Path) -> None:
    async with bench_at(tmp_path, queue_timeout_s=0.05) as bench:
        started, waiting = await bench.send(), await bench.send()
        bench.engine.prefill(started.run.id, 1, 2)
        events = await bench.read_all(waiting.run.id)
        error = stop_of(events).error
        assert error is not None and error.code == "queue_timeout"
        assert bench.engine.cancelled == [waiting.run.id]
        assert text_of(await bench.finish(started)) == WHOLE
        assert (await bench.saved(waiting)).text == ""
        assert bench.runs.live_count == 0


async def test_time_spent_loading_is_not_time_in_the_queue(tmp_path: Path) -> None:
    async with bench_at(tmp_path, FakeEngine(loading=True), queue_timeout_s=0.05) as bench:
        turn = await bench.send()
        reader = await bench.runs.follow(OWNER, turn.run.id)
        await next_of(reader, wire.BlockStart)
        assert await reader.next_within(0.2) is None
        bench.engine.get_ready()
        assert text_of(await bench.finish(turn)) == WHOLE


class PoisonedEngine(FakeEngine):
    """Dies in the step that has the poison run in it, before anyone gets a token."""

    poison: str | None = None
    deaths = 0

    def step(self, *runs: str) -> None:
        if self.poison in self.runs:
            self.deaths += 1
            self.die_and_restart("The engine was ended by SIGABRT.")
        else:
            super().step(*runs)


@pytest.mark.parametrize("place", range(5))
async def test_the_run_that_kills_the_engine_is_found_and_the_rest_is_spared(
    tmp_path: Path, place: int
) -> None:
    engine = PoisonedEngine()
    async with bench_at(tmp_path, engine) as bench:
        turns = [await bench.send(f"Hi {n}") for n in range(5)]
        engine.poison = turns[place].run.id
        engine.finish_all()
        for turn in turns:
            events = await bench.read_all(turn.run.id)
            if turn.run.id == engine.poison:
                error = stop_of(events).error
                assert error is not None and error.code == "engine_failed"
                assert "SIGABRT" in error.message
            else:
                assert (text_of(events), stop_of(events).status) == (WHOLE, "completed")
        assert engine.deaths <= 6  # three, and one for each halving
        assert bench.runs.live_count == 0


async def test_a_poison_run_alone_ends_after_three_deaths(tmp_path: Path) -> None:
    engine = PoisonedEngine()
    async with bench_at(tmp_path, engine) as bench:
        turn = await bench.send()
        engine.poison = turn.run.id
        engine.finish_all()
        assert engine.deaths == 3
        assert stop_of(await bench.read_all(turn.run.id)).status == "failed"


async def test_a_run_is_not_blamed_for_deaths_while_a_text_was_read(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
        for _ in range(5):
            bench.engine.die(reading=True)
            bench.engine.get_ready()
        assert text_of(await bench.finish(turn)) == WHOLE


async def test_a_completion_survives_a_death_of_the_engine_too(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        live = await bench.complete()
        reader = live.read()
        bench.engine.step()
        bench.engine.die_and_restart()
        bench.engine.finish_all()
        assert text_of(await drain(reader)) == WHOLE


async def test_outputs_of_runs_that_nobody_knows_are_passed_over(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        bench.engine.report(Output("nobody", [1], "x"))
        assert numbered(await finished(bench))


async def finished(bench: Bench) -> list[wire.Event]:
    return await bench.finish(await bench.send())
