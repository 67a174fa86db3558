"""One prompt against several columns: what the server is asked, and what becomes of refusals."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from fake_client import FakeClient
from support_edge import KEY, edge_at

from hobnob.launch import Target
from hobnob.paths import Paths
from hobnob.tui.client import Client
from hobnob.tui.compare import Column
from hobnob.tui.line import Line
from hobnob.tui.notice import ClientError
from hobnob.tui.records import Message, Replies, Run
from hobnob.tui.trial import Trial


@pytest.fixture
def client() -> FakeClient:
    return FakeClient()


def trial_of(client: FakeClient, *columns: Column, **fields: Any) -> Trial:
    line = Line()
    line.open(client)  # type: ignore[arg-type]
    trial = Trial(line, **fields)
    if columns:
        trial.columns = list(columns)
    return trial


async def ask(trial: Trial, text: str = "Why?") -> list[Column]:
    told: list[Column] = []
    await trial.ask(text, trial.wanted(text), told.append)
    return told


async def test_the_first_column_makes_the_message_and_the_others_reply_to_it(
    client: FakeClient,
) -> None:
    columns = [Column(), Column(options={"seed": 7}), Column(instructions="Rhyme.")]
    trial = trial_of(client, *columns, system="Be brief.", options={"top_k": 5})
    assert await ask(trial) == columns
    first, *others = client.asked
    assert (first.text, first.parent, first.options) == ("Why?", None, {"top_k": 5})
    assert [one.parent for one in others] == ["u1", "u1"]
    assert others[0].options == {"top_k": 5, "seed": 7}
    assert others[1].instructions == "Rhyme."
    assert all(one.aside for one in client.asked)
    assert len({one.key for one in client.asked}) == 3
    assert [column.reply and column.reply.id for column in columns] == ["r1", "r2", "r3"]
    assert trial.live and trial.conversation is not None


async def test_the_columns_are_posted_in_their_order_however_long_one_takes(
    client: FakeClient,
) -> None:
    real = client.regenerate

    async def slow_at_first(*args: Any, **fields: Any) -> Any:
        if fields["options"] == {"seed": 1}:
            await asyncio.sleep(0.01)
        return await real(*args, **fields)

    client.regenerate = slow_at_first  # type: ignore[method-assign]
    columns = [Column(), *(Column(options={"seed": seed}) for seed in (1, 2, 3))]
    await ask(trial_of(client, *columns))
    assert [one.options for one in client.asked[1:]] == [{"seed": 1}, {"seed": 2}, {"seed": 3}]


async def test_in_a_conversation_the_prompt_follows_the_last_reply(client: FakeClient) -> None:
    talk = client.talk("t", "q", "a")
    await ask(trial_of(client, conversation=talk, parent="c0001-m1"))
    assert client.asked[0].parent == "c0001-m1"
    assert client.sent[0]["conversation"] == "c0001"


async def test_in_a_conversation_without_messages_the_prompt_begins_it(client: FakeClient) -> None:
    await ask(trial_of(client, conversation=client.talk("t")))
    assert client.asked[0].parent == "root"


async def test_another_prompt_is_another_message_after_the_same_reply(client: FakeClient) -> None:
    trial = trial_of(client)
    await ask(trial)
    await ask(trial, "What else?")
    texts = [(one.text, one.parent) for one in client.asked]
    assert texts == [("Why?", None), ("", "u1"), ("What else?", "root"), ("", "u3")]


async def test_the_same_prompt_goes_to_the_columns_without_a_reply_and_else_to_all(
    client: FakeClient,
) -> None:
    trial = trial_of(client)
    await ask(trial)
    made = Column(options={"seed": 1})
    trial.columns.append(made)
    assert trial.wanted("Why?") == [made]
    await ask(trial)
    assert [one.parent for one in client.asked] == [None, "u1", "u1"]
    assert trial.wanted("Why?") == trial.columns
    assert trial.wanted("What?") == trial.columns


async def test_wrong_settings_cost_one_column(client: FakeClient) -> None:
    wrong, right, third = Column(options={"nonsense": 1}), Column(), Column()
    trial = trial_of(client, wrong, right, third)
    await ask(trial)
    assert wrong.reply is None and "nonsense" in wrong.trouble
    assert right.reply is not None and third.reply is not None
    assert [one.text for one in client.asked] == ["Why?", ""]
    wrong.change(None, {})
    await ask(trial)
    assert wrong.reply is not None and wrong.trouble == ""
    assert client.asked[-1].parent == "u1"


async def test_where_the_server_takes_nothing_every_column_says_so_and_is_asked_once_more(
    client: FakeClient,
) -> None:
    trial = trial_of(client)
    client.refuse = ClientError("overloaded", "Too many wait.")
    told = await ask(trial)
    assert [column.trouble for column in told] == ["Too many wait."] * 2
    assert client.asked == [] and trial.conversation is None and not trial.live
    await ask(trial)
    assert all(column.reply is not None for column in trial.columns)


async def test_an_answer_that_was_lost_makes_no_second_message(client: FakeClient) -> None:
    keys = []
    real = client.send

    async def lost(*args: Any, **fields: Any) -> Any:
        keys.append(fields["key"])
        if len(keys) == 1:
            raise ClientError("unreachable", "The answer was lost.")
        return await real(*args, **fields)

    client.send = lost  # type: ignore[method-assign]
    trial = trial_of(client)
    await ask(trial)
    await ask(trial)
    assert keys[0] == keys[1]
    await ask(trial, "Another")
    assert keys[2] != keys[0]


async def test_the_replies_of_another_prompt_go_only_when_the_new_one_was_accepted(
    client: FakeClient,
) -> None:
    trial = trial_of(client)
    await ask(trial)
    before = [column.reply for column in trial.columns]
    client.refuse = ClientError("overloaded", "Too many wait.")
    await ask(trial, "What else?")
    assert [column.reply for column in trial.columns] == before
    assert trial.text == "Why?"


async def test_stopping_ends_what_is_written_and_what_is_on_its_way(client: FakeClient) -> None:
    gate = asyncio.Event()
    real = client.regenerate

    async def slow(*args: Any, **fields: Any) -> Any:
        await gate.wait()
        return await real(*args, **fields)

    client.regenerate = slow  # type: ignore[method-assign]
    trial = trial_of(client)
    asking = asyncio.ensure_future(ask(trial))
    while trial.columns[0].reply is None:
        await asyncio.sleep(0)
    await trial.stop()
    assert client.cancelled == ["run1"]
    gate.set()
    await asking
    assert client.cancelled == ["run1", "run2"]


async def test_keeping_one_makes_it_the_conversations_reply_and_its_settings_only_if_asked(
    client: FakeClient,
) -> None:
    column = Column(instructions="Rhyme.", options={"temperature": 0.2})
    trial = trial_of(client, Column(), column)
    await ask(trial)
    id = await trial.keep(column)
    assert client.heads == ["r2"]
    assert (client.talks[id].system, client.talks[id].settings) == (None, {})
    await trial.keep(column, with_settings=True)
    assert client.talks[id].system == "Rhyme."
    assert client.talks[id].settings == {"temperature": 0.2}


async def test_stored_replies_come_back_as_columns_with_what_was_asked(client: FakeClient) -> None:
    talk = client.talk("t", "before", "before that", "Why?")
    asked = {"options": {"seed": 7}, "instructions": "Rhyme."}
    odd: list[Any] = [{"asked": asked, "seed": 7}, {"asked": 3}, {"asked": {"options": 1}}]
    replies = [
        (
            Message(
                f"r{n}", talk.id, "c0001-m2", "assistant", f"reply {n}", "completed", run=f"x{n}"
            ),
            Run(f"x{n}", talk.id, f"r{n}", params=odd[n % 3]),
        )
        for n in range(6)
    ]
    message = client.stored[talk.id][2]
    client.compared[talk.id, message.id] = Replies(talk, message, replies)
    trial = trial_of(client)
    await trial.open(talk.id, message.id)
    assert [column.text for column in trial.columns] == [f"reply {n}" for n in range(2, 6)]
    assert trial.not_shown == 2
    third = trial.columns[1]
    assert (third.instructions, third.options, third.seed) == ("Rhyme.", {"seed": 7}, 7)
    assert (trial.columns[0].instructions, trial.columns[0].options) == (None, {})
    assert (trial.text, trial.message, trial.live) == ("Why?", message.id, False)
    await ask(trial, "Another")
    assert client.asked[0].parent == "c0001-m1"


async def test_a_single_reply_gets_a_column_to_be_compared_with(client: FakeClient) -> None:
    talk = client.talk("t", "Why?", "So.")
    message, reply = client.stored[talk.id]
    client.compared[talk.id, message.id] = Replies(talk, message, [(reply, Run("x"))])
    trial = trial_of(client)
    await trial.open(talk.id, message.id)
    assert [column.text for column in trial.columns] == ["So.", ""]
    assert trial.wanted("Why?") == [trial.columns[1]]


async def test_a_real_server_streams_the_columns_at_once_and_gives_them_back(
    tmp_path: Path,
) -> None:
    async with edge_at(tmp_path / "server", playing=False) as edge:
        target = Target(Paths.home({"HOBNOB_HOME": str(tmp_path)}), edge.url, KEY)
        async with Client(target) as client:
            line = Line()
            line.open(client)
            trial = Trial(line)
            trial.columns[1].change("Rhyme.", {"temperature": 0.5, "seed": 7})
            await ask(trial)
            assert len(edge.engine.submitted) == 2, "both are in the engine before one has ended"
            following = [
                asyncio.ensure_future(trial.follow(column.reply, lambda _: None))
                for column in trial.columns
                if column.reply is not None
            ]
            edge.engine.finish_all()
            await asyncio.gather(*following)
            assert [column.text for column in trial.columns] == ["Hello, world!"] * 2
            assert not trial.live

            kept = await trial.keep(trial.columns[1], with_settings=True)
            talk = await client.conversation(kept)
            assert trial.columns[1].reply is not None
            assert talk.head == trial.columns[1].reply.id
            assert (talk.system, talk.settings) == ("Rhyme.", {"temperature": 0.5, "seed": 7})

            (one,) = await client.comparisons()
            again = Trial(line)
            await again.open(one.conversation, one.message)
            assert [column.text for column in again.columns] == ["Hello, world!"] * 2
            second = again.columns[1]
            assert (second.instructions, second.options) == (
                "Rhyme.",
                {"temperature": 0.5, "seed": 7},
            )
            assert second.seed == 7


async def test_a_comparison_in_a_conversation_leaves_it_as_it_was_until_one_is_kept(
    tmp_path: Path,
) -> None:
    async with edge_at(tmp_path / "server") as edge:
        target = Target(Paths.home({"HOBNOB_HOME": str(tmp_path)}), edge.url, KEY)
        async with Client(target) as client:
            line = Line()
            line.open(client)
            turn = await client.send(None, "Hello")
            async for _ in client.stream(turn.run.id):
                pass
            talk = await client.conversation(turn.conversation.id)
            trial = Trial(line, talk, parent=turn.reply.id)
            await ask(trial)
            for column in trial.columns:
                assert column.reply is not None
                await trial.follow(column.reply, lambda _: None)
            branch = await client.branch(talk.id)
            assert [one.id for one in branch.messages] == [turn.message.id, turn.reply.id]
            await trial.keep(trial.columns[0])
            branch = await client.branch(talk.id)
            assert [one.text for one in branch.messages][2:] == ["Why?", "Hello, world!"]
            assert len(branch.siblings[branch.messages[-1].id]) == 2
