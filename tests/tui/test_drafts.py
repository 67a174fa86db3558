"""Drafts and prompt history on disk."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from hobnob.tui.drafts import Draft, Drafts
from hobnob.tui.folds import Fold, Typed
from hobnob.tui.prompts import Prompts


def test_a_draft_comes_back_for_its_conversation_only(tmp_path: Path) -> None:
    drafts = Drafts(tmp_path / "drafts")
    drafts.save("c1", Draft("unsent\nlines", "key"))
    assert Drafts(tmp_path / "drafts").load("c1") == Draft("unsent\nlines", "key")
    assert drafts.load("c2") == Draft("")
    assert drafts.load(None) == Draft("")


def test_an_empty_draft_leaves_no_file(tmp_path: Path) -> None:
    drafts = Drafts(tmp_path)
    drafts.save(None, Draft("x"))
    drafts.save(None, Draft(""))
    assert list(tmp_path.iterdir()) == []


def test_a_draft_is_readable_by_the_user_alone(tmp_path: Path) -> None:
    Drafts(tmp_path / "d").save("c1", Draft("secret"))
    assert stat.S_IMODE((tmp_path / "d" / "c1.json").stat().st_mode) == 0o600


@pytest.mark.parametrize("content", ["", "[]", '{"text": 5}', "\x00", '{"text": "a", "key": 3}'])
def test_a_broken_file_is_an_empty_draft(tmp_path: Path, content: str) -> None:
    (tmp_path / "c1.json").write_text(content)
    assert Drafts(tmp_path).load("c1") == Draft("")


def test_an_id_is_never_a_path(tmp_path: Path) -> None:
    drafts = Drafts(tmp_path / "d")
    assert drafts.save("../../evil", Draft("x")) is False
    assert drafts.load("/etc/passwd") == Draft("")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_costs_only_the_draft(tmp_path: Path) -> None:
    (tmp_path / "d").write_text("a file in the way")
    assert Drafts(tmp_path / "d").save("c1", Draft("x")) is False


def test_prompts_come_back_newest_first_and_the_text_in_hand_is_kept(tmp_path: Path) -> None:
    history = Prompts(tmp_path / "p")
    history.add("one")
    history.add("two\nlines")
    again = Prompts(tmp_path / "p")
    assert [again.older("in hand"), again.older(""), again.older("")] == ["two\nlines", "one", None]
    assert [again.newer(), again.newer(), again.newer()] == ["two\nlines", "in hand", None]


def test_the_same_prompt_twice_is_remembered_once(tmp_path: Path) -> None:
    history = Prompts(tmp_path / "p")
    history.add("one")
    history.add("one")
    assert (tmp_path / "p").read_text().count("one") == 1


def test_two_apps_do_not_take_each_others_prompts(tmp_path: Path) -> None:
    first, second = Prompts(tmp_path / "p"), Prompts(tmp_path / "p")
    first.older("")
    second.older("")
    first.add("a")
    second.add("b")
    third = Prompts(tmp_path / "p")
    assert [third.older(""), third.older("")] == ["b", "a"]


def test_odd_lines_in_the_history_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(b'"good"\nnot json\n5\n\xff\xfe\n')
    history = Prompts(tmp_path / "p")
    assert [history.older(""), history.older("")] == ["good", None]


def test_a_draft_keeps_what_is_folded_in_it(tmp_path: Path) -> None:
    fold = Fold("a\nb", "x.txt")
    typed = Typed(f"see {fold.label(4)}", {fold.label(4): fold})
    drafts = Drafts(tmp_path)
    drafts.save("c1", Draft(typed.full, "key", typed))
    assert drafts.load("c1") == Draft(typed.full, "key", typed)
    assert drafts.load("c1").shown == typed
    drafts.save("c2", Draft("plain", "", Typed("plain")))
    assert drafts.load("c2").shown == "plain"


@pytest.mark.parametrize(
    "typed",
    [
        "x",
        3,
        {},
        {"text": 3, "folds": {}},
        {"text": "other", "folds": {}},
        {"text": "t", "folds": []},
        {"text": "t", "folds": {"[pasted 2 lines #1]": ["a"]}},
    ],
)
def test_folds_that_do_not_fit_their_text_are_left_out(tmp_path: Path, typed: object) -> None:
    (tmp_path / "c1.json").write_text(json.dumps({"text": "t", "key": "", "typed": typed}))
    assert Drafts(tmp_path).load("c1") == Draft("t")
