"""Snapshots as files: one segment each, checked when read, written and read in a thread of its own.

A file is named by its segment's key and by its conversation's tag, so that what belongs to a
deleted conversation can be removed by anyone who has the folder. Whatever is damaged, foreign or
of another format is removed. Standard library only: the server's process uses `forget`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import queue
import re
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KEY_BYTES = 16
TAG_BYTES = 8
TOKENS_MAX = 4096  # of one segment; a header that says more is damaged
TOKEN_BYTES = 4

_MAGIC = b"hobnobKV"
_VERSION = 1
_HEAD = struct.Struct(f"<8sIII{KEY_BYTES}s{KEY_BYTES}s{TAG_BYTES}sQ")
_DIGEST_BYTES = 32
_NAME = re.compile(rf"([0-9a-f]{{{2 * KEY_BYTES}}})-([0-9a-f]{{{2 * TAG_BYTES}}})\.kv")

_FOREIGN = frozenset({errno.ELOOP, errno.EACCES, errno.EISDIR, errno.ENXIO})
"""What opening a link, another user's file, a folder or a socket says: none of them is ours. Any
other error is the machine's, and passes; the file may be good."""

log = logging.getLogger("hobnob.engine")

Bytes = Any
"""What has a buffer of bytes; `collections.abc.Buffer` is of Python 3.12."""


def chained(parent: bytes, tokens: Bytes) -> bytes:
    """The key of a segment: of all tokens up to its end, and of what its root stands for."""
    hashed = hashlib.blake2b(parent, digest_size=KEY_BYTES)
    hashed.update(tokens)
    return hashed.digest()


def tag_of(group: str) -> bytes:
    """What marks the files of one conversation; none is on disk without one."""
    if not group:
        return bytes(TAG_BYTES)
    return hashlib.blake2b(group.encode(), digest_size=TAG_BYTES).digest()


@dataclass(frozen=True, slots=True)
class Entry:
    """What a file's header says."""

    key: bytes
    parent: bytes
    tag: bytes
    exact: bool
    tokens: bytes  # little-endian int32
    size: int  # of the state

    @property
    def name(self) -> str:
        return f"{self.key.hex()}-{self.tag.hex()}.kv"

    @property
    def file_size(self) -> int:
        return file_size(len(self.tokens), self.size)


def file_size(token_bytes: int, state_bytes: int) -> int:
    return _HEAD.size + token_bytes + _DIGEST_BYTES + state_bytes


