"""What becomes of a request for a reply: stored and submitted, or refused without a trace."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fake_engine import FIRST_TOKEN, FakeEngine
from support_runs import (
    OWNER,
    bench_at,
    drain,
    next_of,
    text_of,
)
from support_turns import versions

from hobnob.server import wire
from hobnob.server.errors import (
    Busy,
    Conflict,
    EmptyPrompt,
    InvalidRequest,
    ModelLoading,
    ModelUnavailable,
    PromptTooLong,
)
from hobnob.server.requests import ROOT, ReplyRequest, TurnRequest

WHOLE = "Hello, world!"


async def test_the_user_message_is_stored_before_the_engine_gets_the_run(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        seen: list[str] = []
        submit = bench.engine.submit

        def spy(run: object) -> None:
            seen.append("submitted")
            submit(run)  # type: ignore[arg-type]

        bench.engine.submit = spy  # type: ignore[method-assign, assignment]
        begin = bench.store.begin_turn

        async def begin_turn(*args: object, **kwargs: object) -> object:
            turn = await begin(*args, **kwargs)  # type: ignore[arg-type]
            seen.append("stored")
            return turn

        bench.store.begin_turn = begin_turn  # type: ignore[method-assign, assignment]
        await bench.send()
        assert seen == ["stored", "submitted"]


async def test_a_client_that_goes_away_while_its_turn_is_stored_leaves_a_run_that_ends(
    tmp_path: Path,
) -> None:
    async with bench_at(tmp_path) as bench:
        begun = asyncio.Event()
        begin = bench.store.begin_turn

        async def begin_turn(*args: object, **kwargs: object) -> object:
            begun.set()
            return await begin(*args, **kwargs)  # type: ignore[arg-type]

        bench.store.begin_turn = begin_turn  # type: ignore[method-assign, assignment]
        sending = asyncio.ensure_future(bench.send())
        await begun.wait()
        sending.cancel()
        async with asyncio.timeout(5):
            while not bench.engine.submitted:
                await asyncio.sleep(0.005)
        bench.engine.finish_all()
        assert text_of(await bench.read_all(bench.engine.submitted[0].run)) == WHOLE


async def test_the_same_idempotency_key_gives_the_same_turn_and_another_body_conflicts(
    tmp_path: Path,
) -> None:
    async with bench_at(tmp_path, max_running=1, max_waiting=0) as bench:
        first = await bench.send("Hi", idempotency_key="k1")
        again = await bench.send("Hi", idempotency_key="k1")  # though the server is full
        assert (again.run.id, again.created) == (first.run.id, False)
        assert len(bench.engine.submitted) == 1
        with pytest.raises(Conflict):
            await bench.send("Ho", idempotency_key="k1")


async def test_two_requests_with_one_key_at_once_make_one_turn(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        turns = await asyncio.gather(*(bench.send("Hi", idempotency_key="k1") for _ in range(4)))
        assert len({turn.run.id for turn in turns}) == 1
        assert len(bench.engine.submitted) == 1
        assert bench.runs.live_count == 1


async def test_a_follow_up_carries_the_history_with_the_ids_as_generated(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        first = await bench.send("One", system="Be brief.")
        await bench.finish(first)
        await bench.saved(first)
        second = await bench.send("Two", conversation=first.conversation.id)
        messages = bench.engine.rendered[-1]
        assert [(m.role, m.text) for m in messages] == [
            ("system", "Be brief."),
            ("user", "One"),
            ("assistant", WHOLE),
            ("user", "Two"),
        ]
        assert messages[2].tokens == [FIRST_TOKEN + i for i in range(4)]
        assert second.message.parent == first.reply.id
        context = await next_of(await bench.runs.follow(OWNER, second.run.id), wire.Context)
        assert context == wire.Context(len(second.run.prompt), 4096, 3)


async def test_what_does_not_fit_is_left_out_and_said(tmp_path: Path) -> None:
    async with bench_at(tmp_path, FakeEngine(n_ctx=60), reply_tokens=10) as bench:
        first = await bench.send("A" * 20)
        await bench.finish(first)
        await bench.saved(first)
        second = await bench.send("B" * 20, conversation=first.conversation.id)
        context = await next_of(await bench.runs.follow(OWNER, second.run.id), wire.Context)
        assert context.left_out == [first.message.id, first.reply.id]
        assert context.included == 1


async def test_a_message_cannot_follow_a_reply_that_is_being_written(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
        with pytest.raises(Conflict):
            await bench.send("More", conversation=turn.conversation.id)


async def test_an_edited_first_message_and_a_new_reply_are_siblings(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        first = await bench.send("One")
        await bench.finish(first)
        await bench.saved(first)
        conversation = first.conversation.id
        edited = await bench.send("Uno", conversation=conversation, parent=ROOT)
        assert edited.message.parent is None
        assert [m.text for m in bench.engine.rendered[-1]] == ["Uno"]
        again = await bench.runs.accept_reply(ReplyRequest(OWNER, conversation, first.message.id))
        assert again.message.id == first.message.id
        assert await versions(bench.store, again.reply) == [first.reply.id, again.reply.id]
        with pytest.raises(InvalidRequest):
            await bench.runs.accept_reply(ReplyRequest(OWNER, conversation, first.reply.id))


async def test_a_new_conversation_is_titled_from_its_first_words(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send("What\n is \x1b[31m red?")
        assert turn.conversation.title == "What is [31m red?"


@pytest.mark.parametrize(
    ("text", "options", "error"),
    [
        ("", {}, EmptyPrompt),
        (" \n\t", {}, EmptyPrompt),
        ("x" * 5000, {}, PromptTooLong),
        ("x" * 2_000_000, {}, InvalidRequest),
        ("Hi", {"temperature": float("nan")}, InvalidRequest),
    ],
)
async def test_a_request_that_is_refused_leaves_nothing_behind(
    tmp_path: Path, text: str, options: dict[str, object], error: type[Exception]
) -> None:
    async with bench_at(tmp_path) as bench:
        with pytest.raises(error):
            await bench.send(text, options=options)
        assert await bench.store.conversations(OWNER) == []
        assert bench.runs.live_count == 0


async def test_what_the_template_says_is_told_to_the_request(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        bench.engine.template_error = "Roles must alternate."
        with pytest.raises(InvalidRequest, match="Roles must alternate"):
            await bench.send()


async def test_two_run_three_wait_and_the_rest_is_refused_at_once(tmp_path: Path) -> None:
    async with bench_at(tmp_path, max_running=2, max_waiting=3) as bench:
        results = await asyncio.gather(
            *(bench.send(f"Hi {n}") for n in range(20)), return_exceptions=True
        )
        refused = [result for result in results if isinstance(result, Busy)]
        assert len(refused) == 15
        assert all(error.retry_after_s and error.retry_after_s >= 1 for error in refused)
        bench.engine.finish_all()
        for result in results:
            if not isinstance(result, BaseException):
                await bench.read_all(result.run.id)
        assert bench.runs.live_count == 0
        await bench.send()


async def test_a_failed_engine_refuses_at_once(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        bench.engine.fail(message="The file is cut off.")
        with pytest.raises(ModelUnavailable, match="cut off"):
            await bench.send()


async def test_while_the_model_loads_runs_wait_or_are_refused_as_configured(
    tmp_path: Path,
) -> None:
    async with bench_at(tmp_path, FakeEngine(loading=True), wait_for_model=False) as bench:
        with pytest.raises(ModelLoading) as loading:
            await bench.send()
        assert loading.value.retry_after_s
    async with bench_at(tmp_path, FakeEngine(loading=True)) as bench:
        turn = await bench.send()
        reader = await bench.runs.follow(OWNER, turn.run.id)
        bench.engine.load(0.5)
        assert (await next_of(reader, wire.Loading)).done == 0.5
        bench.engine.get_ready()
        bench.engine.finish_all()
        assert text_of(await drain(reader)) == WHOLE


async def test_the_plan_before_sending_is_the_plan_of_sending(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        plan = (await bench.runs.plan(TurnRequest(OWNER, None, "Hi", system="S"))).plan
        turn = await bench.send("Hi", system="S")
        assert turn.run.prompt == plan.prompt
        assert len(await bench.store.conversations(OWNER)) == 1
