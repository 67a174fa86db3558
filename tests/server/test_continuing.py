"""A reply that was cut goes on as another version, which begins with what there is of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fake_engine import FIRST_TOKEN, TEXT_READY, FakeEngine
from support_runs import OWNER, Bench, bench_at, drain, next_of, stop_of, text_of
from support_turns import versions

from hobnob.server import wire
from hobnob.server.continuing import certain
from hobnob.server.engine.protocol import Finish, Output
from hobnob.server.errors import Conflict, InvalidRequest, PromptTooLong
from hobnob.server.requests import ContinueRequest
from hobnob.store.values import NotFound, Turn

WHOLE = "Hello, world!"
CUT = "Hello, "


async def cut_short(bench: Bench, **fields: Any) -> Turn:
    """A reply that `max_tokens` ended."""
    fields.setdefault("options", {"max_tokens": 2})
    turn = await bench.send(**fields)
    await bench.finish(turn)
    assert (await bench.saved(turn)).text == CUT
    return turn


async def go_on(bench: Bench, turn: Turn, **fields: Any) -> Turn:
    request = ContinueRequest(OWNER, turn.conversation.id, turn.reply.id, **fields)
    return await bench.runs.accept_continued(request)


async def test_a_reply_cut_by_the_limit_goes_on_as_another_version(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        cut = await cut_short(bench)
        turn = await go_on(bench, cut, options={"max_tokens": 0})
        assert turn.message.id == cut.message.id
        assert turn.reply.text == CUT  # to be seen before the engine has said a word
        events = await bench.finish(turn)
        assert text_of(events) == WHOLE
        saved = await bench.saved(turn)
        assert (saved.text, saved.status) == (WHOLE, "completed")
        assert saved.tokens == [FIRST_TOKEN + n for n in range(4)]
        assert (saved.usage["completion_tokens"], saved.timings["decoded"]) == (4, 2)
        kept = await bench.store.message(OWNER, cut.reply.id)
        assert (kept.text, kept.status) == (CUT, "length")
        conversation = await bench.store.conversation(OWNER, cut.conversation.id)
        assert conversation.head == turn.reply.id
        assert await versions(bench.store, turn.reply) == [cut.reply.id, turn.reply.id]


async def test_the_engine_gets_the_same_prompt_seed_and_options_and_the_kept_ids(
    tmp_path: Path,
) -> None:
    async with bench_at(tmp_path) as bench:
        options = {"max_tokens": 2, "temperature": 0.3, "seed": 99}
        cut = await cut_short(bench, options=options, instructions="Be brief.")
        await go_on(bench, cut)
        first, second = bench.engine.submitted
        assert second.prompt == first.prompt
        assert second.emitted == [FIRST_TOKEN, FIRST_TOKEN + 1]
        assert second.sampling == msgspec.structs.replace(first.sampling, max_tokens=4)


async def test_max_tokens_is_meant_for_what_is_still_to_come_each_time(tmp_path: Path) -> None:
    async with bench_at(tmp_path, FakeEngine(list("abcdefgh"))) as bench:
        turn = await bench.send(options={"max_tokens": 2})
        for expected in ("ab", "abcd", "abcdef"):
            await bench.finish(turn)
            saved = await bench.saved(turn)
            assert (saved.text, saved.stop_reason) == (expected, "max_tokens")
            turn = await go_on(bench, turn)


async def test_a_stopped_reply_and_one_that_failed_go_on(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        for ending in ("cancelled", "error"):
            turn = await bench.send()
            bench.engine.step()
            bench.engine.report(Output(turn.run.id, finish=Finish(ending)))
            assert (await bench.saved(turn)).text == "Hello"
            again = await go_on(bench, turn)
            assert text_of(await bench.finish(again)) == WHOLE


async def test_its_deltas_are_the_stored_text_also_for_a_reader_that_comes_late(
    tmp_path: Path,
) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await go_on(bench, await cut_short(bench), options={"max_tokens": 0})
        start = await next_of(await bench.runs.follow(OWNER, turn.run.id), wire.MessageStart)
        assert (start.message, start.run) == (turn.reply.id, turn.run.id)
        await bench.finish(turn)
        await bench.saved(turn)
        events = await drain(await bench.runs.follow(OWNER, turn.run.id))
        assert text_of(events) == WHOLE
        assert [event.seq for event in events] == list(range(1, len(events) + 1))


async def test_it_goes_on_after_a_restart_of_the_server_before_the_engine_spoke(
    tmp_path: Path,
) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await go_on(bench, await cut_short(bench), options={"max_tokens": 0})
    async with bench_at(tmp_path) as bench:
        assert text_of(await bench.finish(turn)) == WHOLE
        assert (await bench.saved(turn)).tokens == [FIRST_TOKEN + n for n in range(4)]


async def test_half_a_character_at_the_cut_becomes_a_whole_one(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
        finish = Finish("max_tokens")
        bench.engine.report(Output(turn.run.id, [FIRST_TOKEN], "so \ufffd", finish=finish))
        assert (await bench.saved(turn)).text == "so \ufffd"
        again = await go_on(bench, turn)
        bench.engine.report(
            Output(again.run.id, [FIRST_TOKEN + 1], "🙂", "so ", finish=Finish("end_turn"))
        )
        assert (await bench.saved(again)).text == "so 🙂"


@pytest.mark.parametrize(
    ("text", "stops", "shown"),
    [
        ("abc", [], "abc"),
        ("abc\ufffd\ufffd", [], "abc"),
        ("abc\n", ["\n\n"], "abc"),
        ("abc\n#", ["\n##", "#x"], "abc"),
        ("abc\n\ufffd", ["\n##"], "abc"),
        ("abc", ["x"], "abc"),
        ("", ["x"], ""),
    ],
)
def test_what_may_become_another_end_is_not_shown_yet(
    text: str, stops: list[str], shown: str
) -> None:
    assert certain(text, stops) == shown


async def test_the_same_key_makes_one_turn_and_another_request_under_it_conflicts(
    tmp_path: Path,
) -> None:
    async with bench_at(tmp_path) as bench:
        cut = await cut_short(bench)
        turns = await asyncio.gather(
            *(go_on(bench, cut, idempotency_key="k1", options={"top_k": 3}) for _ in range(3))
        )
        assert len({turn.run.id for turn in turns}) == 1
        assert len(bench.engine.submitted) == 2
        with pytest.raises(Conflict):
            await go_on(bench, cut, idempotency_key="k1")


async def test_a_reply_that_ended_by_itself_or_is_being_written_is_refused(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        turn = await bench.send()
        with pytest.raises(Conflict, match="still being written"):
            await go_on(bench, turn)
        await bench.finish(turn)
        await bench.saved(turn)
        with pytest.raises(Conflict, match="ended by itself"):
            await go_on(bench, turn)
        place = turn.conversation.id
        with pytest.raises(InvalidRequest):
            await bench.runs.accept_continued(ContinueRequest(OWNER, place, turn.message.id))
        with pytest.raises(NotFound):
            await bench.runs.accept_continued(ContinueRequest(OWNER, place, "nothing"))
        assert len(await bench.store.messages(OWNER, place)) == 2


async def test_with_another_models_tokenizer_the_ids_are_made_from_the_text(
    tmp_path: Path,
) -> None:
    async with bench_at(tmp_path, FakeEngine(list(WHOLE))) as bench:
        options = {"max_tokens": len(CUT), "logit_bias": {"4": 1.0}}
        cut = await cut_short(bench, options=options)
        bench.engine.become_text(msgspec.structs.replace(TEXT_READY, vocab_hash="vocab-2"))
        turn = await go_on(bench, cut, options={"max_tokens": 0})
        assert turn.reply.text == CUT
        submit = bench.engine.submitted[-1]
        assert submit.emitted == [ord(character) for character in CUT]
        assert submit.sampling.logit_bias == {}
        assert text_of(await bench.finish(turn)) == WHOLE
        saved = await bench.saved(turn)
        assert saved.vocab_hash == "vocab-2"
        assert saved.tokens is not None and saved.tokens[: len(CUT)] == submit.emitted


async def test_a_stop_string_that_is_in_the_text_already_is_refused(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        cut = await cut_short(bench)
        with pytest.raises(InvalidRequest):
            await go_on(bench, cut, options={"stop": ["ell"]})


async def test_a_reply_that_fills_the_window_is_refused(tmp_path: Path) -> None:
    async with bench_at(tmp_path, FakeEngine(list("abcdefgh"), n_ctx=20)) as bench:
        turn = await bench.send("A" * 12, options={"max_tokens": 7})
        await bench.finish(turn)
        await bench.saved(turn)
        with pytest.raises(PromptTooLong):
            await go_on(bench, turn)
        assert len(await bench.store.messages(OWNER, turn.conversation.id)) == 2


async def test_older_messages_make_room_for_the_kept_text(tmp_path: Path) -> None:
    async with bench_at(tmp_path, FakeEngine(list("abcdefgh"), n_ctx=60), reply_tokens=10) as bench:
        first = await bench.send("A" * 20)
        await bench.finish(first)
        await bench.saved(first)
        place, options = first.conversation.id, {"max_tokens": 7}
        second = await bench.send("B" * 16, conversation=place, options=options)
        assert stop_of(await bench.finish(second)).stop_reason == "max_tokens"
        await bench.saved(second)
        again = await go_on(bench, second)
        context = await next_of(await bench.runs.follow(OWNER, again.run.id), wire.Context)
        assert context.left_out == [first.message.id, first.reply.id]
