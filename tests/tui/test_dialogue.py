"""Messages that were said before, as JSON: what is read, and what is refused with which words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hobnob.exits import Exit
from hobnob.tui.dialogue import Dialogue, parse
from hobnob.tui.stdin import PromptError

SAID = [("user", "2 + 2?"), ("assistant", "4"), ("user", "sure?")]
RAW: list[dict[str, Any]] = [{"role": role, "content": text} for role, text in SAID]
SYSTEM = {"role": "system", "content": "Be brief."}


def parsed(raw: Any) -> Dialogue:
    return parse(json.dumps(raw), "chat.json")


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(RAW),
        json.dumps(RAW, indent=2),
        json.dumps({"model": "x", "messages": RAW}),
        "\n".join(json.dumps(one) for one in RAW),
        "\n\n" + "\r\n".join(json.dumps(one) for one in RAW) + "\n\n",
        json.dumps([{**one, "content": [{"type": "text", "text": one["content"]}]} for one in RAW]),
        json.dumps({"id": "x", "messages": [{"role": r, "text": t, "id": "y"} for r, t in SAID]}),
    ],
)
def test_an_array_an_object_of_messages_and_a_message_a_line_say_the_same(text: str) -> None:
    assert parse(text, "chat.json") == Dialogue("chat.json", None, SAID)


def test_a_single_message_is_a_line_too() -> None:
    assert parsed(RAW[0]).said == SAID[:1]


@pytest.mark.parametrize("role", ["system", "developer"])
def test_the_first_message_may_be_the_system_prompt(role: str) -> None:
    assert parsed([{**SYSTEM, "role": role}, *RAW]) == Dialogue("chat.json", "Be brief.", SAID)
    assert parsed({"system": "Be brief.", "messages": RAW}).system == "Be brief."
    assert parsed({"system": None, "messages": RAW}).system is None


def test_several_texts_of_a_message_are_joined_and_half_a_character_is_replaced() -> None:
    parts = [{"type": "text", "text": "a\ud800"}, {"type": "text", "text": "b"}]
    assert parsed([{"role": "user", "content": parts}]).said == [("user", "a\ufffd\nb")]


def test_a_line_separator_within_a_text_splits_no_line() -> None:
    line = json.dumps({"role": "user", "content": "a\u2028b"}, ensure_ascii=False)
    assert parse(f"{line}\n", "x").said == [("user", "a\u2028b")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "There are no messages in chat.json"),
        ("nonsense", "is no JSON: Expecting value at line 1, column 1"),
        (json.dumps(RAW)[:-1], "is no JSON: Expecting ',' delimiter"),
        (json.dumps(RAW[0]) + "\n{oops", "Line 2 of chat.json is no JSON"),
        ("[" * 100_000, "is no JSON that can be read"),
        ("[]", "There are no messages in chat.json"),
        ("{}", "chat.json has no messages: they are an array"),
        ("3", "chat.json has no messages"),
        ("[3]", "Message 1 of chat.json is no object"),
        (json.dumps([*RAW, SYSTEM]), "Message 4 of chat.json is a system message"),
        (json.dumps(RAW[1:]), "Message 1 of chat.json is the assistant's, and it is the user's"),
        (json.dumps([SYSTEM, RAW[1]]), "Message 2 of chat.json is the assistant's"),
        (json.dumps([RAW[0], RAW[0]]), "Message 2 of chat.json is the user's, and it is the assis"),
        ('[{"role": "tool", "content": "x"}]', "has another role than system, user or assistant"),
        ('[{"role": ["user"], "content": "x"}]', "has another role"),
        ('[{"content": "x"}]', "has another role"),
        ('[{"role": "user"}]', "has content that is no text"),
        ('[{"role": "user", "content": " "}]', "Message 1 of chat.json is empty"),
        ('[{"role": "user", "content": []}]', "is empty"),
        ('[{"role": "user", "content": [{"type": "image_url"}]}]', "content that is no text"),
        ('[{"role": "assistant", "content": null, "tool_calls": [{}]}]', "calls tools"),
    ],
)
def test_what_cannot_be_sent_is_named_in_one_sentence(text: str, words: str) -> None:
    with pytest.raises(PromptError) as raised:
        parse(text, "chat.json")
    assert words in raised.value.message and "\n" not in raised.value.message
    assert raised.value.exit_code is Exit.USAGE


def test_the_last_message_of_the_user_is_asked_or_the_prompt_after_a_reply() -> None:
    assert parsed(RAW).asked(None) == ("sure?", SAID[:2])
    assert parsed(RAW[:2]).asked("more") == ("more", SAID[:2])
    assert parsed([SYSTEM]).asked("more") == ("more", [])
    with pytest.raises(PromptError, match="without a PROMPT"):
        parsed(RAW).asked("more")
    with pytest.raises(PromptError, match="give a PROMPT"):
        parsed(RAW[:2]).asked(None)
    with pytest.raises(PromptError, match="give a PROMPT"):
        parsed([SYSTEM]).asked(None)
