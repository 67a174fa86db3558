"""The real program with the real small model: run it, read its stream, find its processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from hobnob import launch
from hobnob.paths import Paths
from hobnob.server.wire import API

BINARY = Path(sys.executable).parent / "hobnob"
WAIT_SECONDS = 120.0
"""For something that takes about a second on a quiet machine: only ever a reason to fail."""

T = TypeVar("T")

GREEDY = ("-o", "temperature", "0")


@dataclass(frozen=True, slots=True)
class Home:
    """One user's folder, and the commands run in it."""

    path: Path
    threads: int = 1
    """Of the engine; 0: it chooses. One thread never waits for another that has lost its core to
    the tests beside it."""

    def environment(self, **extra: str) -> dict[str, str]:
        names = {k: v for k, v in os.environ.items() if not k.startswith("HOBNOB_")}
        own = {"HOBNOB_HOME": str(self.path), "HOBNOB_THREADS": str(self.threads)}
        return {**names, **own, **extra}

    def run(
        self, *arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [BINARY, *arguments],
            input=stdin,
            capture_output=True,
            timeout=WAIT_SECONDS,
            env=self.environment(**(env or {})),
            check=False,
        )

    def start(self, *arguments: str, **extra: str) -> subprocess.Popen[bytes]:
        """A command whose output is read while it runs."""
        return subprocess.Popen(
            [BINARY, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment(**extra),
        )

    @property
    def paths(self) -> Paths:
        return Paths.home({"HOBNOB_HOME": str(self.path)})

    def get(self, path: str) -> Any:
        """What the running server answers: in a hundredth of the time that a command takes."""
        server = launch.find(self.paths)
        assert server is not None, "no server is running"
        headers = {"x-api-key": self.key()}
        answer = httpx.get(f"{server.url}{API}{path}", headers=headers, trust_env=False)
        answer.raise_for_status()
        return answer.json()

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.get("/status")
        return status

    def address(self) -> tuple[str, int]:
        server = launch.find(self.paths)
        assert server is not None
        parts = urlsplit(server.url)
        assert parts.hostname and parts.port
        return parts.hostname, parts.port

    def key(self) -> str:
        return self.paths.key_file.read_text().strip()

    def conversations(self) -> list[str]:
        """Their ids, the newest first."""
        return [str(one["id"]) for one in self.get("/conversations")["conversations"]]

    def stored_replies(self) -> list[dict[str, Any]]:
        """The newest reply of each conversation, newest conversation first."""
        return [self.reply_of(id) for id in self.conversations()]

    def reply_of(self, conversation: str) -> dict[str, Any]:
        messages = self.get(f"/conversations/{conversation}/messages")["messages"]
        reply: dict[str, Any] = [m for m in messages if m["role"] == "assistant"][-1]
        return reply

    def stop(self) -> None:
        self.run("stop")


def wait_for(probe: Callable[[], T | None], seconds: float = WAIT_SECONDS) -> T:
    """Polls until the probe gives something true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := probe():
            return found
        time.sleep(0.05)
    raise AssertionError(f"nothing came within {seconds:.0f} s")


def read_some(process: subprocess.Popen[bytes], count: int) -> bytes:
    """At least `count` bytes of the output, or all of it if it is shorter."""
    assert process.stdout is not None
    got = b""
    while len(got) < count:
        data = os.read(process.stdout.fileno(), 65536)
        if not data:
            break
        got += data
    return got


def read_rest(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """What is left of stdout, and all of stderr."""
    return process.communicate(timeout=WAIT_SECONDS)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
