"""Splitting Markdown into blocks: what is a block, and that chunks never matter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support_documents import DOCUMENTS, MARKDOWN

from hobnob.tui.blocks import Splitter, alignments, cells, split


def fed(text: str, sizes: list[int]) -> list:
    splitter = Splitter()
    at = turn = 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        splitter.feed(text[at : at + size])
        splitter.tail()
        at, turn = at + size, turn + 1
    splitter.close()
    return splitter.blocks


@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_a_document_in_pieces_gives_the_blocks_of_the_whole(name: str, size: int) -> None:
    document = DOCUMENTS[name]
    assert fed(document, [size]) == split(document)


@given(MARKDOWN, st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_no_way_of_cutting_changes_the_blocks(text: str, sizes: list[int]) -> None:
    assert fed(text, sizes) == split(text)


@given(MARKDOWN)
def test_closed_blocks_never_change(text: str) -> None:
    splitter = Splitter()
    before: list = []
    for char in text:
        splitter.feed(char)
        assert splitter.blocks[: len(before)] == before
        before = list(splitter.blocks)


@given(MARKDOWN)
def test_letters_and_digits_are_never_lost(text: str) -> None:
    shown = "".join(b.first + b.info + b.text for b in split(text))
    kept = [c for c in text if c.isalpha()]
    left = iter(shown)
    assert all(c in left for c in kept)


def kinds(text: str) -> list[str]:
    return [block.kind for block in split(text)]


def test_the_kinds_of_blocks() -> None:
    text = "# T\n\npara\n\n```py\nx\n```\n\n- a\n\n> q\n\n---\n\n|a|b|\n|-|-|\n|1|2|\n\n$$\nx\n$$\n"
    assert kinds(text) == [
        "heading", "paragraph", "code", "paragraph", "paragraph", "rule", "table", "math",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("````md\n```py\nx\n```\n````\nafter", "```py\nx\n```"),
        ("~~~\nx\n```\n~~~\n", "x\n```"),
        ("- item\n  ```\n  a\n    b\n  ```\n", "a\n  b"),
        ("```c++ title=\"a\"\nx\n```", "x"),
        ("```\nunclosed\n", "unclosed"),
        ("```\nx\n```", "x"),
        ("    indented\n\n    more\n\ntext", "indented\n\nmore"),
        ("> ```\n> quoted\n> ```", "quoted"),
    ],
)  # fmt: skip
def test_a_fence_of_any_kind_has_its_exact_body(text: str, body: str) -> None:
    code = [block for block in split(text) if block.kind == "code"]
    assert [block.text for block in code] == [body]


def test_text_after_a_closed_fence_is_not_code() -> None:
    assert kinds("```\nx\n```\nafter") == ["code", "paragraph"]


def test_list_numbers_are_as_the_model_wrote_them() -> None:
    assert [b.first for b in split("1. a\n5. b\n10) c")] == ["1. ", "5. ", "10) "]


def test_nested_items_are_indented_under_their_parent() -> None:
    blocks = split("- a\n  - b\n    more b\n- c")
    assert [(b.first, b.rest) for b in blocks] == [
        ("• ", "  "),
        ("  ◦ ", "    "),
        ("• ", "  "),
    ]
    assert blocks[1].lines == ("b", "more b")


def test_a_year_at_the_start_of_a_line_does_not_begin_a_list() -> None:
    assert kinds("It was in\n1986. A good year") == ["paragraph"]


def test_an_empty_item_still_shows_its_marker() -> None:
    assert [b.first for b in split("- \n- x")] == ["• ", "• "]


def test_rows_are_apart_where_the_text_has_an_empty_line_and_around_code() -> None:
    blocks = split("a\n- b\n\n- c\n```\nd\n```\ne")
    assert [b.gap for b in blocks] == [False, False, True, True, True]


def test_windows_line_ends_are_line_ends_and_a_lone_return_is_shown() -> None:
    (block,) = split("a\r\nb\rc\r\n")
    assert block.lines == ("a", "b␍c")


def test_control_characters_are_made_visible() -> None:
    (block,) = split("A\x1b]52;c;aGk=\x1b\\B\x9d0;x\x9cC")
    assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 for c in block.text)
    assert [c for c in block.text if c in "ABC"] == ["A", "B", "C"]


def test_a_bar_in_code_does_not_end_a_cell() -> None:
    assert cells("| a | `x|y` | c \\| d |") == ["a", "`x|y`", "c | d"]


def test_alignments_follow_the_colons() -> None:
    assert alignments("|:-|:-:|-:|-|") == ["left", "center", "right", "left"]


def test_markers_deeper_than_the_limit_are_text() -> None:
    (block,) = split(">" * 1000 + " deep")
    assert block.text.endswith("deep")


def test_a_line_of_marks_is_held_back_until_it_says_what_it_is() -> None:
    splitter = Splitter()
    splitter.feed("Intro:\n-")
    assert [b.kind for b in splitter.tail()] == ["paragraph"]
    splitter.feed(" item")
    assert [b.text for b in splitter.tail()] == ["Intro:", "item"]
