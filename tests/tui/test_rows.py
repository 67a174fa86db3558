"""Blocks as rows: a stream ends as a fresh load begins, and a chunk costs what it brings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support_documents import DOCUMENTS, MARKDOWN

from hobnob.tui import rows
from hobnob.tui.blocks import Block, Splitter, split
from hobnob.tui.message_rows import MessageRows
from hobnob.tui.rows import Row, Tail, render
from hobnob.tui.transcript import Entry, Part


def loaded(text: str, width: int) -> list[Row]:
    made = MessageRows(Entry("m", "assistant", [Part("text", text, ended=True)]), width)
    made.update()
    return made.rows


def streamed(text: str, width: int, size: int) -> list[Row]:
    part = Part("text")
    made = MessageRows(Entry("m", "assistant", [part]), width)
    for at in range(0, len(text), size):
        part.add(text[at : at + size])
        made.update()
    part.end()
    made.update()
    return made.rows


@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize("size", [1, 3, 16])
def test_a_streamed_document_ends_as_a_loaded_one(name: str, size: int) -> None:
    document = DOCUMENTS[name]
    size = size if len(document) < 1000 else size * 11
    assert streamed(document, 38, size) == loaded(document, 38)


@given(MARKDOWN, st.integers(1, 9), st.integers(1, 50))
def test_no_way_of_cutting_and_no_width_changes_the_rows(text: str, size: int, width: int) -> None:
    assert streamed(text, width, size) == loaded(text, width)


@given(MARKDOWN, st.integers(2, 40))
def test_the_open_end_looks_as_it_would_if_the_text_ended_there(text: str, width: int) -> None:
    splitter, tail = Splitter(), Tail(width)
    for char in text:
        splitter.feed(char)
        for block, drawn in tail.rows(len(splitter.blocks), splitter.tail()):
            fresh = render(block, width, colours=False)
            assert [row.text for row in drawn] == [row.text for row in fresh]


@pytest.mark.parametrize(
    "document",
    [
        "word " * 8000,
        "x" * 40_000,
        "```py\n" + "value = compute(1)\n" * 2000 + "```\n",
        "```\n" + "y" * 40_000 + "\n```\n",
        "- item **b** and more\n" * 1800,
        "> quoted words\n" * 2500,
        "|a|b|\n|-|-|\n" + "|1|some text|\n" * 2500,
    ],
    ids=["prose", "word", "code", "code line", "list", "quote", "table"],
)
def test_what_a_chunk_costs_does_not_grow_with_the_text(document: str) -> None:
    splitter, tail = Splitter(), Tail(60)
    work = []
    for at in range(0, len(document), 50):
        splitter.feed(document[at : at + 50])
        before = tail.work
        tail.rows(len(splitter.blocks), splitter.tail())
        work.append(tail.work - before)
    assert max(work) <= 2 * 2048 + 200
    quarter = len(work) // 4
    assert sum(work[-quarter:]) <= 2 * sum(work[quarter : 2 * quarter]) + 8000


def test_a_closed_block_is_laid_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0
    real = rows.render

    def counting(block: Block, width: int, **options: bool) -> list[Row]:
        nonlocal count
        count += options.get("colours", True)
        return real(block, width, **options)

    monkeypatch.setattr(rows, "render", counting)
    text = "para\n\n" * 100
    streamed(text, 40, 3)
    assert count == len(split(text))


def test_an_open_fence_is_plain_and_a_closed_one_is_coloured() -> None:
    splitter, tail = Splitter(), Tail(40)
    splitter.feed("```python\ndef f(): pass\n")
    ((_, drawn),) = tail.rows(0, splitter.tail())
    assert {style for row in drawn[1:] for _, style in row.spans} == {"codeblock"}
    splitter.feed("```\n")
    styles = {style for row in render(splitter.blocks[0], 40) for _, style in row.spans}
    assert "codeblock code-keyword" in styles


def test_a_code_block_names_its_language_and_can_be_copied() -> None:
    head, *_ = render(split("```python\nx\n```")[0], 30)
    assert head.text.split() == ["python", "copy"]
    assert head.action == "copy-code"


@pytest.mark.parametrize("width", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("name", DOCUMENTS)
def test_no_document_needs_more_room_than_there_is(name: str, width: int) -> None:
    for block in split(DOCUMENTS[name]):
        assert render(block, width)


def test_deep_lists_leave_room_for_their_text() -> None:
    text = "".join("  " * n + f"- level {n}\n" for n in range(20))
    for block in split(text):
        for row in render(block, 20):
            assert len(row.text) <= 20
