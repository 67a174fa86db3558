"""Which model answers, and how far its loading is, in words; asked only until it is ready."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from hobnob.tui.clean import one_line
from hobnob.tui.line import Line
from hobnob.tui.notice import ClientError
from hobnob.tui.words import LOADED

POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class ModelState:
    words: str
    settled: bool = True
    failed: bool = False
    starter: bool = False
    """The bundled small model, because no other was chosen or found."""


async def watch(line: Line) -> AsyncIterator[ModelState]:
    """States until one is settled. An unreachable server ends it: the connection tells of that."""
    while True:
        try:
            state = describe(await (await line.get()).status())
        except ClientError:
            return
        yield state
        if state.settled:
            return
        await asyncio.sleep(POLL_SECONDS)


def describe(status: Mapping[str, Any]) -> ModelState:
    """The state in the answer of /status, whatever is missing in it."""
    engine, model = _part(status, "engine"), _part(status, "model")
    name = one_line(str(model.get("id") or model.get("name") or "model"))
    state = engine.get("state")
    if state == "loading":
        done = engine.get("load_done")
        if not isinstance(done, int | float):
            return ModelState(f"loading {name}…", settled=False)
        if done >= LOADED:
            return ModelState(f"warming {name} up…", settled=False)
        return ModelState(f"loading {name}… {done:.0%}", settled=False)
    if state == "restarting":
        return ModelState(f"restarting {name}…", settled=False)
    if state == "failed":
        why = _part(engine, "failure").get("message") or "the model could not be loaded"
        return ModelState(one_line(str(why)), failed=True)
    if model.get("starter"):
        return ModelState(f"{name} · starter model", starter=True)
    return ModelState(name)


def _part(whole: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = whole.get(name)
    return part if isinstance(part, Mapping) else {}
