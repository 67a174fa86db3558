"""Restores that are killed, for tests: python <this> SOURCE FOLDER [no-links].

Puts SOURCE in the place of FOLDER/hobnob.db again and again, each time in a process of its own
and on a copy of FOLDER, killed at its first step with a file, its second, and so on until one
comes to its end. The copies are FOLDER.1, FOLDER.2, …; prints what was about to happen in each,
and `done` for the last. Steps are what the interpreter's audit hooks tell of: what SQLite does
inside of a statement is its own to survive. With `no-links` as on a file system without hard links.
"""

from __future__ import annotations

import os
import shutil
import sys
from itertools import count
from pathlib import Path
from typing import Any

from hobnob.store import offline

STEPS = {"os.rename", "os.remove", "os.link", "os.utime", "shutil.copyfile", "sqlite3.connect"}


def main(source: Path, folder: Path, links: bool) -> None:
    for number in count(1):
        copy = folder.with_name(f"{folder.name}.{number}")
        shutil.copytree(folder, copy)
        told, tell = os.pipe()
        if (child := os.fork()) == 0:
            if not links:
                os.link = _no_links
            sys.addaudithook(_Killer(number, tell).hear)
            offline.restore(source, copy / "hobnob.db")
            os._exit(0)
        os.close(tell)
        with os.fdopen(told) as line:
            step = line.read()
        _, status = os.waitpid(child, 0)
        print(step or "done", flush=True)
        if not step:
            assert status == 0, "the restore that nobody killed failed"
            return


class _Killer:
    def __init__(self, number: int, tell: int) -> None:
        self._left = number
        self._tell = tell

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        writing = event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT
        if event not in STEPS and not writing:
            return
        self._left -= 1
        if not self._left:
            os.write(self._tell, f"{event} {arguments[0]!r}".encode())
            os._exit(9)


def _no_links(*_: Any) -> None:
    raise PermissionError(1, "Operation not permitted")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:] != ["no-links"])
