"""A process of its own that uses a store, for tests that kill it: python <this> VERB PATH.

write        appends to two runs for ever, and prints `RUN SEQ` when that is acknowledged
die-in-turn  begins a turn and dies before its transaction ends
open         opens, begins a turn if it may, and prints `wrote` or `stale`
limited      writes under a limit on file sizes until that fails, then without it
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from itertools import count
from pathlib import Path

from support_turns import delta, first_turn

from hobnob.store import runs
from hobnob.store.store import Store
from hobnob.store.values import Append, Stale, WriteFailed


async def write(path: Path) -> None:
    store = await Store.open(path)
    turns = [await first_turn(store, "a question"), await first_turn(store, "another")]
    for seq in count(1):
        await store.append([Append(t.run.id, [delta(seq, f"{seq} ", [seq])]) for t in turns])
        for turn in turns:
            print(turn.run.id, seq, flush=True)


async def die_in_turn(path: Path) -> None:
    def die(*_: object, **__: object) -> int:
        os._exit(9)

    store = await Store.open(path)
    await first_turn(store, "before")
    runs.insert = die
    await first_turn(store, "never")


async def open_(path: Path) -> None:
    store = await Store.open(path)
    try:
        await first_turn(store)
        print("wrote")
    except Stale:
        print("stale")
    await store.close()


async def limited(path: Path) -> None:
    store = await Store.open(path)
    turn = await first_turn(store)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024 * 1024, resource.RLIM_INFINITY))
    seq = 1
    try:
        while True:
            await store.append([Append(turn.run.id, [delta(seq, "x" * 50_000)])])
            seq += 1
    except WriteFailed:
        print("failed at", seq, flush=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await store.append([Append(turn.run.id, [delta(seq, "again")])])
    print("wrote", len(await store.events("local", turn.run.id)), await store.check())
    await store.close()


VERBS = {"write": write, "die-in-turn": die_in_turn, "open": open_, "limited": limited}

if __name__ == "__main__":
    asyncio.run(VERBS[sys.argv[1]](Path(sys.argv[2])))
