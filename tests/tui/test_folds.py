"""What stands in the input under a short name, and what it becomes when it is sent."""

from __future__ import annotations

import pytest

from hobnob.tui.folds import Fold, Typed, highest_number, label_before


def test_a_paste_is_sent_in_its_place_and_a_file_after_the_sentence() -> None:
    paste, file = Fold("a\nb\nc"), Fold("print(1)\n", "src/app.py")
    typed = Typed(
        f"look: {paste.label(1)} and {file.label(2)}, please",
        {paste.label(1): paste, file.label(2): file},
    )
    assert typed.text == (
        "look: [pasted 3 lines #1] and [file src/app.py, 9 characters #2], please"
    )
    assert typed.full == (
        "look: a\nb\nc and src/app.py, please\n\nsrc/app.py:\n```py\nprint(1)\n```"
    )


def test_a_file_that_is_named_twice_is_attached_once() -> None:
    file = Fold("x\n", "a.txt")
    typed = Typed(f"{file.label(1)} {file.label(2)}", {file.label(n): file for n in (1, 2)})
    assert typed.full == "a.txt a.txt\n\na.txt:\n```txt\nx\n```"


@pytest.mark.parametrize(
    ("text", "fence"),
    [("a", "```"), ("``` b", "````"), ("`` c", "```"), ("x\n``````\ny", "```````")],
)
def test_nothing_in_a_file_closes_its_fence(text: str, fence: str) -> None:
    lines = Fold(text, "Makefile").attached().split("\n")
    assert (lines[1], lines[-1]) == (fence, fence)


def test_a_name_cannot_break_its_label_or_its_heading() -> None:
    fold = Fold("x", "a]b\nc #7] [d\x1b.txt" + "e" * 80)
    label = fold.label(3)
    assert Typed(f"see {label}!", {label: fold}).full.startswith("see a]b c #7] [d␛.txteee")
    assert label.count("]") == label.count("[") == 1 and "\n" not in label and "\x1b" not in label
    assert "\x1b" not in fold.attached() and fold.attached().split("\n")[1] == "```"


def test_words_that_look_like_a_label_stay_words() -> None:
    fold = Fold("a\nb")
    typed = Typed("[pasted 9 lines #1] [file x #1]", {fold.label(1): fold})
    assert typed.full == typed.text
    assert typed.in_use.folds == {}


def test_texts_are_joined_line_by_line_with_all_that_they_hold() -> None:
    one, two = Fold("a\nb"), Fold("c\nd")
    parts = [
        Typed(one.label(1), {one.label(1): one}),
        Typed(),
        Typed(two.label(2), {two.label(2): two}),
    ]
    assert Typed.joined(parts).full == "a\nb\nc\nd"
    assert Typed.joined([]) == Typed("")
    assert highest_number(Typed.joined(parts).folds) == 2 and highest_number([]) == 0


def test_a_label_is_known_where_the_text_ends_with_it() -> None:
    fold = Fold("a\nb")
    folds = {fold.label(1): fold}
    assert label_before(f"x {fold.label(1)}", folds) == fold.label(1)
    assert label_before(f"{fold.label(1)} ", folds) == label_before("x", folds) == ""
