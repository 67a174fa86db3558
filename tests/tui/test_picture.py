"""The fewest bytes to a screen: that they are few, and that they show what Textual would."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len, set_cell_size
from rich.color import ColorSystem
from rich.console import Console
from support_picture import Look, Shown, part, whole
from textual._compositor import ChopsUpdate, LayoutUpdate

from hobnob.tui.picture import Abilities, Picture

WIDTH, HEIGHT = 40, 12
STYLES = [
    *("", "red", "on blue", "bold green on blue", "underline", "reverse", "italic on #102030"),
    *("bold underline red", "strike", "bold italic reverse"),
]
EVERYTHING = Abilities(scrolls=True, erases=True)
CONSOLE = Console(color_system="truecolor", width=WIDTH)

PIECES = st.tuples(
    st.sampled_from(["a", "word", " ", "   ", "你好", "é", "─", "x" * 12, " " * 15]),
    st.sampled_from(STYLES),
)


def row(pieces: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The pieces as one row of exactly the screen's width."""
    out, used = [], 0
    for text, style in pieces:
        size = min(cell_len(text), WIDTH - used)
        out.append((set_cell_size(text, size), style))
        used += size
    return [*out, (" " * (WIDTH - used), "")]


ROWS = st.lists(PIECES, max_size=6).map(row)
LOOKS = st.lists(ROWS, min_size=HEIGHT, max_size=HEIGHT)


def drawn(picture: Picture, update: ChopsUpdate | LayoutUpdate) -> str:
    return picture.draw(update, ColorSystem.TRUECOLOR)


def plainly(look: Look) -> Shown:
    """A terminal that Textual itself has drawn everything on."""
    shown = Shown(WIDTH, HEIGHT)
    shown.write(whole(look, WIDTH).render_segments(CONSOLE))
    return shown


@pytest.mark.parametrize("scrolls", [False, True])
@pytest.mark.parametrize("erases", [False, True])
@settings(max_examples=30)
@given(first=LOOKS, data=st.data())
def test_whatever_changes_the_terminal_shows_what_textual_would(
    scrolls: bool, erases: bool, first: Look, data: st.DataObject
) -> None:
    picture = Picture(Abilities(scrolls, erases))
    shown, plain = Shown(WIDTH, HEIGHT, coloured=erases), Shown(WIDTH, HEIGHT)

    def draw(update: ChopsUpdate | LayoutUpdate) -> None:
        shown.write(drawn(picture, update))
        plain.write(update.render_segments(CONSOLE))
        assert shown.cells() == plain.cells()

    draw(whole(first, WIDTH))
    look = first
    for _ in range(data.draw(st.integers(1, 4))):
        top = data.draw(st.integers(0, HEIGHT - 1))
        bottom = data.draw(st.integers(top + 1, HEIGHT))
        by = data.draw(st.integers(0, bottom - top))
        fresh = data.draw(st.lists(ROWS, min_size=by, max_size=by))
        changed = set(range(top, bottom)) if by else set()
        look = [*look[:top], *look[top + by : bottom], *fresh, *look[bottom:]]
        for y in data.draw(st.sets(st.integers(0, HEIGHT - 1), max_size=3)):
            look[y] = data.draw(ROWS)
            changed.add(y)
        if changed:
            cuts = data.draw(st.sampled_from([[], [1, 30], [20, WIDTH - 1]]))
            update = part(look, WIDTH, sorted(changed), cuts)
            draw(update)
            assert drawn(picture, update) == "", "the same again costs nothing"


def text_rows(count: int, *, first: int = 0) -> Look:
    words = "of a reply that goes on and on, with words"
    return [
        row([(f"{n:03d} {words}"[:36], "#e0e0e0 on #121212")]) for n in range(first, first + count)
    ]


def test_a_row_that_comes_in_at_the_end_is_about_all_that_is_written() -> None:
    picture = Picture(EVERYTHING)
    drawn(picture, whole(text_rows(HEIGHT), WIDTH))
    written = drawn(picture, part(text_rows(HEIGHT, first=1), WIDTH, range(HEIGHT)))
    assert len(written) < 36 + 90


