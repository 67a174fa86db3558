"""Segments in RAM and in files: what is found again, what is bounded, what is refused."""

from __future__ import annotations

import errno
import itertools
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hobnob.server.engine import snapshot_files as files
from hobnob.server.engine.cells import Ids
from hobnob.server.engine.snapshots import SEGMENT_TOKENS, Link, Snapshots

PRINT = b"model"
CELL = 8  # bytes of a token's state


def state_of(ids: Ids, start: int, end: int) -> np.ndarray:
    return np.repeat(ids[start:end].astype(np.uint8), CELL)


def keep(held: Snapshots, ids: Ids, *, owner: str = "a", group: str = "g", exact: bool = True):
    """All of it, as the engine would: what is there already is not kept again."""
    while True:
        at, parent = held.covered(owner, ids, exact=exact)
        end = min(at + SEGMENT_TOKENS, ids.size)
        if at == end:
            return
        held.add(parent, ids[at:end], state_of(ids, at, end), exact=exact, group=group)
        if held.covered(owner, ids, exact=exact)[0] <= at:
            return  # the budget does not hold it


def tokens(seed: int, n: int) -> Ids:
    return np.random.default_rng(seed).integers(1, 9, n).astype(np.int32)


def on_disk(folder: Path, disk_max: int = 10**6, ram_max: int = 0):
    files.make_folder(folder)
    disk = files.Disk(folder, lambda: None)
    return Snapshots(PRINT, ram_max=ram_max, disk_max=disk_max, files=disk), disk


def test_a_growing_conversation_writes_only_what_is_new(tmp_path: Path) -> None:
    held, disk = on_disk(tmp_path / "s")
    ids = tokens(1, 2000)
    for n in range(60, 2001, 60):
        keep(held, ids[:n])
    ideal = 1980 * CELL
    states = sum(one.entry.size for one in held._all.values())
    assert states == ideal
    assert disk.close(10)


def test_what_was_written_is_found_by_the_next_process_with_its_bytes(tmp_path: Path) -> None:
    ids = tokens(2, 700)
    held, disk = on_disk(tmp_path / "s")
    keep(held, ids)
    assert disk.close(10)
    again, disk = on_disk(tmp_path / "s")
    links = again.match("a", np.append(ids, [1, 2]).astype(np.int32), exact=True)
    assert links[-1].end == 700 and again.pin(links)
    while not again.ready(links):
        again.poll()
    for link in links:
        assert np.array_equal(link.segment.state, state_of(ids, link.start, link.end))
    again.unpin(links)
    again.check_integrity()
    assert again.match("other", ids, exact=True) == []
    assert disk.close(10)


def test_a_folder_and_its_files_are_for_the_user_alone(tmp_path: Path) -> None:
    held, disk = on_disk(tmp_path / "s")
    keep(held, tokens(3, 300))
    assert disk.close(10)
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "s").iterdir()} == {0o600}


@pytest.mark.parametrize(
    "harm",
    [
        lambda data: data[:-1],
        lambda data: data[:10],
        lambda data: data[:8] + b"\x02" + data[9:],  # another version
        lambda data: data[:-5] + bytes([data[-5] ^ 1]) + data[-4:],  # a bit of the state
        lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:],  # a token
        lambda data: b"something else",
    ],
)
def test_a_harmed_file_is_never_given_and_is_removed(
    tmp_path: Path, harm: Callable[[bytes], bytes]
) -> None:
    folder, ids = tmp_path / "s", tokens(4, 200)
    held, disk = on_disk(folder)
    keep(held, ids)
    assert disk.close(10)
    (path,) = folder.iterdir()
    path.write_bytes(harm(path.read_bytes()))
    again, disk = on_disk(folder)
    links = again.match("a", ids, exact=True)
    if links:
        assert again.pin(links)
        while not again.ready(links):
            again.poll()
        assert links[0].segment.state is None
        again.unpin(links)
    again.check_integrity()
    assert disk.close(10) and list(folder.iterdir()) == []


