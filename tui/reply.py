"""One reply as it is written: its run is read to the end, whatever the connection does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from hobnob.tui.line import Line
from hobnob.tui.notice import ClientError
from hobnob.tui.transcript import Entry

EVENTS_AT_ONCE = 32
"""After so many events of a stream the screen and the keys get their turn."""

OnChange = Callable[[Entry], None]


async def follow(line: Line, reply: Entry, changed: OnChange) -> bool:
    """Read the reply's run to its end. Leaving early does not stop the run. False: it could not
    be followed to its end, and what there is of it may not be all."""
    assert reply.run is not None, "a reply that is written has a run"
    client = await line.get()
    try:
        async with aclosing(client.stream(reply.run)) as items:
            count = 0
            async for item in items:
                reply.apply(item)
                changed(reply)
                count += 1
                if count % EVENTS_AT_ONCE == 0:
                    await asyncio.sleep(0)
    except ClientError as error:
        reply.fail(error.code, error.message)
        changed(reply)
        return False
    return True
