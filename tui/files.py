"""Files of this machine for the input: finding them by a part of their path, and reading one.

Only what the user picks is read. Bounded in entries, time and size: a huge folder is looked into
as far as the bounds go, and one that does not answer (a dead network drive) costs a thread.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import re
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from hobnob.tui.clean import one_line

T = TypeVar("T")

MAX_ENTRIES = 60_000
MAX_DEPTH = 6
MAX_FOUND = 50
LOOK_SECONDS = 0.3
FIND_SECONDS = 1.0
READ_SECONDS = 5.0
MAX_STUCK = 8
"""Threads whose folder has not answered yet; with more, nothing is looked for."""
MAX_FILE_BYTES = 512 * 1024

_PASSED_OVER = frozenset(("node_modules", "__pycache__", "venv", "site-packages"))
_MENTION = re.compile(r"""(?:^|(?<=[\s("'`]))@(?:"(?P<quoted>[^"]*)|(?P<plain>[^\s"]*))$""")


class FileRefused(Exception):
    """A file that cannot be attached; the message says why, in a sentence."""


class Mention(NamedTuple):
    """An @ and the part of a path after it, right before the cursor."""

    start: int  # column of the @
    partial: str


def mention(before: str) -> Mention | None:
    """What the line ends with before the cursor. An address (a@b) is none."""
    found = _MENTION.search(before)
    if found is None:
        return None
    return Mention(found.start(), found["quoted"] if found["plain"] is None else found["plain"])


def written(path: str) -> str:
    """A path as a mention that can be gone on with."""
    return f'@"{path}' if any(char.isspace() for char in path) else f"@{path}"


class Files:
    def __init__(self, cwd: Path, home: Path) -> None:
        self._cwd = cwd
        self._home = home
        self._stuck = 0

    async def find(self, partial: str) -> list[str]:
        """Paths that the part may become, the likeliest first; folders end with a slash."""
        try:
            return await self._in_thread(lambda: self.look(partial), FIND_SECONDS)
        except TimeoutError:
            return []

    async def read(self, path: str) -> str:
        """The file's text. Raises FileRefused."""
        try:
            return await self._in_thread(lambda: read(self._real(path), path), READ_SECONDS)
        except TimeoutError:
            raise FileRefused(f"{one_line(path)} could not be read in time.") from None

    def look(self, partial: str) -> list[str]:
        if partial == "~":
            return ["~/"]
        folder, slash, name = partial.rpartition("/")
        if slash:
            entries = _walk(self._real(folder + slash), folder + slash, name, depth=0)
        else:  # the working folder; with something to look for, also what is below it
            entries = _walk(self._cwd, "", name, depth=MAX_DEPTH if name.strip(".") else 0)
        ranked = ((entry.at > 0, entry.depth, entry.path.lower(), entry.path) for entry in entries)
        found = [path for *_, path in heapq.nsmallest(MAX_FOUND, ranked)]
        if name and partial not in found and partial.isprintable() and self._is_file(partial):
            found.insert(0, partial)  # in a folder with more than is looked at
        return found

    def _is_file(self, path: str) -> bool:
        try:
            return self._real(path).is_file()
        except (OSError, ValueError):
            return False

    def _real(self, path: str) -> Path:
        if path.startswith("~/"):
            return self._home / path[2:]
        return self._cwd / path

    async def _in_thread(self, work: Callable[[], T], seconds: float) -> T:
        """Not in a pool: its threads would keep the app from ending. Raises TimeoutError."""
        if self._stuck >= MAX_STUCK:
            raise TimeoutError
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def settle(result: T | None, error: Exception | None) -> None:
            self._stuck -= 1
            if answer.done():
                return
            if error is None:
                answer.set_result(result)  # type: ignore[arg-type]
            else:
                answer.set_exception(error)

        def main() -> None:
            result, failed = None, None
            try:
                result = work()
            except (FileRefused, OSError, ValueError) as error:
                failed = error
            try:
                loop.call_soon_threadsafe(settle, result, failed)
            except RuntimeError:
                return  # the app has ended

        self._stuck += 1
        threading.Thread(target=main, name="files", daemon=True).start()
        async with asyncio.timeout(seconds):
            return await answer


class _Entry(NamedTuple):
    path: str  # as it would be typed
    at: int  # where in its name what is looked for begins
    depth: int


def _walk(root: Path, shown: str, name: str, *, depth: int) -> Iterator[_Entry]:
    """What fits in a folder, then below it, until the bounds are met. Hidden ones only where a
    dot begins the name that is looked for."""
    wanted, hidden = name.lower(), name.startswith(".")
    pending = deque([(root, shown, 0)])
    left, until = MAX_ENTRIES, time.monotonic() + LOOK_SECONDS
    while pending:
        folder, prefix, level = pending.popleft()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0 or time.monotonic() > until:
                        return
                    at = entry.name.lower().find(wanted)
                    dotted = entry.name.startswith(".")
                    fits = at == 0 if hidden else at >= 0 and not dotted
                    if not fits and level >= depth or not entry.name.isprintable():
                        continue
                    is_folder = _is_folder(entry)
                    path = f"{prefix}{entry.name}" + ("/" if is_folder else "")
                    if fits:
                        yield _Entry(path, at, level)
                    passed = dotted or entry.name in _PASSED_OVER
                    if is_folder and level < depth and not passed and not entry.is_symlink():
                        pending.append((Path(entry.path), path, level + 1))
        except (OSError, ValueError):
            continue  # not there, or not ours to read


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link to itself, or to where we may not look


def read(path: Path, shown: str) -> str:
    """The text of a file that the user calls `shown`. Raises FileRefused."""
    name = one_line(shown)
    try:
        if not _opens(os.stat(path).st_mode):  # to open a device can be to act on it
            raise FileRefused(f"{name} is not a file that could be attached.")
        # Not to be waited for: a pipe has no end, and opening one can last for ever.
        with open(path, "rb", opener=_at_once) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise FileRefused(f"{name} is not a file that could be attached.")
            if found.st_size > MAX_FILE_BYTES:
                raise FileRefused(_too_large(name, found.st_size))
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise FileRefused(f"{name} cannot be read: {why}.") from None
    if len(data) > MAX_FILE_BYTES:
        raise FileRefused(_too_large(name, len(data)))
    return _text(data, name)


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _opens(mode: int) -> bool:
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def _text(data: bytes, name: str) -> str:
    if not data.strip():
        raise FileRefused(f"{name} is empty.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise FileRefused(f"{name} is not text (UTF-8), so it cannot be attached.")
    return text.replace("\r\n", "\n")


def _too_large(name: str, size: int) -> str:
    most = MAX_FILE_BYTES // 1024
    return f"{name} has {-(-size // 1024)} KiB; at most {most} KiB of a file can be attached."