def test_text_that_grows_is_written_once() -> None:
    picture = Picture(EVERYTHING)
    look = text_rows(HEIGHT)
    look[5] = row([("He said", "#e0e0e0 on #121212")])
    drawn(picture, whole(look, WIDTH))
    look[5] = row([("He said so", "#e0e0e0 on #121212")])
    written = drawn(picture, part(look, WIDTH, [5]))
    assert "said" not in written and "so" in written


def test_what_stands_beside_rows_that_move_stays() -> None:
    picture = Picture(EVERYTHING)
    shown = Shown(WIDTH, HEIGHT, coloured=True)
    names = [f"name {n}".ljust(10) for n in range(HEIGHT)]

    def look(first: int) -> Look:
        rows = [[(f"row {n} " + "x" * 22)[:30]] for n in range(first, first + HEIGHT)]
        return [
            row([(name, "on blue"), (text, "")]) for name, (text,) in zip(names, rows, strict=True)
        ]

    shown.write(drawn(picture, whole(look(0), WIDTH)))
    shown.write(drawn(picture, part(look(3), WIDTH, range(HEIGHT), [10])))
    assert shown.cells() == plainly(look(3)).cells()


def test_drawing_everything_does_not_trust_what_was_there() -> None:
    picture = Picture(EVERYTHING)
    look = text_rows(HEIGHT)
    drawn(picture, whole(look, WIDTH))
    assert "011" in drawn(picture, whole(look, WIDTH))


def test_after_forgetting_all_that_is_asked_for_is_written() -> None:
    picture = Picture(EVERYTHING)
    look = text_rows(HEIGHT)
    drawn(picture, whole(look, WIDTH))
    picture.forget()
    assert "005" in drawn(picture, part(look, WIDTH, [5]))


def test_another_size_is_another_screen() -> None:
    picture = Picture(EVERYTHING)
    drawn(picture, whole(text_rows(HEIGHT), WIDTH))
    assert "005" in drawn(picture, part(text_rows(HEIGHT - 1), WIDTH, [5]))


def test_a_link_keeps_its_target() -> None:
    picture = Picture(EVERYTHING)
    drawn(picture, whole(text_rows(HEIGHT), WIDTH))
    look = text_rows(HEIGHT)
    look[3] = row([("here", "link https://example.org"), (" and there", "")])
    written = drawn(picture, part(look, WIDTH, [3]))
    assert ";https://example.org\x1b\\here" in written
    assert written.index("\x1b]8;;\x1b\\") > written.index("here")


def test_nothing_that_a_terminal_acts_on_gets_through() -> None:
    picture = Picture(EVERYTHING)
    look = text_rows(HEIGHT)
    look[0] = row([("a\x1b]52;c;eA==\x07b\x9b2Jc\u202ed\ud800e", "")])
    written = drawn(picture, whole(look, WIDTH))
    assert "a\ufffd]52;c;eA==\ufffdb\ufffd2Jc\ufffdd\ufffde" in written
    written.encode()


def test_what_follows_a_joined_character_is_put_in_its_place() -> None:
    picture = Picture(EVERYTHING)
    look = text_rows(HEIGHT)
    look[0] = row([("👩‍👩‍👧‍👦 family", "")])
    assert "  \x1b[1;1H👩‍👩‍👧‍👦\x1b[1;3H family" in drawn(picture, whole(look, WIDTH))


@pytest.mark.parametrize(
    ("terminal", "found"),
    [
        ("xterm-256color", EVERYTHING),
        ("screen", Abilities(scrolls=True, erases=False)),
        ("dumb", Abilities()),
        ("no-such-terminal", Abilities()),
    ],
)
def test_only_what_the_terminal_says_it_can_is_used(terminal: str, found: Abilities) -> None:
    code = (
        f"from hobnob.tui.picture import *; print(abilities({terminal!r}))"  # asked once a process
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(found)
