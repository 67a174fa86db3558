"""Finding files by a part of their path, and reading one."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from hobnob.tui import files
from hobnob.tui.files import FileRefused, Files, Mention, mention, read, written


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (
        "work/README.md",
        "work/src/app.py",
        "work/src/composer.py",
        "work/src/deep/compose.txt",
        "work/my notes/a b.txt",
        "work/.hidden/app.key",
        "work/.env",
        "work/node_modules/app/app.js",
        "home/letter.txt",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path


def find(tree: Path, partial: str) -> list[str]:
    return Files(tree / "work", tree / "home").look(partial)


@pytest.mark.parametrize(
    ("before", "found"),
    [
        ("@", Mention(0, "")),
        ("see @src/a", Mention(4, "src/a")),
        ("(@x", Mention(1, "x")),
        ('read @"my notes/a', Mention(5, "my notes/a")),
        ("@~/x", Mention(0, "~/x")),
        ("me@example.com", None),
        ("a@", None),
        ("@app is", None),
        ('@"my notes" ', None),
        ("", None),
    ],
)
def test_an_at_before_the_cursor_begins_a_path_and_an_address_does_not(
    before: str, found: Mention | None
) -> None:
    assert mention(before) == found


def test_what_is_written_for_a_path_is_read_as_that_path() -> None:
    for path in ("src/", "my notes/", "~/a/", "/etc/"):
        assert mention(f"x {written(path)}") == Mention(2, path)


def test_a_name_is_found_below_the_working_folder_the_nearest_first(tree: Path) -> None:
    assert find(tree, "app") == ["src/app.py"]
    assert find(tree, "comp") == ["src/composer.py", "src/deep/compose.txt"]
    assert find(tree, "read") == ["README.md"], "whatever the case"
    assert find(tree, "dme") == ["README.md"], "inside the name too"
    assert find(tree, "nothing") == []


def test_without_a_name_the_working_folder_is_listed_and_nothing_below(tree: Path) -> None:
    assert find(tree, "") == ["my notes/", "node_modules/", "README.md", "src/"]


def test_a_path_is_completed_in_its_folder(tree: Path) -> None:
    assert find(tree, "src/") == ["src/app.py", "src/composer.py", "src/deep/"]
    assert find(tree, "src/co") == ["src/composer.py"]
    assert find(tree, "my notes/a") == ["my notes/a b.txt"]
    assert find(tree, "~") == ["~/"]
    assert find(tree, "~/l") == ["~/letter.txt"]
    assert find(tree, f"{tree}/ho") == [f"{tree}/home/"]
    assert find(tree, "../home/") == ["../home/letter.txt"]
    assert find(tree, "src/app.py/") == find(tree, "no/such/") == find(tree, "a\0/b") == []


def test_hidden_files_are_found_only_when_asked_for(tree: Path) -> None:
    assert find(tree, ".") == [".env", ".hidden/"]
    assert find(tree, ".e") == [".env"]
    assert find(tree, ".hidden/") == [".hidden/app.key"]
    assert ".env" not in find(tree, "env")


def test_a_huge_folder_is_looked_into_up_to_a_bound(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_ENTRIES", 10)
    for number in range(100):
        (tree / "work" / f"many{number}").touch()
    assert len(find(tree, "many")) <= 10
    monkeypatch.setattr(files, "MAX_ENTRIES", 1000)
    assert len(find(tree, "many")) == files.MAX_FOUND
    monkeypatch.setattr(files, "LOOK_SECONDS", -1.0)
    assert find(tree, "many") == []


def test_links_to_folders_are_shown_and_not_followed_by_a_search(tree: Path) -> None:
    (tree / "work" / "loop").symlink_to(tree / "work")
    assert find(tree, "loop") == ["loop/"]
    assert find(tree, "app.py") == ["src/app.py"]


def test_names_that_a_terminal_cannot_show_are_left_out(tree: Path) -> None:
    (tree / "work" / "bad\x1b[31m.txt").touch()
    os.mkdir(os.fsencode(tree / "work") + b"/bad\xff")
    assert find(tree, "bad") == []


@pytest.mark.parametrize(
    "sign",
    ["\n", "\x1b]0;owned\x07", "\x9b", "\u202e", "\u2066", "\u2028", "\u200b", "\x00"],
)
def test_a_name_that_would_not_be_seen_as_it_is_is_never_offered(tree: Path, sign: str) -> None:
    name = f"a{sign}b"
    if sign != "\0":
        (tree / "work" / name).touch()
    assert find(tree, "a") == ["my notes/a b.txt", "src/app.py", "README.md"]
    assert find(tree, name) == []


def test_what_is_not_as_it_seems_hides_nothing_of_its_folder(tree: Path) -> None:
    work = tree / "work"
    (work / "loop").symlink_to("loop")
    (work / "lost").symlink_to("no/such")
    (work / "into a file").symlink_to("README.md/below")
    assert find(tree, "") == [
        *("into a file", "loop", "lost", "my notes/", "node_modules/", "README.md", "src/")
    ]
    assert find(tree, "src") == ["src/"]
    with pytest.raises(FileRefused, match=r"^loop cannot be read: Too many levels of symbolic"):
        read(work / "loop", "loop")


def test_a_file_that_is_named_in_full_is_offered_however_many_there_are_beside_it(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_ENTRIES", 2)
    for number in range(20):
        (tree / "work" / f"many{number}").touch()
    for number in range(20):
        assert f"many{number}" in find(tree, f"many{number}")
    assert len(find(tree, "many")) <= 2


def test_thousands_of_files_are_looked_through(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LOOK_SECONDS", 60)
    for number in range(20_000):
        os.mknod(tree / "work" / f"f{number:05}")
    assert find(tree, "f1999") == [f"f1999{number}" for number in range(10)]


def test_a_folder_that_cannot_be_attached_leaves_no_descriptor_open(tree: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(FileRefused):
            files.read(tree, "tree")
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_folder_that_does_not_answer_holds_nobody_up(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    stuck = Files(tree, tree)
    monkeypatch.setattr(files, "FIND_SECONDS", 0.01)
    monkeypatch.setattr(files, "READ_SECONDS", 0.01)
    monkeypatch.setattr(Files, "look", lambda self, partial: gate.wait() and [])
    monkeypatch.setattr(files, "read", lambda path, shown: gate.wait() and "")
    before = threading.active_count()
    try:
        assert await stuck.find("x") == []
        with pytest.raises(FileRefused, match=r"^a.txt could not be read in time\.$"):
            await stuck.read("a.txt")
        for _ in range(20):
            assert await stuck.find("x") == []
        assert threading.active_count() - before <= files.MAX_STUCK
    finally:
        gate.set()


# ---- reading


def test_a_file_is_read_as_text_with_one_kind_of_line_end(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntw\xc3\xb6\n\x0cthree")
    assert read(path, "a.txt") == "one\ntwö\n\x0cthree"


def test_what_cannot_be_attached_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "picture").write_bytes(b"\x89PNG\x00\x01")
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    (tmp_path / "empty").touch()
    (tmp_path / "large").write_bytes(b"x" * (files.MAX_FILE_BYTES + 1))
    (tmp_path / "just").write_bytes(b"x" * files.MAX_FILE_BYTES)
    os.mkfifo(tmp_path / "pipe")

    def refusal(name: str) -> str:
        with pytest.raises(FileRefused) as error:
            read(tmp_path / name, name)
        return str(error.value)

    assert refusal("picture") == "picture is not text (UTF-8), so it cannot be attached."
    assert refusal("latin") == "latin is not text (UTF-8), so it cannot be attached."
    assert refusal("empty") == "empty is empty."
    assert refusal("large") == "large has 513 KiB; at most 512 KiB of a file can be attached."
    assert refusal("pipe") == "pipe is not a file that could be attached."
    assert refusal(".") == ". cannot be read: Is a directory."
    assert refusal("gone") == "gone cannot be read: No such file or directory."
    assert refusal("nul\0") == "nul␀ cannot be read: embedded null byte."
    assert len(read(tmp_path / "just", "just")) == files.MAX_FILE_BYTES
