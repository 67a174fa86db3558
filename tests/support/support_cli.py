"""Running the real command line in a process of its own.

Where nothing but its arguments and its input is special, the process is forked from one that has
imported everything (see forking); else it is started as a user's shell would.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import forking
from forking import Forked

COMMAND = (sys.executable, "-c", "from hobnob.cli import main; main()")
DEADLINE_SECONDS = 30


@dataclass(frozen=True)
class Result:
    code: int
    out: bytes
    err: str


class Cli:
    """Its environment is clean: a home of its own, no terminal, the server as given."""

    def __init__(self, home: Path, url: str | None = None, key: str = "test-key"):
        kept = {
            name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ
        }
        self.env = kept | {"HOBNOB_HOME": str(home), "LANG": "C.UTF-8"}
        if url is not None:
            self.env |= {"HOBNOB_URL": url, "HOBNOB_KEY": key}

    async def start(
        self, *args: str | bytes, env: dict[str, str] | None = None, **streams: Any
    ) -> asyncio.subprocess.Process | Forked:
        if env is None and not streams:
            return await forking.start(args, self.env, stdin=False)
        pipe, none = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        pipes = {"stdin": none, "stdout": pipe, "stderr": pipe}
        return await asyncio.create_subprocess_exec(
            *COMMAND, *args, env=self.env | (env or {}), **(pipes | streams)
        )

    async def run(
        self,
        *args: str | bytes,
        stdin: bytes = b"",
        env: dict[str, str] | None = None,
        **streams: Any,
    ) -> Result:
        process: asyncio.subprocess.Process | Forked
        if env is None and not streams:
            process = await forking.start(args, self.env, stdin=bool(stdin))
        else:
            given = asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL
            process = await self.start(*args, env=env, **({"stdin": given} | streams))
        return await self.finish(process, stdin)

    async def finish(
        self, process: asyncio.subprocess.Process | Forked, stdin: bytes = b""
    ) -> Result:
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                out, err = await process.communicate(stdin or None)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode is not None
        return Result(process.returncode, out or b"", (err or b"").decode("utf-8", "replace"))