def make_folder(folder: Path) -> None:
    """For the user alone. Raises OSError."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)


def write(folder: Path, entry: Entry, state: Bytes) -> None:
    """Whole or not at all to whoever lists the folder. Raises OSError."""
    head = _packed(entry)
    temporary = folder / f"{entry.key.hex()}.part"
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb", buffering=0) as file:
            for part in (head, entry.tokens, _digest(head, entry.tokens, state), state):
                _write_all(file.fileno(), memoryview(part).cast("B"))
        os.replace(temporary, folder / entry.name)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def read(folder: Path, entry: Entry) -> bytearray | None:
    """The state; None when the file is gone, or was damaged or foreign and is gone now. Raises
    OSError where that cannot be told: it cannot be read just now."""
    path = folder / entry.name
    try:
        with open(path, "rb", buffering=0, opener=_no_link) as file:
            found, digest = _head_of(file.fileno(), path.name)
            state = bytearray(entry.size)
            if found == entry and _read_all(file.fileno(), memoryview(state)):
                if _digest(_packed(entry), entry.tokens, state) == digest:
                    with contextlib.suppress(OSError):
                        os.utime(file.fileno())
                    return state
    except FileNotFoundError:
        return None
    except ValueError:
        pass
    except OSError as error:
        if error.errno not in _FOREIGN:
            raise
    remove(path)
    return None


def scan(folder: Path) -> list[Entry]:
    """All whole files, the one unused for longest first; what is damaged or foreign is removed,
    and what cannot be read just now left out."""
    found: list[tuple[int, Entry]] = []
    for path in _files(folder):
        try:
            with open(path, "rb", buffering=0, opener=_no_link) as file:
                entry, _ = _head_of(file.fileno(), path.name)
                found.append((os.fstat(file.fileno()).st_mtime_ns, entry))
        except ValueError:
            remove(path)
        except OSError as error:
            if error.errno in _FOREIGN:
                remove(path)
    found.sort(key=lambda one: one[0])
    return [entry for _, entry in found]


def forget(folder: Path, tag: bytes) -> None:
    """Removes all files of a conversation, whichever model they belong to."""
    if tag == bytes(TAG_BYTES):
        return
    ending = f"-{tag.hex()}.kv"
    for path in _files(folder):
        if path.name.endswith(ending):
            remove(path)


def remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _files(folder: Path) -> Iterator[Path]:
    try:
        with os.scandir(folder) as found:
            names = [one.name for one in found if not one.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for name in names:
        yield folder / name


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _packed(entry: Entry) -> bytes:
    count = len(entry.tokens) // TOKEN_BYTES
    return _HEAD.pack(
        _MAGIC, _VERSION, entry.exact, count, entry.key, entry.parent, entry.tag, entry.size
    )


def _head_of(descriptor: int, name: str) -> tuple[Entry, bytes]:
    """The header, as far as it can be checked without the state. Raises ValueError."""
    named = _NAME.fullmatch(name)
    head = bytearray(_HEAD.size)
    if named is None or not _read_all(descriptor, memoryview(head)):
        raise ValueError("not a snapshot")
    magic, version, exact, count, key, parent, tag, size = _HEAD.unpack(head)
    if (magic, version) != (_MAGIC, _VERSION) or exact > 1 or not 0 < count <= TOKENS_MAX:
        raise ValueError("a foreign file, or of another format")
    rest = bytearray(count * TOKEN_BYTES + _DIGEST_BYTES)
    if not _read_all(descriptor, memoryview(rest)):
        raise ValueError("a truncated file")
    entry = Entry(key, parent, tag, bool(exact), bytes(rest[:-_DIGEST_BYTES]), size)
    if entry.name != name or chained(parent, entry.tokens) != key:
        raise ValueError("a damaged file")
    if os.fstat(descriptor).st_size != entry.file_size:
        raise ValueError("a truncated file")
    return entry, bytes(rest[-_DIGEST_BYTES:])


def _digest(head: bytes, tokens: bytes, state: Bytes) -> bytes:
    hashed = hashlib.blake2b(head, digest_size=_DIGEST_BYTES)
    hashed.update(tokens)
    hashed.update(state)
    return hashed.digest()


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _read_all(descriptor: int, room: memoryview) -> bool:
    while room:
        got = os.readv(descriptor, [room])
        if not got:
            return False
        room = room[got:]
    return True


# ---- the thread -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wrote:
    key: bytes
    done: bool


@dataclass(frozen=True, slots=True)
class Read:
    key: bytes
    state: bytearray | None
    seconds: float = 0.0  # it took, once its turn had come
    there: bool = False  # without a state: the file may be good, and can be asked for again


@dataclass(order=True, slots=True)
class _Job:
    rank: int  # what a run waits for goes first
    number: int
    work: Callable[[], None] | None = field(compare=False)


_READS, _OTHERS = 0, 1


class Disk:
    """Does in its own thread what it is asked to, reads first and the rest in order. Whatever goes
    wrong costs that job only, and every write and read is answered.

    News is fetched with `news`; `wake` is called, in that thread, when there is some.
    """

    def __init__(self, folder: Path, wake: Callable[[], None]) -> None:
        self._folder = folder
        self._wake = wake
        self._jobs: queue.PriorityQueue[_Job] = queue.PriorityQueue()
        self._news: queue.SimpleQueue[Wrote | Read] = queue.SimpleQueue()
        self._count = 0
        self._scanned = threading.Event()
        self._found: list[Entry] = []
        self._stop = False
        self._complained: set[str] = set()
        self._thread = threading.Thread(target=self._main, name="snapshots", daemon=True)
        self._thread.start()

    # ---- the step thread's side

    def found(self) -> list[Entry]:
        """What was in the folder at the start; waits until that is known."""
        self._scanned.wait()
        return self._found

    def write(self, entry: Entry, state: Bytes) -> None:
        self._put(_OTHERS, lambda: self._write(entry, state))

    def read(self, entry: Entry) -> None:
        self._put(_READS, lambda: self._read(entry))

    def touch(self, entries: Sequence[Entry]) -> None:
        """Marks them as just used, the last one as the very last."""
        self._put(_OTHERS, lambda: self._touch(entries))

    def remove(self, entry: Entry) -> None:
        self._put(_OTHERS, lambda: remove(self._folder / entry.name))

    def forget(self, tag: bytes) -> None:
        self._put(_OTHERS, lambda: forget(self._folder, tag))

    def news(self) -> list[Wrote | Read]:
        found: list[Wrote | Read] = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._news.get_nowait())
        return found

    def close(self, seconds: float) -> bool:
        """Finishes what it was asked to, as far as the time allows. False when some is left."""
        self._put(_OTHERS, None)
        self._thread.join(seconds)
        self._stop = True
        return not self._thread.is_alive()

    def _put(self, rank: int, work: Callable[[], None] | None) -> None:
        self._count += 1
        self._jobs.put(_Job(rank, self._count, work))

    # ---- the thread's side

    def _main(self) -> None:
        try:
            self._found = scan(self._folder)
        except Exception:
            log.exception("the snapshots cannot be looked through")
        self._scanned.set()
        while (work := self._jobs.get().work) is not None and not self._stop:
            try:
                work()
            except Exception:
                log.exception("a snapshot's file could not be cared for")

    def _tell(self, news: Wrote | Read) -> None:
        self._news.put(news)
        self._wake()

    def _read(self, entry: Entry) -> None:
        began = time.perf_counter()
        state, there = None, False
        try:
            state = read(self._folder, entry)
        except Exception as error:  # too many open files, too little memory: that passes
            there = True
            self._complain("read", error)
        self._tell(Read(entry.key, state, time.perf_counter() - began, there))

    def _write(self, entry: Entry, state: Bytes) -> None:
        done = False
        try:
            write(self._folder, entry, state)
            done = True
        except Exception as error:  # a full disk costs a cache, nothing else
            self._complain("written", error)
        self._tell(Wrote(entry.key, done))

    def _complain(self, what: str, error: Exception) -> None:
        """Once: what goes wrong with one goes wrong with many."""
        if what not in self._complained:
            log.warning("snapshots cannot be %s: %s", what, error or type(error).__name__)
        self._complained.add(what)

    def _touch(self, entries: Sequence[Entry]) -> None:
        now = time.time_ns()
        for n, entry in enumerate(entries):
            with contextlib.suppress(OSError):
                os.utime(self._folder / entry.name, ns=(now + n, now + n))
