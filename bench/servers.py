"""The contestants: how each is started, with which flags, and how a client speaks to it.

All listen on 127.0.0.1 only, on a free port, with the same model, threads and total context.
hobnob is started as a user starts it (`hobnob serve`), with a HOBNOB_HOME of its own.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from bench import machine, native, peers
from bench.capacity import (
    HOBNOB,
    LLAMA_CPP_PYTHON,
    LLAMA_SERVER_SAME,
    Capacity,
    ServerFailed,
    Variant,
)
from bench.load import Client

ROOT = Path(__file__).resolve().parents[1]
_HOBNOB = ROOT / ".venv" / "bin" / "hobnob"
START_SECONDS = 180.0
STOP_SECONDS = 10.0


class Server:
    """A running contestant. `async with`; may be stopped and started again with its home kept."""

    def __init__(self, variant: Variant, capacity: Capacity) -> None:
        self.variant = variant
        self.capacity = capacity
        self.home = Path(tempfile.mkdtemp(prefix="hobnob-bench-"))
        self.log = self.home / "output.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._client: Client | None = None

    @property
    def name(self) -> str:
        return self.variant.contestant

    @property
    def ours(self) -> bool:
        """hobnob, also under a name that says how it was set."""
        return self.name.startswith(HOBNOB)

    @property
    def client(self) -> Client:
        assert self._client is not None, "not started"
        return self._client

    @property
    def command(self) -> list[str]:
        """As it would be typed, without the port."""
        return _command(self, 0)

    async def __aenter__(self) -> Server:
        try:
            await self.start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        shutil.rmtree(self.home, ignore_errors=True)

    async def start(self) -> None:
        """Until it can answer. Raises ServerFailed."""
        port = _free_port()
        key = secrets.token_hex(16)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                _command(self, port),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.home,
                env=_environment(self, port, key),
            )
        headers = {"Authorization": f"Bearer {key}"}
        self._client = Client(
            f"http://127.0.0.1:{port}", headers=headers, model="", extra=_extra(self)
        )
        await self._ready()
        listed = await self._client.http.get("/v1/models")
        listed.raise_for_status()
        self._client.model = listed.json()["data"][0]["id"]

    async def stop(self) -> None:
        """As its user would; hobnob keeps what it stored."""
        if self._client is not None:
            await self._client.close()
            self._client = None
        if self._process is not None:
            self._process.terminate()
            try:
                await asyncio.to_thread(self._process.wait, STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    async def revive(self) -> str | None:
        """Starts it again where it has died; says so. Raises ServerFailed."""
        if self._process is None or self._process.poll() is None:
            return None
        code = self._process.returncode
        await self.stop()
        await self.start()
        return f"{self.name} had ended with exit code {code} and was started again"

    def pids(self) -> list[int]:
        return machine.tree(self._process.pid) if self._process is not None else []

    async def _ready(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + START_SECONDS
        while loop.time() < deadline:
            assert self._process is not None
            if self._process.poll() is not None:
                raise ServerFailed(f"{self.name} ended at its start:\n{self.tail()}")
            if await self._answers():
                return
            await asyncio.sleep(0.02)
        raise ServerFailed(f"{self.name} was not ready in {START_SECONDS:.0f} s:\n{self.tail()}")

    async def _answers(self) -> bool:
        try:
            if self.ours:
                found = await native.status(self.client)
                return bool(found["engine"]["state"] == "ready")
            path = "/v1/models" if self.name == LLAMA_CPP_PYTHON else "/health"
            return (await self.client.http.get(path)).status_code == 200
        except httpx.HTTPError:
            return False

    def tail(self, lines: int = 15) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])


def shown_command(command: Sequence[str]) -> str:
    """For documents: without this machine's folders and the port of the day."""
    words = [Path(word).name if word.startswith("/") else word for word in command]
    shown = " ".join(word for word in words if "=/" not in word)
    return re.sub(r" --port \d+", "", shown).removeprefix("env ")


def _streams(server: Server) -> int:
    return server.variant.streams or server.capacity.streams


def _command(server: Server, port: int) -> list[str]:
    capacity, flags = server.capacity, [flag for flag in server.variant.flags]
    model, threads, cells = str(capacity.model), str(capacity.threads), str(capacity.cells)
    if server.ours:
        program = server.variant.program
        start = [sys.executable, "-m", program] if program else [str(_HOBNOB), "serve"]
        serve = [*start, "--model", model]
        serve += ["--sequences", str(_streams(server))]
        if capacity.threads != machine.cores():  # what it chooses, and then may give way from
            serve += ["--threads", threads]
        return [*serve, "--port", str(port), *flags]
    if server.name == LLAMA_CPP_PYTHON:
        command = [str(peers.llama_cpp_python()), "-m", "llama_cpp.server", "--model", model]
        command += ["--host", "127.0.0.1", "--port", str(port), "--n_ctx", cells]
        command += ["--n_threads", threads, "--n_threads_batch", threads]
        # Else each new request cancels the one before it.
        return [*command, "--interrupt_requests", "false", *flags]
    binary = peers.llama_server(same_source=server.name == LLAMA_SERVER_SAME)
    command = [str(binary), "--model", model, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--threads", threads, "--ctx-size", cells, "--parallel", str(_streams(server))]
    return [*command, "--no-ui", "--offline", *flags]


def _environment(server: Server, port: int, key: str) -> dict[str, str]:
    """Ours without the variables that could change a contestant behind our back."""
    ruled = re.compile(r"HOBNOB_|LLAMA_|OMP_|GOMP_|GGML_")
    inherited = {name: value for name, value in os.environ.items() if not ruled.match(name)}
    if server.ours:
        inherited |= {
            "HOBNOB_HOME": str(server.home),
            "HOBNOB_KEY": key,
            "HOBNOB_CELLS": str(server.capacity.cells),
        }
    if server.variant.program:
        folders = [str(ROOT), inherited.get("PYTHONPATH", "")]
        inherited["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
    return {**inherited, **server.variant.environment}


def _extra(server: Server) -> dict[str, Any]:
    """How each is asked for a reply of a set length."""
    if server.name == LLAMA_CPP_PYTHON:
        return {"logit_bias": {str(server.capacity.eos): -100.0}}
    return {"ignore_eos": True}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
