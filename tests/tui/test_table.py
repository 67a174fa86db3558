"""Tables: every cell is shown, at any width."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from hobnob.tui import table

LINES = ["| Name | What it does | N |", "|---|:-:|--:|", "| `a` | does **much** for you | 1 |"]


def texts(lines: list[str], width: int) -> list[str]:
    return ["".join(text for text, _ in row).rstrip() for row in table.render(lines, width)]


def test_columns_are_as_wide_as_their_words() -> None:
    assert texts(LINES, 60) == [
        "Name │   What it does    │ N",
        "─────┼───────────────────┼──",
        "a    │ does much for you │ 1",
    ]


def test_cells_wrap_when_the_screen_is_narrow() -> None:
    out = texts(LINES, 26)
    assert all(cell_len(row) <= 26 for row in out)
    assert "".join(out).replace(" ", "").count("much") == 1


def test_a_table_that_does_not_fit_is_shown_as_written() -> None:
    assert "".join(texts(LINES, 8)).replace(" ", "") == "".join(LINES).replace(" ", "")


def test_cells_beyond_the_header_are_shown() -> None:
    out = texts(["|a|", "|-|", "|1|2|3|"], 40)
    assert out[-1].split() == ["1", "│", "2", "│", "3"]


@pytest.mark.parametrize("width", range(2, 40))
def test_borders_stay_in_line_whatever_the_characters(width: int) -> None:
    lines = ["|你好|👩‍👩‍👧‍👦|", "|-|-|", "|ab|✔️ fine|"]
    rows = texts(lines, width)
    assert all(cell_len(row) <= width for row in rows)
    places = {cell_len(row[: row.index("│")]) for row in rows if "│" in row}
    assert len(places) == (1 if width >= 11 else 0)
