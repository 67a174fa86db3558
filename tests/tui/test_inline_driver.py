"""Frames below the scrollback: whatever is drawn after what, the terminal shows the last frame
below all that was printed."""

from __future__ import annotations

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Offset
from textual.strip import Strip

from hobnob.tui.inline_driver import Frame, alike, bare, rows_up

WIDTH, HEIGHT = 20, 6
CONSOLE = Console(color_system="truecolor", width=WIDTH, legacy_windows=False)

ROWS = st.lists(st.text(alphabet="ab ", max_size=WIDTH), min_size=1, max_size=HEIGHT)
PRINTED = st.lists(st.text(alphabet="xyz", min_size=1, max_size=WIDTH), max_size=4)


class Keeping(pyte.HistoryScreen):  # type: ignore[misc]
    """As tmux: what is cleared from the screen's first cell on goes into the history."""

    def erase_in_display(self, how: int = 0, *given: object, **named: object) -> None:
        if how == 0 and (self.cursor.x, self.cursor.y) == (0, 0):
            self.history.top.extend(self.buffer[row].copy() for row in range(self.lines))
        super().erase_in_display(how, *given, **named)


def strips(rows: list[str]) -> list[Strip]:
    return [Strip([Segment(row)]) for row in rows]


@given(st.lists(st.tuples(PRINTED, ROWS, st.integers(0, HEIGHT)), min_size=1, max_size=12))
def test_the_last_frame_stands_below_all_that_was_printed(
    frames: list[tuple[list[str], list[str], int]],
) -> None:
    screen = Keeping(WIDTH, HEIGHT, history=1000, ratio=0.5)
    stream = pyte.Stream(screen)
    before: list[Strip] = []
    up = 0
    for printed, rows, cursor in frames:
        frame = Frame(strips(rows), strips(printed), before, clear=len(rows) < len(before))
        moved = f"\x1b[{up}A" if up else ""
        stream.feed(moved + frame.render_segments(CONSOLE))
        up = min(cursor, len(rows) - 1)
        stream.feed(f"\x1b[{up}B" if up else "")
        before = frame.strips
    above = ["".join(row[n].data for n in range(WIDTH)) for row in screen.history.top]
    shown = [row.rstrip() for row in (*above, *screen.display)]
    wanted = [row for printed, _, _ in frames for row in printed]
    wanted += [row.rstrip() for row in frames[-1][1]]
    left = [row for row in shown if row.strip("xyz ")]
    assert left == [row for row in wanted if row.strip("xyz ")]
    # A frame that was higher may have pushed empty rows up; it never takes printed ones away.
    assert [row for row in shown if "x" in row or "y" in row or "z" in row] == wanted[
        : sum(len(printed) for printed, _, _ in frames)
    ]
    last = [row.rstrip() for row in frames[-1][1]]
    at = screen.cursor.y - up
    assert [row.rstrip() for row in screen.display[at : at + len(last)]] == last
    assert not any(row.strip() for row in screen.display[at + len(last) :])


def test_what_has_not_changed_is_not_written_again() -> None:
    before = strips(["one", "some words", "three"])
    frame = Frame(strips(["one", "some words more", "three"]), [], before, clear=False)
    written = frame.render_segments(CONSOLE)
    assert " more" in written
    assert not any(word in written for word in ("one", "some", "three"))


def test_what_terminals_may_not_agree_on_is_written_with_all_that_follows() -> None:
    one, other = (Strip([Segment(f"ab 👩‍👧 {end}")]) for end in ("x", "y"))
    assert alike(one, other) == 3
    bold = Strip([Segment("ab", Style(bold=True))])
    assert alike(bold, Strip([Segment("ab")])) == 0


@pytest.mark.parametrize(
    ("segments", "shown"),
    [
        ([Segment("ab  "), Segment("   ", Style(bold=True))], "ab"),
        ([Segment("ab  ", Style(bgcolor="red"))], "ab  "),
        ([Segment("ab"), Segment("  ", Style(reverse=True))], "ab  "),
        ([Segment("  ")], ""),
        ([], ""),
    ],
)
def test_empty_cells_at_the_end_of_a_row_are_not_written(
    segments: list[Segment], shown: str
) -> None:
    assert bare(Strip(segments), Style(bgcolor="blue")).text == shown


def test_the_background_of_the_screen_is_the_terminals() -> None:
    blue, red = Style(color="white", bgcolor="blue", bold=True), Style(bgcolor="red")
    kept = bare(Strip([Segment("a", blue), Segment("b", red)]), Style(bgcolor="blue"))
    assert [segment.style for segment in kept] == [Style(color="white", bold=True), red]


@pytest.mark.parametrize(
    ("lengths", "cursor", "width", "up"),
    [
        ([0, 70, 60], Offset(69, 1), 80, Offset(69, 1)),
        ([0, 70, 60], Offset(69, 1), 60, Offset(9, 2)),
        ([0, 70, 60], Offset(4, 2), 30, Offset(4, 4)),
        ([30, 30], Offset(0, 1), 30, Offset(0, 1)),
        ([], Offset(3, 0), 0, Offset(0, 3)),
    ],
)
def test_rows_that_a_narrower_terminal_wraps_are_counted(
    lengths: list[int], cursor: Offset, width: int, up: Offset
) -> None:
    assert rows_up(lengths, cursor, width) == up