def test_a_forgotten_conversation_leaves_no_file_and_others_stay(tmp_path: Path) -> None:
    held, disk = on_disk(tmp_path / "s")
    keep(held, tokens(5, 300), group="one")
    keep(held, tokens(6, 300), group="two")
    held.forget("one")
    held.check_integrity()
    assert disk.close(10)
    tags = {path.stem.split("-")[1] for path in (tmp_path / "s").iterdir()}
    assert tags == {files.tag_of("two").hex()}


def test_what_has_no_conversation_never_goes_to_disk(tmp_path: Path) -> None:
    held, disk = on_disk(tmp_path / "s", ram_max=10**6)
    keep(held, tokens(7, 300), group="")
    assert held.ram_bytes > 0 and held.disk_bytes == 0
    assert disk.close(10) and list((tmp_path / "s").iterdir()) == []


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 600), st.booleans(), st.sampled_from("xy")),
        max_size=12,
    ),
    st.integers(0, 8000),
)
def test_whatever_is_kept_budgets_hold_and_matches_are_true(
    kept: list[tuple[int, int, bool, str]], ram_max: int
) -> None:
    held = Snapshots(PRINT, ram_max=ram_max)
    for (seed, n, exact, group), number in zip(kept, itertools.count()):
        ids = tokens(seed, n)
        keep(held, ids, exact=exact, group=group)
        if number % 4 == 3:
            held.forget(group)
        held.check_integrity()
        at = 0
        for link in held.match("a", ids, exact=exact):
            assert link.start == at and np.array_equal(
                link.segment.ids[: link.end - link.start], ids[link.start : link.end]
            )
            assert link.segment.entry.exact or not exact
            at = link.end


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "too many"), MemoryError()])
def test_a_file_that_cannot_be_read_just_now_is_left_alone_and_read_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    ids = tokens(4, 300)
    held, disk = on_disk(tmp_path / "s")
    keep(held, ids)
    assert disk.close(10)
    held, disk = on_disk(tmp_path / "s")
    head = files._head_of

    def broken(descriptor: int, name: str) -> tuple[files.Entry, bytes]:
        raise error

    monkeypatch.setattr(files, "_head_of", broken)
    links = held.match("a", ids, exact=True)
    assert fetch(held, links) == [False, False]
    held.check_integrity()
    monkeypatch.setattr(files, "_head_of", head)
    assert held.match("a", ids, exact=True) == links
    assert fetch(held, links) == [True, True]
    assert disk.close(10)


def fetch(held: Snapshots, links: list[Link]) -> list[bool]:
    """Which of them came."""
    assert held.pin(links)
    until = time.monotonic() + 10
    while not held.ready(links):
        assert time.monotonic() < until, "nobody answers"
        held.poll()
        time.sleep(0.001)
    came = [link.segment.state is not None for link in links]
    held.unpin(links)
    return came


def test_a_folder_that_cannot_be_read_just_now_loses_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, disk = on_disk(tmp_path / "s")
    keep(held, tokens(5, 300))
    assert disk.close(10)
    before = sorted(path.name for path in (tmp_path / "s").iterdir())

    def broken(descriptor: int, room: memoryview) -> bool:
        raise OSError(errno.EIO, "the disk is ill")

    with monkeypatch.context() as patched:
        patched.setattr(files, "_read_all", broken)
        assert files.scan(tmp_path / "s") == []
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == before
    assert len(files.scan(tmp_path / "s")) == len(before) == 2


def test_the_disk_s_thread_outlives_any_fault_and_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise MemoryError

    held, disk = on_disk(tmp_path / "s")
    with monkeypatch.context() as patched:
        for name in ("write", "remove", "forget"):
            patched.setattr(files, name, broken)
        keep(held, tokens(6, 200))
        held.forget("other")
        until = time.monotonic() + 10
        while held.disk_bytes:
            assert time.monotonic() < until, "nobody answers"
            held.poll()
            time.sleep(0.001)
    held.check_integrity()
    keep(held, tokens(6, 200))
    assert disk.close(10)
    assert len(files.scan(tmp_path / "s")) == 1
