"""Which code block is meant, and how it is called."""

from __future__ import annotations

from hobnob.tui.code_blocks import Choice, choose, number_of, of_last
from hobnob.tui.commands import command_of
from hobnob.tui.records import Message
from hobnob.tui.transcript import ASSISTANT, USER, Entry, entry


def said(text: str, role: str = ASSISTANT) -> Entry:
    return entry(Message("m", "c", None, role, text, "completed", 0, "M"))


def test_the_last_message_that_has_code_is_meant() -> None:
    older = said("```\na\n```\nand\n```\nb\n```\n")
    assert of_last([older, said("thanks", USER), said("You are welcome.")]) == ["a", "b"]
    assert of_last([said("none")]) == of_last([]) == []


def test_the_last_block_is_meant_where_none_is_named_and_is_said_where_there_are_several() -> None:
    assert choose(["a", "b"]) == Choice("b", "Code 2 of 2. ")
    assert choose(["a", "b"], 1) == Choice("a", "Code 1 of 2. ")
    assert choose(["a"]) == Choice("a", "")


def test_why_there_is_no_such_block_is_said() -> None:
    assert choose([]) == choose([], 3) == Choice(None, "There is no code block.")
    assert choose(["a"], 2) == Choice(None, "There is no code 2: the message has one.")
    assert choose(["a", "b"], 0) == Choice(None, "There is no code 0: the message has 2.")


def test_only_a_number_after_the_command_makes_one() -> None:
    assert command_of("/code 2") == ("/code", "2")
    assert command_of("/code review") is None
    assert number_of("2") == 2 and number_of("") is None
    assert number_of("9" * 5000) == 999_999
