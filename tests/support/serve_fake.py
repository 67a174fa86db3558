"""A whole server process whose engine writes one endless word after another.

    serve_fake.py [--idle SECONDS] [--word WORD] [--stuck] [--break]
                  [--grace SECONDS]   (HOBNOB_HOME says where)
Everything but the engine is the product's own: lock, key, socket, state file, signals, stopping.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import overload

from fake_engine import FakeEngine

from hobnob.paths import Paths
from hobnob.server import keys, listener, temporary
from hobnob.server.lock import Lock
from hobnob.server.requests import RunSettings
from hobnob.server.security import Policy
from hobnob.server.served import ServedModel
from hobnob.server.serving import Setup, serve
from hobnob.store.store import Store
from hobnob.store.values import Append

STEP_SECONDS = 0.005


class Endless(Sequence[str]):
    """One word, again and again, without the memory."""

    def __init__(self, word: str) -> None:
        self._word = word

    def __len__(self) -> int:
        return sys.maxsize

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self._word] * len(range(*index.indices(len(self))))
        return self._word


class EndlessEngine(FakeEngine):
    def __init__(self, word: str) -> None:
        super().__init__()
        self._word = word

    async def start(self) -> None:
        self.script = Endless(self._word)  # type: ignore[assignment]
        self._player = asyncio.create_task(self._play())

    async def close(self) -> None:
        await super().close()
        self._player.cancel()

    async def _play(self) -> None:
        while True:
            if self.runs:
                self.step()
            await asyncio.sleep(STEP_SECONDS)


class StuckEngine(EndlessEngine):
    """One that never closes: the server must leave without it."""

    async def close(self) -> None:
        await asyncio.Event().wait()


def break_the_journal() -> None:
    """After some appends the store raises what the journal does not know."""
    append, left = Store.append, iter(range(20))

    async def breaking(store: Store, batch: list[Append]) -> list[str]:
        if next(left, None) is None:
            raise ZeroDivisionError
        return await append(store, batch)

    Store.append = breaking  # type: ignore[method-assign, assignment]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--idle", type=float, default=None)
    parser.add_argument("--word", default="word ")
    parser.add_argument("--stuck", action="store_true")
    parser.add_argument("--break", action="store_true", dest="breaks")
    parser.add_argument("--grace", type=float, default=temporary.GRACE_SECONDS)
    given = parser.parse_args()
    temporary.GRACE_SECONDS = given.grace
    paths = Paths.home({"HOBNOB_HOME": os.environ["HOBNOB_HOME"]})  # never the user's own
    paths.make()
    lock = Lock.acquire(paths.lock_file)
    model = ServedModel("tiny.gguf", str(Path("/models/tiny.gguf")))
    setup = Setup(
        paths=paths,
        listener=listener.bind("127.0.0.1", 0, or_any=False),
        policy=Policy(keys=(keys.load_or_make(paths.key_file),)),
        settings=RunSettings(model=model.id),
        model=model,
        models=lambda: [],
        idle_stop_s=given.idle,
    )
    engine = StuckEngine if given.stuck else EndlessEngine
    if given.breaks:
        break_the_journal()
    code = asyncio.run(serve(setup, engine(given.word)))
    lock.release()
    return code


if __name__ == "__main__":
    sys.exit(main())
