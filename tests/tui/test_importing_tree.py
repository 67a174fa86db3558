"""Trees of other tools, in any shape, as conversations of hobnob."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hobnob.tui.importing import parts, tree
from hobnob.tui.importing.values import (
    ASSISTANT,
    NOBODY,
    SYSTEM,
    USER,
    Empty,
    Found,
    Node,
    Unreadable,
    words,
)

NOW = 1_800_000_000_000


def node(id: str, parent: str | None, role: str, said: str = "", **fields: Any) -> Node:
    return Node(id, parent, role, parts.blocks(said or (id if role else "")), **fields)


def found(*nodes: Node, **fields: Any) -> Found:
    return Found("test", "c", list(nodes), **fields)


def outline(conversation: Found) -> list[tuple[str, str, int | None]]:
    """Role, text and number of the parent of each message, in order."""
    messages = tree.ready(conversation, NOW).body["messages"]
    numbers = {one["id"]: number for number, one in enumerate(messages)}
    return [
        (one["role"][0], "".join(b["text"] for b in one["blocks"]), numbers.get(one["parent"]))
        for one in messages
    ]


def check(body: dict[str, Any]) -> None:
    """What the server asks of a conversation."""
    roles: dict[str, str] = {}
    replied = set()
    for one in body["messages"]:
        assert one["id"] not in roles
        if one["parent"] is not None:
            assert roles[one["parent"]] != one["role"]
            replied.add(one["parent"])
        assert one["parent"] is not None or one["status"] == "completed"
        roles[one["id"]] = one["role"]
    assert body["head"] is None or body["head"] in roles
    assert {id for id, role in roles.items() if role == USER} <= replied


def test_branches_stay_and_the_shown_one_is_shown() -> None:
    given = found(
        node("q", None, USER),
        node("a", "q", ASSISTANT),
        node("b", "q", ASSISTANT),
        node("q2", "a", USER),
        node("a2", "q2", ASSISTANT),
        head="b",
    )
    assert outline(given) == [
        ("u", "q", None),
        ("a", "a", 0),
        ("a", "b", 0),
        ("u", "q2", 1),
        ("a", "a2", 3),
    ]
    body = tree.ready(given, NOW).body
    assert body["head"] == body["messages"][2]["id"]


def test_places_without_a_message_are_passed_over() -> None:
    given = found(
        node("root", None, NOBODY),
        node("q", "root", USER),
        node("tool", "q", NOBODY, left_out=Counter({"tool result": 1})),
        node("a", "tool", ASSISTANT),
        head="a",
    )
    assert outline(given) == [("u", "q", None), ("a", "a", 0)]
    assert tree.ready(given, NOW).left_out == {"tool result": 1}


def test_a_reply_in_pieces_is_one() -> None:
    pieces = [node("q", None, USER), node("a", "q", ASSISTANT), node("b", "a", ASSISTANT)]
    given = found(*pieces, node("c", "b", ASSISTANT), node("q2", "c", USER), head="q2")
    assert outline(given)[:3] == [("u", "q", None), ("a", "a\n\nb\n\nc", 0), ("u", "q2", 1)]


def test_pieces_that_part_are_whole_on_every_branch() -> None:
    given = found(
        node("q", None, USER),
        node("a", "q", ASSISTANT),
        node("b", "a", ASSISTANT),
        node("c", "a", ASSISTANT),
        node("q2", "a", USER),
        head="a",
    )
    assert outline(given) == [
        ("u", "q", None),
        ("a", "a", 0),
        ("a", "a\n\nb", 0),
        ("a", "a\n\nc", 0),
        ("u", "q2", 1),
        ("a", "", 4),
    ]


def test_a_question_without_a_reply_gets_an_empty_one_that_says_so() -> None:
    given = found(node("q", None, USER), node("q2", "q", USER), head="q2")
    assert outline(given) == [("u", "q", None), ("a", "", 0), ("u", "q2", 1), ("a", "", 2)]
    body = tree.ready(given, NOW).body
    check(body)
    last = body["messages"][3]
    assert (last["status"], last["error"], body["head"]) == ("failed", tree.NO_REPLY, last["id"])


def test_the_first_system_message_is_the_system_prompt_and_others_are_counted() -> None:
    given = found(
        node("s", None, SYSTEM, "Be brief."),
        node("q", "s", USER),
        node("s2", "q", SYSTEM, "Be long."),
        node("s3", "s2", SYSTEM, "Be brief."),
        node("a", "s3", ASSISTANT),
    )
    ready = tree.ready(given, NOW)
    assert ready.body["system"] == "Be brief." and ready.left_out == {"system message": 1}
    assert len(ready.body["messages"]) == 2


def test_a_question_that_was_only_an_image_says_so_where_it_stood() -> None:
    image = Node("q", None, USER, left_out=Counter({"image": 2}))
    given = found(image, node("a", "q", ASSISTANT))
    assert outline(given) == [("u", "[2 images]", None), ("a", "a", 0)]
    assert tree.ready(given, NOW).left_out == {"image": 2}


def test_a_ring_is_cut_and_a_missing_parent_is_none() -> None:
    given = found(
        node("a", "c", USER),
        node("b", "a", ASSISTANT),
        node("c", "b", USER),
        node("d", "d", USER),
        node("e", "gone", USER),
    )
    assert [(text, parent) for _, text, parent in outline(given) if text] == [
        ("a", None),
        ("b", 0),
        ("c", 2 - 1),
        ("d", None),
        ("e", None),
    ]
    check(tree.ready(given, NOW).body)


def test_ids_are_the_same_at_every_import() -> None:
    given = found(node("q", None, USER), node("a", "q", ASSISTANT))
    first, second = (tree.ready(given, now) for now in (NOW, NOW + 1))
    assert [one["id"] for one in first.body["messages"]] == [
        one["id"] for one in second.body["messages"]
    ]
    assert first.id == second.id and len(first.id) == 20


def test_times_come_from_what_is_before_where_the_file_has_none() -> None:
    given = found(
        node("a", "q", ASSISTANT),
        node("q", None, USER, created_at=5_000),
        node("q2", "a", USER, created_at=9_000),
    )
    body = tree.ready(given, NOW).body
    assert [one["created_at"] for one in body["messages"]] == [5_000, 5_000, 9_000, 9_000]
    assert (body["created_at"], body["updated_at"]) == (5_000, 9_000)
    assert tree.ready(found(node("q", None, USER)), NOW).body["created_at"] == NOW


def test_a_title_is_made_of_the_first_words_and_kept_in_its_bound() -> None:
    assert tree.ready(found(node("q", None, USER, "x " * 99)), NOW).title.endswith("x…")
    long = tree.ready(found(node("q", None, USER), title="y" * 900), NOW).title
    assert len(long) == 500 and long.endswith("…")


def test_nothing_at_all_is_empty_and_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Empty):
        tree.ready(found(node("r", None, NOBODY)), NOW)
    monkeypatch.setattr(tree, "MAX_CHARS", 10)
    with pytest.raises(Unreadable, match="characters"):
        tree.ready(found(node("q", None, USER, "x" * 11)), NOW)
    monkeypatch.setattr(tree, "MAX_MESSAGES", 1)
    with pytest.raises(Unreadable, match="messages"):
        tree.ready(found(node("q", None, USER), node("a", "q", ASSISTANT)), NOW)


def test_pieces_that_part_again_and_again_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "MAX_CHARS", 1_000_000)
    chain = [node("q", None, USER)]
    for number in range(1_000):
        chain.append(node(f"a{number}", chain[-1].id, ASSISTANT, "x" * 100))
    with pytest.raises(Unreadable, match="characters"):
        tree.ready(found(*chain), NOW)


def test_a_chain_of_a_hundred_thousand_is_read() -> None:
    roles = (USER, ASSISTANT)
    chain = [
        node(str(i), str(i - 1) if i else None, roles[i % 2], "x") for i in range(tree.MAX_MESSAGES)
    ]
    assert len(tree.ready(found(*chain[::-1]), NOW).body["messages"]) == tree.MAX_MESSAGES


@settings(max_examples=300)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 9),
            st.one_of(st.none(), st.integers(0, 11)),
            st.sampled_from([USER, ASSISTANT, SYSTEM, NOBODY]),
            st.sampled_from(["", "text", "\0\x1b[2J", "\ud800"]),
            st.one_of(st.none(), st.integers(0, 10_000)),
        ),
        max_size=12,
    ),
    st.one_of(st.none(), st.integers(0, 11)),
)
def test_any_tree_becomes_one_that_the_server_takes(
    raw: list[tuple[int, int | None, str, str, int | None]], head: int | None
) -> None:
    nodes = [
        Node(str(id), None if up is None else str(up), role, parts.blocks(said), created_at=when)
        for id, up, role, said, when in raw
    ]
    try:
        body = tree.ready(found(*nodes, head=None if head is None else str(head)), NOW).body
    except Empty:
        return
    check(body)
    json.dumps(body)


def test_what_was_left_out_is_said_in_words() -> None:
    assert words(Counter({"image": 3, "file": 1, "tool reply": 2, "gone": 0})) == (
        "1 file, 3 images, 2 tool replies"
    )
    assert words(Counter({"time of no calendar": 2})) == "2 times of no calendar"


@pytest.mark.parametrize(
    ("value", "time"),
    [
        (1_700_000_000.5, 1_700_000_000_500),
        (1_700_000_000_500, 1_700_000_000_500),
        ("2023-11-14T22:13:20.500Z", 1_700_000_000_500),
        ("2023-11-14T22:13:20.500000", 1_700_000_000_500),
        ("2023-11-15 00:13:20.5+02:00", 1_700_000_000_500),
        (0, 0),
        (None, None),
        (True, None),
        ("soon", None),
        ("9" * 99, None),
        (float("nan"), None),
        (float("inf"), None),
        (10**400, None),
        (1e300, None),
        ({}, None),
    ],
)
def test_times_of_all_kinds_are_read_and_absurd_ones_are_none(value: Any, time: int | None) -> None:
    assert parts.any_time(value) == time
