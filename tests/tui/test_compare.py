"""Columns in words, what differs between replies, and the page they are written down on."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from support_documents import DOCUMENTS, HOSTILE

from hobnob.server import wire
from hobnob.tui.compare import (
    MOST_WORDS,
    USUAL,
    Column,
    Mark,
    difference,
    label,
    markdown,
    read_settings,
    sameness,
    settings_line,
    window,
)
from hobnob.tui.transcript import Entry, Part


def column(text: str = "", **fields: Any) -> Column:
    reply = (
        Entry("r", "assistant", [Part("text", text, ended=True)], model="Tiny") if text else None
    )
    return Column(reply=reply, **fields)


# ---- settings


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, USUAL),
        ({"options": {"temperature": 0.2, "seed": 7}}, "temperature 0.2 · seed 7"),
        ({"instructions": ""}, "no system prompt"),
        ({"instructions": "Answer as\na pirate."}, "“Answer as a pirate.”"),
        ({"options": {"stop": ["\n"]}, "instructions": "x" * 99}, 'stop ["\\n"] · “' + "x" * 27),
    ],
)
def test_a_column_is_named_by_what_is_special_about_it(fields: Any, words: str) -> None:
    assert label(Column(**fields)).startswith(words)


def test_a_columns_name_is_one_line_of_harmless_text() -> None:
    name = label(Column(instructions=HOSTILE, options={"stop": [HOSTILE]}))
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u202e]", name)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.2, "top_p": 1, "exact": True, "seed": 2**64 - 1},
        {"stop": ["\n\n", "a b", "7", 'a "quoted" one', "it's"]},
        {"logit_bias": {"17": -5.5}, "dry_sequence_breakers": ["null"]},
    ],
)
def test_options_are_read_as_they_are_written(options: dict[str, Any]) -> None:
    if "stop" in options:
        assert read_settings(settings_line(options))["stop"][:2] == options["stop"][:2]
    else:
        assert read_settings(settings_line(options)).keys() == options.keys()
    numbers = {name: value for name, value in options.items() if not isinstance(value, list)}
    assert {name: read_settings(settings_line(options))[name] for name in numbers} == numbers


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("temperature", "Write name=value"),
        ("temperature 0.2", "Write name=value"),
        ("=3", "Write name=value"),
        ('stop="x', "quotation mark"),
    ],
)
def test_what_is_no_option_is_refused_in_words(line: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_settings(line)


def test_other_settings_take_the_reply_away_and_the_same_ones_do_not() -> None:
    one = column("hello", options={"seed": 1}, key="k", trouble="t")
    one.change(None, {"seed": 1})
    assert one.text == "hello"
    one.change("Rhyme.", {"seed": 1})
    assert (one.reply, one.key, one.trouble) == (None, "", "")


# ---- room


@pytest.mark.parametrize(
    ("count", "current", "first", "cells", "shown"),
    [
        (4, 0, 0, 80, (0, 2)),
        (4, 1, 0, 80, (0, 2)),
        (4, 2, 0, 80, (1, 3)),
        (4, 3, 1, 80, (2, 4)),
        (4, 0, 2, 80, (0, 2)),
        (4, 3, 0, 40, (3, 4)),
        (4, 3, 3, 200, (0, 4)),
        (2, 1, 0, 1000, (0, 2)),
        (3, 2, 2, 10, (2, 3)),
        (2, 1, 1, 0, (1, 2)),
    ],
)
def test_as_many_columns_as_there_is_room_for_are_shown(
    count: int, current: int, first: int, cells: int, shown: tuple[int, int]
) -> None:
    assert window(count, current, first, cells) == shown


# ---- differences


def test_words_that_were_exchanged_added_and_removed_are_marked() -> None:
    assert difference("The cat sat down.", "The big dog sat.") == [
        (Mark.SAME, "The"),
        (Mark.REMOVED, " cat"),
        (Mark.ADDED, " big dog"),
        (Mark.SAME, " sat"),
        (Mark.REMOVED, " down"),
        (Mark.SAME, "."),
    ]


def test_spaces_and_line_breaks_alone_are_no_difference() -> None:
    assert difference("a b\nc", "a  b c") == [(Mark.SAME, "a  b c")]
    assert difference("a b", "a b\n") == [(Mark.SAME, "a b\n")]
    assert difference("a b\n", " a b") == [(Mark.SAME, " a b")]
    assert difference("", "") == []
    assert sameness(difference("a b", "a\nb")) == 1.0


def test_texts_without_spaces_differ_by_signs() -> None:
    assert difference("我喜欢猫", "我喜欢狗") == [
        (Mark.SAME, "我喜欢"),
        (Mark.REMOVED, "猫"),
        (Mark.ADDED, "狗"),
    ]


def test_the_share_of_words_in_both_is_said() -> None:
    assert sameness(difference("a b c d", "a b c e")) == 0.75
    assert sameness(difference("a", "b")) == 0.0
    assert sameness([]) == 1.0


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_what_is_the_same_or_added_is_the_second_text_letter_for_letter(name: str) -> None:
    after = DOCUMENTS[name]
    picked = random.Random(name)
    before = "".join(word for word in re.split(r"(\s+)", after) if picked.random() < 0.8)
    for old, new in ((before, after), (after, before), (after, after)):
        found = difference(old, new)
        assert "".join(text for mark, text in found if mark is not Mark.REMOVED) == new
        gone = "".join(text for mark, text in found if mark is not Mark.ADDED)
        assert gone.split() == old.split() or "".join(gone.split()) == "".join(old.split())


def test_long_texts_are_compared_by_lines_and_a_long_change_is_one() -> None:
    words = [f"w{number % 997}" for number in range(MOST_WORDS + 1)]
    long = " ".join(words)
    found = difference(f"first line\n{long}\nlast\n", f"first word\n{long[::-1]}\nlast\n")
    assert "".join(text for mark, text in found if mark is not Mark.REMOVED).endswith("\nlast\n")
    assert [mark for mark, _ in found][-3:] == [Mark.REMOVED, Mark.ADDED, Mark.SAME]
    assert found[-1] == (Mark.SAME, "last\n")


# ---- Markdown


def finished(text: str) -> Column:
    made = column(text, options={"temperature": 0.2}, seed=7)
    assert made.reply is not None
    made.reply.usage = wire.Usage(120, 0, 88)
    made.reply.timings = wire.Timings(prefill_s=0.3, first_decode_s=0.1, decode_s=2.8)
    made.reply.stop_reason = "end_turn"
    return made


def test_a_comparison_is_written_down_with_its_figures() -> None:
    other = Column(instructions="Be ```brief```.", trouble="Too busy.")
    page = markdown("A title", "What is\nthis?", [finished("**It** is.\n"), other])
    assert page == (
        "# A title\n\n"
        "> What is\n> this?\n\n"
        "|  | A | B |\n"
        "| --- | --- | --- |\n"
        "| settings | temperature 0.2 | “Be \\`\\`\\`brief\\`\\`\\`.” |\n"
        "| seed | 7 |  |\n"
        "| model | Tiny |  |\n"
        "| first token | 0.4 s |  |\n"
        "| tokens/s | 31.1 |  |\n"
        "| tokens | 88 |  |\n"
        "| prompt tokens | 120 |  |\n"
        "| ended | end_turn |  |\n\n"
        "## A: temperature 0.2\n\n"
        "**It** is.\n\n"
        "## B: “Be \\`\\`\\`brief\\`\\`\\`.”\n\n"
        "System prompt:\n\n````\nBe ```brief```.\n````\n\n"
        "*Too busy.*\n"
    )


def test_nothing_on_the_page_acts_on_a_terminal() -> None:
    other = Column(instructions=HOSTILE, trouble=HOSTILE)
    page = markdown(HOSTILE, HOSTILE, [finished(HOSTILE), other])
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", page)


def test_a_table_has_as_many_cells_whatever_stands_in_them() -> None:
    page = markdown("t", "p", [Column(instructions="a | b"), Column(options={"stop": ["|"]})])
    rows = [line for line in page.split("\n") if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {4}
