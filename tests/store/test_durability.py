"""What was acknowledged survives the death of the process, at any moment."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from pathlib import Path

from support_turns import ME, first_turn

from hobnob.store.store import Store

PROCESS = Path(__file__).parent.parent / "support" / "support_store_process.py"


async def spawn(verb: str, path: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, str(PROCESS), verb, str(path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


async def test_all_that_was_acknowledged_is_there_after_kill_9(path: Path) -> None:
    acknowledged: dict[str, int] = {}
    for _ in range(4):
        process = await spawn("write", path)
        assert process.stdout is not None
        lines = random.randint(1, 300)
        read = [await process.stdout.readline() for _ in range(lines)]
        process.kill()
        rest, errors = await process.communicate()
        assert errors == b""
        # A last line without its end was printed by half.
        for line in (b"".join(read) + rest).split(b"\n")[:-1]:
            run, number = line.decode().split()
            acknowledged[run] = int(number)

        store = await Store.open(path)
        assert await store.check() == []
        for run, seq in acknowledged.items():
            events = await store.events(ME, run)
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            assert seq <= len(events) <= seq + 1
            message = await store.message(ME, (await store.run(ME, run)).message)
            assert message.text == "".join(f"{event.seq} " for event in events)
            assert [event.tokens for event in events] == [[event.seq] for event in events]
        await store.close()
    assert len(acknowledged) == 8


async def test_a_death_in_the_middle_of_a_turn_leaves_nothing_of_it(path: Path) -> None:
    process = await spawn("die-in-turn", path)
    await process.communicate()
    assert process.returncode == 9
    store = await Store.open(path)
    (conversation,) = await store.conversations(ME)
    assert [m.text for m in await store.messages(ME, conversation.id)] == ["before", ""]
    assert await store.search(ME, "never") == []
    assert len(await store.in_flight()) == 1
    assert await store.check() == []
    await store.close()


async def test_a_file_that_may_not_grow_fails_writes_and_writes_work_again_afterwards(
    path: Path,
) -> None:
    process = await spawn("limited", path)
    out, errors = await process.communicate()
    assert errors == b""
    failed, wrote = out.decode().splitlines()
    seq = int(failed.removeprefix("failed at "))
    assert seq > 2
    assert wrote == f"wrote {seq} []"


async def test_a_process_that_was_replaced_is_refused(path: Path) -> None:
    process = await spawn("write", path)
    assert process.stdout is not None
    await process.stdout.readline()
    store = await Store.open(path)  # as if the other had been stopped and taken for dead
    _, errors = await process.communicate()
    assert b"Another server has taken over the database." in errors
    assert (await first_turn(store)).created
    assert await store.check() == []
    await store.close()
