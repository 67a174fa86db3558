"""A database put in the place of another: at every moment one of the two is there, whole."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import pytest
from support_turns import ME, said

from hobnob.store import offline
from hobnob.store.store import Store
from hobnob.store.values import Damaged, Locked, WriteFailed

KILLED = Path(__file__).parent.parent / "support" / "killed_restores.py"


async def texts(path: Path) -> set[str]:
    """What was said in the database, which is opened as a server does, and sound."""
    store = await Store.open(path)
    assert await store.check() == []
    found = await store.conversations(ME)
    trees = [await store.messages(ME, one.id) for one in found]
    await store.close()
    return {message.text for tree in trees for message in tree if message.role == "user"}


async def made(path: Path, *said_in_it: str) -> Path:
    store = await Store.open(path)
    for text in said_in_it:
        await said(store, text)
    await store.close()
    return path


async def killed(folder: Path, *said_in_it: str) -> Path:
    """A database of a server that was killed: all that it says is in its WAL only."""
    folder.mkdir()
    living = folder / "living.db"
    store = await Store.open(living)
    for text in said_in_it:
        await said(store, text)
    for ending in ("", "-wal"):
        shutil.copy(f"{living}{ending}", folder / f"hobnob.db{ending}")
    await store.close()
    living.unlink()
    return folder / "hobnob.db"


@pytest.fixture
async def backup(tmp_path: Path) -> Path:
    return await made(tmp_path / "backup.db", "in the backup")


@pytest.mark.parametrize("links", ["", "no-links"])
async def test_a_restore_killed_at_any_step_leaves_the_one_or_the_other(
    tmp_path: Path, backup: Path, links: str
) -> None:
    old = await killed(tmp_path / "home", "only in the log")
    command = [sys.executable, str(KILLED), str(backup), str(old.parent), *filter(None, [links])]
    steps = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert steps[-1] == "done" and len(steps) > 10, steps
    whole = []
    for number, step in enumerate(steps, 1):
        folder = tmp_path / f"home.{number}"
        found = await texts(folder / "hobnob.db")
        whole.append(found)
        assert found in ({"only in the log"}, {"in the backup"}), step
        for kept in folder.glob("hobnob-2*.db"):
            assert await texts(kept) == {"only in the log"}, step
        if found == {"in the backup"}:
            assert list(folder.glob("hobnob-2*.db")), step
        assert not list(folder.glob("*restoring*")), step  # the next start has removed them
        offline.restore(backup, folder / "hobnob.db")  # and another try comes to its end
        assert await texts(folder / "hobnob.db") == {"in the backup"}, step
    assert whole[0] == {"only in the log"} and whole[-1] == {"in the backup"}


async def test_without_hard_links_the_old_one_is_kept_as_a_copy(
    tmp_path: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    old = await made(tmp_path / "hobnob.db", "before")
    old.chmod(0o600)
    kept = offline.restore(backup, old)
    assert kept is not None and kept.stat().st_mode & 0o777 == 0o600
    assert await texts(kept) == {"before"}
    assert await texts(old) == {"in the backup"}


async def test_a_database_that_another_program_reads_is_left_as_it_is(
    tmp_path: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in its log could not be moved into it, and would be lost to whoever opens it."""
    old = await killed(tmp_path / "home", "only in the log")
    monkeypatch.setattr(offline, "LOCK_WAIT_SECONDS", 0.1)
    with closing(sqlite3.connect(old, isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM messages").fetchone()
        with pytest.raises(Locked, match="Another program"):
            offline.restore(backup, old)
    assert [one.name for one in old.parent.iterdir()] == ["hobnob.db"]
    assert await texts(old) == {"only in the log"}


async def test_a_log_that_was_left_without_its_database_does_not_go_into_the_new_one(
    tmp_path: Path, backup: Path
) -> None:
    old = await killed(tmp_path / "home", "only in the log")
    old.unlink()
    assert offline.restore(backup, old) is None
    assert await texts(old) == {"in the backup"}


async def test_the_journal_of_a_restore_that_was_killed_does_not_go_into_the_next_one(
    tmp_path: Path, backup: Path
) -> None:
    """SQLite would roll it back into whatever lies there under that name."""
    old = await made(tmp_path / "hobnob.db", "before")
    other = await made(tmp_path / "other.db", *(f"{n} " + "x" * 5000 for n in range(40)))
    fresh = tmp_path / "hobnob.db.restoring"
    offline.back_up(other, fresh)
    with closing(sqlite3.connect(fresh, isolation_level=None)) as conn:
        conn.execute("PRAGMA cache_size = 5")
        conn.execute("BEGIN IMMEDIATE")
        conn.execute("UPDATE messages SET text = text || 'y'")
        journal = Path(f"{fresh}-journal").read_bytes()
        conn.execute("ROLLBACK")
    assert len(journal) > 10_000
    Path(f"{fresh}-journal").write_bytes(journal)
    offline.restore(backup, old)
    assert await texts(old) == {"in the backup"}
    assert not list(tmp_path.glob("*-journal"))


async def test_a_link_to_the_database_stays_a_link(tmp_path: Path, backup: Path) -> None:
    real = await killed(tmp_path / "elsewhere", "before")
    link = tmp_path / "hobnob.db"
    link.symlink_to(real)
    kept = offline.restore(backup, link)
    assert link.is_symlink() and kept is not None and kept.parent == real.parent
    assert await texts(link) == {"in the backup"}
    assert await texts(kept) == {"before"}
    assert not list(tmp_path.glob("hobnob.db-*")) and not list(tmp_path.glob("*restoring*"))


async def test_what_is_no_file_is_not_replaced(tmp_path: Path, backup: Path) -> None:
    for place, make in ((tmp_path / "folder", Path.mkdir), (tmp_path / "pipe", os.mkfifo)):
        make(place)
        with pytest.raises(Damaged, match="where a database should be"):
            offline.restore(backup, place)
        assert not place.is_file()


async def test_a_full_disk_leaves_the_old_one_and_its_log(
    tmp_path: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = await killed(tmp_path / "home", "only in the log")
    before = {one.name: one.read_bytes() for one in old.parent.iterdir()}

    opened = offline._opened

    def full(path: Path) -> AbstractContextManager[sqlite3.Connection]:
        if path == old:
            raise WriteFailed("The disk is full (database or disk is full).")
        return opened(path)

    monkeypatch.setattr(offline, "_opened", full)
    with pytest.raises(WriteFailed, match="full"):
        offline.restore(backup, old)
    assert {one.name: one.read_bytes() for one in old.parent.iterdir()} == before
