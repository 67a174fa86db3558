"""Which stored messages speak in a prompt."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hobnob.server.engine.protocol import ChatMessage
from hobnob.server.errors import Conflict
from hobnob.server.history import about, items
from hobnob.store.values import Message


def message(id_: str, role: str, text: str, status: str = "completed", **fields: Any) -> Message:
    return Message(id_, "c", None, role, text, [], status, 0, **fields)


def test_the_system_prompt_comes_first_if_there_is_one() -> None:
    assert items("Be brief.", [], "v")[0].message == ChatMessage("system", "Be brief.")
    assert items(None, [], "v") == items("", [], "v") == []


@pytest.mark.parametrize("status", ["cancelled", "failed", "length"])
def test_a_reply_that_was_cut_off_keeps_its_place(status: str) -> None:
    branch = [message("u", "user", "Hi"), message("a", "assistant", "Hel", status)]
    assert [(i.id, i.message.text) for i in items(None, branch, "v")] == [("u", "Hi"), ("a", "Hel")]


@pytest.mark.parametrize("status", ["cancelled", "failed", "completed"])
def test_a_reply_without_text_is_left_out(status: str) -> None:
    branch = [message("u", "user", "Hi"), message("a", "assistant", "", status)]
    assert [i.id for i in items(None, branch, "v")] == ["u"]


@pytest.mark.parametrize("status", ["queued", "running"])
def test_a_reply_that_is_being_written_is_a_conflict(status: str) -> None:
    with pytest.raises(Conflict):
        items(None, [message("a", "assistant", "Hel", status)], "v")


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({"tokens": [1], "vocab_hash": "v"}, [1]),
        ({"tokens": [1], "vocab_hash": "other"}, None),
        ({"tokens": [1], "vocab_hash": "v", "stop_reason": "stop_string"}, None),
        ({}, None),
    ],
)
def test_ids_are_used_where_they_spell_the_text_in_this_vocabulary(
    fields: dict[str, Any], tokens: list[int] | None
) -> None:
    (item,) = items(None, [message("a", "assistant", "Hi", **fields)], "v")
    assert item.message.tokens == tokens


def test_a_summary_is_one_from_where_something_follows_it() -> None:
    asked = replace(message("u", "user", "Sum up."), blocks=[{"type": "text", "about": "a9"}])
    branch = [asked, message("a", "assistant", "So."), message("v", "user", "And?")]
    assert about(asked) == "a9" and about(branch[2]) is None
    assert about(replace(asked, parent="a0")) is None
    assert [one.summary for one in items("s", branch, "v")] == [False, True, True, False]
    assert [one.summary for one in items(None, branch[:2], "v")] == [False, False]
