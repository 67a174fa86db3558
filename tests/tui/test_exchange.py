"""Conversations as Markdown: what a reader of the file must be able to rely on."""

from __future__ import annotations

import json

import pytest
from support_exchange import tree

from hobnob.tui.blocks import HEADING, split
from hobnob.tui.exchange import Json, Markdown
from hobnob.tui.records import Conversation, Message, Tree


def headings(markdown: str) -> list[str]:
    body = markdown.partition("\n---\n")[2]
    return [block.text for block in split(body) if block.kind == HEADING]


@pytest.mark.parametrize(
    "cut",
    ["```py\nx = 1", "~~~~\n```\n", "text\n\n````md\n```\ninner\n```", "- item\n  ```\n  code"],
)
def test_a_code_block_that_was_cut_does_not_swallow_the_next_message(cut: str) -> None:
    text = Markdown().conversation(tree("q", cut, "next?", "```\nclosed\n```"))
    assert headings(text) == ["User", "Assistant", "User", "Assistant"]
    assert cut.rstrip("\n") in text


def test_a_complete_code_block_is_left_as_it_is() -> None:
    text = Markdown().conversation(tree("q", "```\nclosed\n```\n\n"))
    assert text.endswith("## Assistant\n\n```\nclosed\n```\n")


def test_a_title_stays_inside_its_quotes() -> None:
    text = Markdown().conversation(tree("q", title='a "b"\nid: x \\ \u0085: #'))
    assert text.split("\n")[1] == 'title: "a \\"b\\" id: x \\\\ \ufffd: #"'


def test_a_message_that_is_not_complete_says_so() -> None:
    assert "## Assistant (cancelled)" in Markdown().conversation(tree("q", "a", status="cancelled"))


def test_conversations_after_each_other_keep_their_own_front_matter() -> None:
    writer = Markdown()
    both = writer.conversation(tree("a", title="x")) + writer.conversation(tree("b", title="y"))
    assert both.count('\n\n---\ntitle: "y"\n') == 1 and both.startswith('---\ntitle: "x"\n')


def test_json_is_whole_with_none_one_and_two_conversations() -> None:
    for count in range(3):
        writer = Json()
        text = writer.begin() + "".join(writer.conversation(tree("é")) for _ in range(count))
        whole = json.loads(text + writer.end())
        assert [one["messages"][0]["text"] for one in whole["conversations"]] == ["é"] * count


def test_a_conversation_without_messages_has_only_its_front_matter() -> None:
    assert Markdown(branches=True).conversation(tree()).endswith("---\n")


@pytest.mark.parametrize("time", [2**63 - 1, -(2**63), 253_402_300_800_000, 10**400])
def test_a_time_that_no_calendar_has_is_none(time: int) -> None:
    odd = Tree(Conversation("c", "t", created_at=time, updated_at=1_700_000_000_000), [])
    lines = Markdown().conversation(odd).split("\n")
    assert "created: null" in lines and "updated: 2023-11-14T22:13:20Z" in lines


def test_messages_that_follow_each_other_in_a_ring_are_written_once() -> None:
    ring = [
        Message("a", "c", "c", "user", "first", "completed"),
        Message("b", "c", "a", "assistant", "second", "completed"),
        Message("c", "c", "b", "user", "third", "completed"),
    ]
    alone = Message("d", "c", "d", "user", "its own", "completed")
    whole = Tree(Conversation("c", "t", head="c"), [*ring, alone])
    shown = Markdown().conversation(whole)
    assert [shown.count(text) for text in ("first", "second", "third")] == [1, 1, 1]
    both = Markdown(branches=True).conversation(whole)
    assert [both.count(text) for text in ("first", "second", "third", "its own")] == [1] * 4
