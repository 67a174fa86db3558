"""What goes into a prompt and what is left out, with a renderer that is easy to reckon with."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hobnob.server.context import MERGED_WITH, Item, Plan, plan
from hobnob.server.engine.protocol import ChatMessage
from hobnob.server.errors import EmptyPrompt, PromptTooLong

MARK_TOKENS = 2
"""What the template adds to each message."""


class Renderer:
    """Token = character, plus a mark at both ends of each message; counts its calls."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    async def __call__(self, messages: list[ChatMessage]) -> list[int]:
        prompt = [ord(c) for m in messages for c in f"<{m.text}>"]
        self.calls.append(len(prompt))
        return prompt


def history(*texts: str, system: str | None = None) -> list[Item]:
    """User and assistant in turn, the last one being the new user message."""
    items = [Item(ChatMessage("system", system))] if system is not None else []
    for number, text in enumerate(texts):
        role = "user" if number % 2 == 0 else "assistant"
        last = number == len(texts) - 1
        items.append(Item(ChatMessage(role, text), None if last else f"m{number}"))
    return items


async def planned(items: list[Item], n_ctx: int, reserve: int = 1) -> Plan:
    return await plan(items, Renderer(), n_ctx=n_ctx, reserve=reserve)


async def test_all_that_fits_goes_in_with_one_rendering() -> None:
    render = Renderer()
    result = await plan(history("a", "b", "c", system="s"), render, n_ctx=100, reserve=10)
    assert [m.text for m in result.messages] == ["s", "a", "b", "c"]
    assert (result.included, result.left_out) == (3, [])
    assert len(result.prompt) == 12 and render.calls == [12]


async def test_whole_oldest_turns_are_left_out_and_named() -> None:
    result = await planned(history("aaaa", "bbbb", "cccc", "dddd", "e", system="s"), 20)
    assert result.left_out == ["m0", "m1"]
    assert [m.text for m in result.messages] == ["s", "cccc", "dddd", "e"]
    assert result.included == 3


async def test_room_for_the_reply_is_kept() -> None:
    items = history("aaaa", "bbbb", "cccc")  # 18 tokens, 6 without the first turn
    assert (await planned(items, 20, reserve=2)).left_out == []
    assert (await planned(items, 20, reserve=3)).left_out == ["m0", "m1"]


@pytest.mark.parametrize(("characters", "fits"), [(16, True), (17, True), (18, False), (19, False)])
async def test_a_prompt_must_leave_one_token_for_the_reply(characters: int, fits: bool) -> None:
    items = history("x" * characters)  # of n_ctx - 2 … n_ctx + 1 tokens
    if fits:
        assert len((await planned(items, 20)).prompt) == characters + MARK_TOKENS
        return
    with pytest.raises(PromptTooLong) as error:
        await planned(items, 20)
    assert (error.value.n_prompt_tokens, error.value.n_ctx) == (characters + MARK_TOKENS, 20)
    assert "at least 1" in error.value.message


async def test_less_room_for_the_reply_is_better_than_a_refusal() -> None:
    result = await planned(history("a", "b", "x" * 15), 20, reserve=10)
    assert result.left_out == ["m0", "m1"]


async def test_system_and_newest_message_are_never_left_out() -> None:
    with pytest.raises(PromptTooLong) as error:
        await planned(history("a", "b", "x" * 10, system="s" * 10), 20)
    assert error.value.n_prompt_tokens == 24


async def test_user_messages_in_a_row_are_merged_and_can_be_left_out_one_by_one() -> None:
    items = [
        Item(ChatMessage("user", "one"), "m0"),
        Item(ChatMessage("user", "two"), "m1"),
        Item(ChatMessage("user", "new")),
    ]
    result = await planned(items, 100)
    assert [m.text for m in result.messages] == [MERGED_WITH.join(["one", "two", "new"])]
    assert result.included == 3
    result = await planned(items, 12)
    assert [m.text for m in result.messages] == ["two" + MERGED_WITH + "new"]
    assert result.left_out == ["m0"]


async def test_ids_of_replies_are_passed_on() -> None:
    items = history("a", "b", "c")
    items[1] = Item(ChatMessage("assistant", "b", [1, 2]), "m1")
    assert (await planned(items, 100)).messages[1].tokens == [1, 2]


async def test_no_message_is_an_empty_prompt() -> None:
    with pytest.raises(EmptyPrompt):
        await planned([Item(ChatMessage("system", "s"))], 100)


@settings(max_examples=200)
@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=41).filter(lambda sizes: len(sizes) % 2 == 1),
    st.one_of(st.none(), st.integers(1, 20)),
    st.integers(8, 400),
    st.integers(1, 100),
)
async def test_the_plan_is_the_longest_run_of_turns_that_fits(
    sizes: list[int], system: int | None, n_ctx: int, reserve: int
) -> None:
    items = history(*("x" * size for size in sizes), system=system and "s" * system)
    render = Renderer()

    def tokens(kept: int) -> int:
        kept_sizes = sizes[len(sizes) - 1 - 2 * kept :]
        head = 0 if system is None else system + MARK_TOKENS
        return head + sum(size + MARK_TOKENS for size in kept_sizes)

    turns = (len(sizes) - 1) // 2
    if tokens(0) + 1 > n_ctx:
        with pytest.raises(PromptTooLong):
            await plan(items, render, n_ctx=n_ctx, reserve=reserve)
        return
    result = await plan(items, render, n_ctx=n_ctx, reserve=reserve)
    best = max((k for k in range(turns + 1) if tokens(k) + reserve <= n_ctx), default=0)
    assert len(result.prompt) == tokens(best)
    assert result.left_out == [f"m{n}" for n in range(2 * (turns - best))]
    assert result.included == 2 * best + 1
    assert len(render.calls) <= 3 + 2 * (turns + 1).bit_length()


async def test_a_history_of_years_is_never_rendered_whole() -> None:
    render = Renderer()
    items = history(*("x" * 50 for _ in range(2001)))
    result = await plan(items, render, n_ctx=1000, reserve=100)
    assert len(result.prompt) <= 900
    assert max(render.calls) <= 2 * 1000
    assert len(render.calls) <= 12


async def test_a_summary_is_left_out_never() -> None:
    items = history("ask", "sum", "aaaa", "bbbb", "cccc", "dddd", "e", system="s")
    items[1:3] = [Item(one.message, one.id, summary=True) for one in items[1:3]]
    result = await planned(items, 31)
    assert [m.text for m in result.messages] == ["s", "ask", "sum", "cccc", "dddd", "e"]
    assert (result.left_out, result.included) == (["m2", "m3"], 5)
