"""Colours of code: the characters are never touched, and what would take long stays plain."""

from __future__ import annotations

import pytest

from hobnob.tui.highlight import MAX_CHARS, highlight, language


def test_the_joined_spans_are_the_code() -> None:
    lines = ("", "def f():", "    return 'a'", "", "")
    coloured = highlight(lines, "python")
    assert tuple("".join(t for t, _ in line) for line in coloured) == lines
    assert ("def", "codeblock code-keyword") in coloured[1]


@pytest.mark.parametrize("name", ["", "nonsense", "你好", "x" * 50])
def test_an_unknown_language_is_plain(name: str) -> None:
    assert highlight(("x = 1",), name) == ((("x = 1", "codeblock"),),)


def test_huge_lines_and_huge_blocks_are_plain() -> None:
    assert highlight(("x" * 3000,), "python") == ((("x" * 3000, "codeblock"),),)
    lines = ("x = 1",) * (MAX_CHARS // 5 + 1)
    assert {style for line in highlight(lines, "python") for _, style in line} == {"codeblock"}


@pytest.mark.parametrize(
    ("info", "name"),
    [
        ("python", "python"),
        ('c++ title="a"', "c++"),
        ("{.rust}", "rust"),
        ("JSON,x", "json"),
        ("", ""),
    ],
)
def test_the_language_is_the_first_word_of_the_info(info: str, name: str) -> None:
    assert language(info) == name
