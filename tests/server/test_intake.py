"""What is refused before it is planned, and what the plan is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeEngine
from support_runs import OWNER, bench_at, next_of

from hobnob.server import wire
from hobnob.server.engine.protocol import ChatMessage
from hobnob.server.engine.state import EngineState, EngineStatus
from hobnob.server.errors import EmptyPrompt, InvalidRequest, TextTooLong
from hobnob.server.intake import expected_n_ctx
from hobnob.server.requests import CompletionRequest, TurnRequest


async def test_options_of_the_config_the_conversation_and_the_request_add_up(
    tmp_path: Path,
) -> None:
    defaults = {"temperature": 0.5, "top_k": 7, "min_p": 0.25}
    async with bench_at(tmp_path, sampling=defaults) as bench:
        first = await bench.send(settings={"temperature": 0.75, "top_k": 9}, options={"top_k": 11})
        sampling = bench.engine.submitted[-1].sampling
        assert (sampling.temperature, sampling.top_k, sampling.min_p) == (0.75, 11, 0.25)
        assert first.run.params["top_k"] == 11
        await bench.finish(first)
        await bench.saved(first)
        await bench.send("More", conversation=first.conversation.id)
        sampling = bench.engine.submitted[-1].sampling
        assert (sampling.temperature, sampling.top_k) == (0.75, 9)


async def test_settings_of_a_new_conversation_are_checked_before_they_are_stored(
    tmp_path: Path,
) -> None:
    async with bench_at(tmp_path) as bench:
        with pytest.raises(InvalidRequest):
            await bench.send(settings={"temperature": -1})
        assert await bench.store.conversations(OWNER) == []


async def test_a_conversation_is_found_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        first = await bench.send()
        await bench.finish(first)
        await bench.saved(first)
        again = await bench.send("More", conversation=first.conversation.id[:8])
        assert again.conversation.id == first.conversation.id


async def test_a_completion_needs_messages_of_a_bounded_size(tmp_path: Path) -> None:
    async with bench_at(tmp_path, max_text_bytes=10) as bench:
        with pytest.raises(EmptyPrompt):
            await bench.runs.complete(CompletionRequest(OWNER, []))
        with pytest.raises(TextTooLong, match="11 bytes; at most 10") as error:
            messages = [ChatMessage("user", "123456"), ChatMessage("user", "éé1")]
            await bench.runs.complete(CompletionRequest(OWNER, messages))
        assert (error.value.code, error.value.status) == ("context_length_exceeded", 400)


async def test_a_new_conversation_has_no_message_to_answer(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        with pytest.raises(InvalidRequest, match="no message"):
            await bench.runs.accept(TurnRequest(OWNER, None, "hi", parent="zzz"))
        assert await bench.store.conversations(OWNER) == []


@pytest.mark.parametrize(
    ("exact_rows", "asked", "submitted", "said"),
    [
        (63, True, True, True),
        (63, False, False, False),
        (63, None, True, True),  # cheap: the default
        (15, True, True, True),
        (15, None, False, False),  # dear: only when asked for
        (0, True, False, False),  # it need not do without others' prefixes for nothing
        (0, None, False, False),
    ],
)
async def test_a_reply_is_exact_by_default_where_that_is_cheap_and_called_so_only_where_it_holds(
    tmp_path: Path, exact_rows: int, asked: bool | None, submitted: bool, said: bool
) -> None:
    async with bench_at(tmp_path, FakeEngine(exact_rows=exact_rows)) as bench:
        turn = await bench.send(options={} if asked is None else {"exact": asked})
        reader = await bench.runs.follow(OWNER, turn.run.id)
        assert (await next_of(reader, wire.MessageStart)).exact is said
        assert [submit.exact for submit in bench.engine.submitted] == [submitted]
        bench.engine.finish_all()
        assert (await next_of(reader, wire.MessageDelta)).exact is said


@pytest.mark.parametrize(
    ("exact_rows", "options", "first", "last"),
    [
        (63, {}, None, True),
        (0, {}, None, False),
        (15, {}, None, False),
        (15, {"exact": True}, None, True),
        (63, {"exact": False}, False, False),
        (63, {"mirostat": 2}, False, False),
    ],
)
async def test_a_reply_accepted_while_the_model_loads_is_called_exact_at_its_end(
    tmp_path: Path, exact_rows: int, options: dict[str, Any], first: bool | None, last: bool
) -> None:
    async with bench_at(tmp_path, FakeEngine(loading=True, exact_rows=exact_rows)) as bench:
        turn = await bench.send(options=options)
        reader = await bench.runs.follow(OWNER, turn.run.id)
        assert (await next_of(reader, wire.MessageStart)).exact is first
        bench.engine.get_ready()
        bench.engine.finish_all()
        assert (await next_of(reader, wire.MessageDelta)).exact is last


async def test_a_reply_that_never_came_to_an_engine_is_not_called_anything(tmp_path: Path) -> None:
    async with bench_at(tmp_path, FakeEngine(loading=True)) as bench:
        turn = await bench.send()
        await bench.runs.cancel(OWNER, turn.run.id)
        reader = await bench.runs.follow(OWNER, turn.run.id)
        assert (await next_of(reader, wire.MessageDelta)).exact is None


@pytest.mark.parametrize("options", [{"mirostat": 2}, {"adaptive_target": 0.5}])
async def test_a_reply_whose_draws_depend_on_more_than_its_seed_is_not_called_exact(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    async with bench_at(tmp_path, FakeEngine(exact_rows=63)) as bench:
        turn = await bench.send(options={"exact": True, **options})
        reader = await bench.runs.follow(OWNER, turn.run.id)
        assert (await next_of(reader, wire.MessageStart)).exact is False


def test_before_the_weights_are_loaded_the_window_is_what_was_trained_and_configured() -> None:
    text = FakeEngine(n_ctx=4096).status.text
    assert text is not None
    assert expected_n_ctx(EngineStatus(EngineState.LOADING), text) == 4096
    assert expected_n_ctx(EngineStatus(EngineState.LOADING, n_ctx_limit=1024), text) == 1024
    assert expected_n_ctx(EngineStatus(EngineState.LOADING, n_ctx_limit=9999), text) == 4096
    ready = FakeEngine(n_ctx=2048).status
    assert expected_n_ctx(ready, text) == 2048
