"""Named points of the program at which a process ends itself: for every Python with this folder in
its PYTHONPATH.

The file that CHAOS_PLAN names says at which point, how many passes are let by, how long after it,
and by which signal. Whoever dies renames it first, so that it happens once. Without such a file
nothing happens but the look for it.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

PLAN = os.environ.get("CHAOS_PLAN", "")
WAL_BOUND_BYTES = 64 * 1024
"""So that the write-ahead log is checkpointed in mid-reply."""

BEFORE, AFTER = "before", "after"

Wanted = Callable[..., bool]

_passes: dict[str, int] = {}  # of the present plan, by its name
_lock = threading.Lock()


def _reads_prompt(_: Any, chunks: Sequence[Any], *__: Any) -> bool:
    return any(len(chunk.tokens) > max(1, chunk.outputs) for chunk in chunks)


def _draws(_: Any, chunks: Sequence[Any], *__: Any) -> bool:
    return not _reads_prompt(_, chunks)


POINTS: dict[str, tuple[str, str, str, Wanted | None]] = {
    # of the server: the message is committed and not answered · a step is in the transaction ·
    # it is committed and not shown
    "accepted": ("hobnob.store.store", "Store.begin_turn", AFTER, None),
    "written": ("hobnob.store.turns", "append", AFTER, None),
    "committed": ("hobnob.server.journal", "Journal._ask", AFTER, None),
    "checkpoint": ("hobnob.store.writer", "Writer._checkpoint", BEFORE, None),
    "migration": ("hobnob.store.migrations", "migrate", AFTER, None),
    # of the engine
    "load": ("hobnob.server.engine.loading", "load", BEFORE, None),
    "prefill": ("hobnob.server.engine.llama", "Model.decode", BEFORE, _reads_prompt),
    "decode": ("hobnob.server.engine.llama", "Model.decode", BEFORE, _draws),
    "snapshot": ("hobnob.server.engine.snapshot_files", "write", BEFORE, None),
}
"""Module, function, when, and for which arguments."""


def reach(point: str) -> None:
    """Ends the process if the plan says so."""
    try:
        with open(PLAN, "rb") as file:
            plan = json.load(file)
    except (OSError, ValueError):
        return
    if plan["point"] != point:
        return
    with _lock:
        _passes[plan["name"]] = passed = _passes.get(plan["name"], 0) + 1
    if passed == plan["passes"] + 1:
        if plan["delay_s"]:
            threading.Thread(target=_die, args=(plan,), daemon=True).start()
        else:
            _die(plan)


def _die(plan: dict[str, Any]) -> None:
    time.sleep(plan["delay_s"])
    os.replace(PLAN, f"{PLAN}.doing")
    with open(f"{PLAN}.doing", "w") as file:
        json.dump({"pid": os.getpid(), "at": time.monotonic()}, file)
    os.replace(f"{PLAN}.doing", f"{PLAN}.done")
    os.kill(os.getpid(), plan["signal"])


def _with_points(point: str, function: Any, when: str, wanted: Wanted | None) -> Any:
    def meant(*arguments: Any) -> bool:
        return wanted is None or wanted(*arguments)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def waits(*arguments: Any, **named: Any) -> Any:
            result = await function(*arguments, **named)
            reach(point)
            return result

        return waits

    @functools.wraps(function)
    def calls(*arguments: Any, **named: Any) -> Any:
        if when == BEFORE and meant(*arguments):
            reach(point)
        result = function(*arguments, **named)
        if when == AFTER:
            reach(point)
        return result

    return calls


def _patch(module: ModuleType) -> None:
    for point, (name, path, when, wanted) in POINTS.items():
        if name == module.__name__:
            *outer, last = path.split(".")
            owner = functools.reduce(getattr, outer, module)
            setattr(owner, last, _with_points(point, getattr(owner, last), when, wanted))
    if module.__name__ == "hobnob.store.writer":
        module.WAL_BOUND_BYTES = WAL_BOUND_BYTES  # type: ignore[attr-defined]


class _Finder(importlib.abc.MetaPathFinder):
    """Lets the others find the module, and patches it once it is executed."""

    def __init__(self) -> None:
        self._names = {name for name, *_ in POINTS.values()}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self._names:
            return None
        self._names.discard(name)  # the search below must not come here again
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.loader is not None
        execute = spec.loader.exec_module

        def execute_and_patch(module: ModuleType) -> None:
            execute(module)
            _patch(module)

        spec.loader.exec_module = execute_and_patch  # type: ignore[method-assign]
        return spec


if PLAN:
    sys.meta_path.insert(0, _Finder())
