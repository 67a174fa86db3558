"""Files of the hub into its cache on this machine, as the hub's own tools lay it out.

A file grows under a name of ours beside its place, goes on from there after any break, and is in
its place only when its size and digest are right. Its snapshot is a link to it, so that other
programs find it, and `hobnob models list`.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import httpx

from hobnob.exits import Exit, ExitError
from hobnob.hub import (
    COMMIT,
    Account,
    HubError,
    RemoteFile,
    Repository,
    Unreachable,
    reaching,
    require,
)

PIECE_BYTES = 1024 * 1024
SPARE_BYTES = 64 * 1024 * 1024
"""Of the disk that a download leaves free."""
PATIENCE = 5
"""Connections in a row that may bring nothing."""
PAUSES = (0.5, 1.0, 2.0, 4.0)

_RANGE = re.compile(r"bytes ([0-9]+)-[0-9]+/(?:[0-9]+|\*)")


@dataclass(frozen=True, slots=True)
class Progress:
    done: int
    total: int
    """Bytes, over all files."""
    checking: bool = False


Show = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Cache:
    """One repository's folder in the hub's cache."""

    folder: Path

    @classmethod
    def of(cls, root: Path, repo: str) -> Cache:
        return cls(root / f"models--{repo.replace('/', '--')}")

    def blob(self, file: RemoteFile) -> Path:
        return self.folder / "blobs" / file.digest

    def part(self, file: RemoteFile) -> Path:
        return self.folder / "blobs" / f"{file.digest}.hobnob-part"

    def place(self, commit: str, path: str) -> Path:
        return self.folder / "snapshots" / commit / path

    def have(self, commit: str, file: RemoteFile) -> bool:
        return _size(self.place(commit, file.path)) == file.size

    def link(self, commit: str, file: RemoteFile) -> None:
        place, blob = self.place(commit, file.path), self.blob(file)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.symlink_to(os.path.relpath(blob, place.parent))

    def name(self, revision: str, commit: str) -> None:
        """As what the commit is known to others."""
        if revision == commit:
            return
        ref = self.folder / "refs" / revision
        ref.parent.mkdir(parents=True, exist_ok=True)
        ref.write_text(commit)

    def known(self, revision: str) -> dict[str, int]:
        """Files that are there of a revision, with their sizes, as far as is known here."""
        top = self.place(self._commit(revision), "")
        files = (Path(at, name) for at, _, names in os.walk(top) for name in names)
        sizes = {str(file.relative_to(top)): _size(file) for file in files}
        return {path: size for path, size in sizes.items() if size is not None}

    def path_of(self, revision: str, path: str) -> Path:
        return self.place(self._commit(revision), path)

    def _commit(self, revision: str) -> str:
        """The one that the revision was when it was fetched; or it is one itself."""
        try:
            commit = (self.folder / "refs" / revision).read_text().strip()
        except (OSError, ValueError):
            return revision
        return commit if COMMIT.fullmatch(commit) else revision


def fetch(
    client: httpx.Client,
    account: Account,
    repository: Repository,
    paths: Sequence[str],
    cache: Cache,
    show: Show,
) -> list[Path]:
    """All of these files, from where an earlier download of them ended. Where they are then.
    Raises ExitError, and what has come so far stays."""
    files = [repository.files[path] for path in paths]
    missing = [file for file in files if not cache.have(repository.commit, file)]
    coming = [file for file in missing if _size(cache.blob(file)) != file.size]
    total = sum(file.size for file in files)
    with _on_disk(cache.folder):
        _require_room(cache, coming)
        before = total - sum(file.size for file in coming)
        for file in coming:
            source = _Source(client, account, repository, file)
            _fetch(source, cache, lambda n, checking: show(Progress(n, total, checking)), before)
            before += file.size
        for file in missing:
            cache.link(repository.commit, file)
    return [cache.place(repository.commit, file.path) for file in files]


@dataclass(frozen=True, slots=True)
class _Source:
    client: httpx.Client
    account: Account
    repository: Repository
    file: RemoteFile

    def pieces(self, start: int) -> Iterator[bytes | None]:
        """The content from there on, or None and then all of it. Raises HubError."""
        address = self.repository.address(self.account, self.file.path)
        headers = {"Accept-Encoding": "identity"}
        if start:
            headers["Range"] = f"bytes={start}-"
        with reaching(self.account):
            with self.client.stream("GET", address, headers=headers) as response:
                require(response, self.account, self.repository.name)
                if start and not _continues(response, start):
                    yield None
                yield from response.iter_bytes()  # as they come: a cut loses nothing


def _continues(response: httpx.Response, start: int) -> bool:
    """Whether the answer begins where we end. Raises HubError where it begins elsewhere."""
    if response.status_code != 206:
        return False
    found = _RANGE.match(response.headers.get("Content-Range", ""))
    if found is None or int(found[1]) != start:
        raise Unreachable("The hub sent another part of the file than was asked for.")
    return True


def _fetch(source: _Source, cache: Cache, show: Callable[[int, bool], None], before: int) -> None:
    file = source.file
    part = cache.part(file)
    part.parent.mkdir(parents=True, exist_ok=True)
    with _alone(part, file) as out:
        if _size(cache.blob(file)) == file.size:  # another hobnob has just finished it
            part.unlink(missing_ok=True)
            return
        out.seek(0, os.SEEK_END)
        failed = 0
        while (size := out.tell()) < file.size:
            try:
                _append(source, out, lambda n: show(before + n, False))
            except Unreachable:
                failed = failed + 1 if out.tell() <= size else 1
                if failed >= PATIENCE:
                    raise
                time.sleep(PAUSES[min(failed, len(PAUSES)) - 1])
        _require_whole(out, file, lambda n: show(before + n, True))
        os.fsync(out.fileno())
        os.replace(part, cache.blob(file))


def _append(source: _Source, out: BinaryIO, show: Callable[[int], None]) -> None:
    """What one connection brings. Raises HubError."""
    size = source.file.size
    try:
        for piece in source.pieces(out.tell()):
            if piece is None:
                out.seek(0)
                out.truncate()
                continue
            out.write(piece)
            if out.tell() > size:
                break  # the digest will tell
            show(out.tell())
    finally:
        out.flush()
    if out.tell() < size:
        raise Unreachable(f"{source.account.name} has closed the connection.")


def _require_whole(out: BinaryIO, file: RemoteFile, show: Callable[[int], None]) -> None:
    """Raises HubError where it is not the file that the hub has named; then it is begun anew."""
    sha256 = len(file.digest) == 64
    digest = hashlib.sha256() if sha256 else hashlib.sha1(b"blob %d\0" % file.size)  # git's name
    done = 0
    out.seek(0)
    while piece := out.read(PIECE_BYTES):
        digest.update(piece)
        done += len(piece)
        show(done)
    if done != file.size or digest.hexdigest() != file.digest:
        out.truncate(0)
        sentence = f"What came of {file.path} is not what the hub has. Nothing of it was kept."
        raise HubError(sentence, Exit.MODEL, "damaged")


@contextmanager
def _alone(part: Path, file: RemoteFile) -> Iterator[BinaryIO]:
    """The part, which no other hobnob writes to meanwhile."""
    with open(os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), "r+b") as out:
        try:
            fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sentence = f"{file.path} is being downloaded by another hobnob already."
            raise ExitError(sentence, Exit.TRY_LATER, "busy") from None
        yield out


def _require_room(cache: Cache, coming: Sequence[RemoteFile]) -> None:
    """Raises ExitError where the disk has no room for what is still to come."""
    if not coming:
        return
    there = next(p for p in (cache.folder, *cache.folder.parents) if p.is_dir())
    wanted = sum(max(file.size - (_size(cache.part(file)) or 0), 0) for file in coming)
    free = shutil.disk_usage(there).free
    if wanted + SPARE_BYTES > free:
        raise ExitError(
            f"There is no room for it: {gigabytes(wanted)} are still to come, and {there} has "
            f"{gigabytes(free)} free.",
            Exit.OUTPUT,
            "no_room",
        )


@contextmanager
def _on_disk(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        why = "the disk is full" if full else error.strerror or str(error)
        where = error.filename or folder
        code = Exit.OUTPUT if full else Exit.CONFIG
        raise ExitError(f"{where} cannot be written: {why}.", code, "output_failed") from None


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def gigabytes(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 10_000_000 else f"{size / 1e6:.2f} MB"
