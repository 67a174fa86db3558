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


LISTED = Fold("Shell command, exit code 0:\n```console\n$ ls\na\n```", "ls", "1 line")


def test_an_output_is_named_in_the_sentence_and_follows_it() -> None:
    label = LISTED.label(2)
    assert label == "[ran ls, 1 line #2]"
    assert Typed(f"{label}\nso what?", {label: LISTED}).full == ("`ls`\nso what?\n\n" + LISTED.text)
    assert Typed(f"{label}\n", {label: LISTED}).full == "`ls`\n\n" + LISTED.text


def test_the_label_of_a_command_is_short_and_cannot_be_broken() -> None:
    fold = Fold("x", "grep -c '[a-z]`\n' " + "f" * 90, "no output")
    label = fold.label(1)
    assert label.startswith("[ran grep -c '(a-z)` ' fff") and label.endswith("…, no output #1]")
    assert Typed(label, {label: fold}).full.startswith(f"{fold.name.replace(chr(10), ' ')}\n\nx")


def test_a_command_may_follow_what_others_have_put_out() -> None:
    label = LISTED.label(1)
    for typed in (f"{label}\n!pwd", f"{label} !pwd"):
        assert Typed(typed, {label: LISTED}).command == "pwd"
        assert Typed(typed, {label: LISTED}).outputs.text == typed.removesuffix("!pwd")
    for typed in (f"{label}\nwhy\n!pwd", f"{label}\n!!pwd", f"{label}\n !pwd", f"{label}!pwd"):
        assert Typed(typed, {label: LISTED}).command == ""
    assert Typed(f"{label}\n!pwd", {}).command == ""
    assert Typed(f"{label}\n!!why", {label: LISTED}).message.startswith("`ls`\n!why\n\nShell")


def test_a_folded_paste_is_no_command_but_may_be_a_part_of_one() -> None:
    long, lines = Fold("!" + "x" * 5000), Fold("a\nb")
    assert Typed(long.label(1), {long.label(1): long}).command == ""
    assert Typed(long.label(1), {long.label(1): long}).message == long.text
    assert Typed(f"!echo {long.label(1)}", {long.label(1): long}).command == f"echo {long.text}"
    assert Typed(f"!echo {lines.label(1)}", {lines.label(1): lines}).command == ""


def test_outputs_follow_each_other_on_one_line() -> None:
    typed = Typed().followed_by(LISTED).followed_by(LISTED)
    assert typed.text == "[ran ls, 1 line #1] [ran ls, 1 line #2] "
    assert set(typed.folds) == {"[ran ls, 1 line #1]", "[ran ls, 1 line #2]"}
