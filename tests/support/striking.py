"""A home whose processes can be struck: at once, or at a named point of theirs (points/)."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from support_e2e import WAIT_SECONDS, Home, wait_for

from hobnob.server.wire import API

POINTS_FOLDER = Path(__file__).parent / "points"


class Printing:
    """A running `hobnob ask`: what it prints, and when."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._pieces: list[tuple[float, bytes]] = []
        self._more = threading.Condition()
        self._over = False
        self._complaints = b""
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._read, self._listen)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def printed(self) -> bytes:
        with self._more:
            return b"".join(piece for _, piece in self._pieces)

    def first_after(self, moment: float) -> float | None:
        """When the next text after the moment came."""
        with self._more:
            return next((at for at, _ in self._pieces if at > moment), None)

    def wait_for_bytes(self, count: int) -> None:
        """Or for the end of the reply."""
        with self._more:
            enough = self._more.wait_for(lambda: self._over or self._size >= count, WAIT_SECONDS)
        assert enough, "the reply does not go on"

    def finish(self) -> tuple[bytes, str]:
        """All that was printed, and the complaints."""
        for thread in self._threads:
            thread.join(WAIT_SECONDS)
            assert not thread.is_alive(), "the reply does not end"
        self.process.wait(WAIT_SECONDS)
        return self.printed, self._complaints.decode()

    @property
    def _size(self) -> int:
        return sum(len(piece) for _, piece in self._pieces)

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stdout:
            while data := os.read(stdout.fileno(), 65536):
                with self._more:
                    self._pieces.append((time.monotonic(), data))
                    self._more.notify_all()
        with self._more:
            self._over = True
            self._more.notify_all()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stderr:
            self._complaints = stderr.read()


@dataclass(frozen=True, slots=True)
class Stored:
    """A question in the database and what was stored as its reply."""

    question: str
    replies: list[tuple[str, str]]  # status and text
    conversation: str
    run: str


class StruckHome(Home):
    """Its processes look for a plan of their death."""

    @property
    def plan(self) -> Path:
        return self.path / "plan"

    def environment(self, **extra: str) -> dict[str, str]:
        before = os.environ.get("PYTHONPATH")
        folders = [str(POINTS_FOLDER), *([before] if before else [])]
        points = {"PYTHONPATH": os.pathsep.join(folders), "CHAOS_PLAN": str(self.plan)}
        return {**super().environment(), **points, **extra}

    def configure(self, toml: str) -> None:
        self.paths.config_dir.mkdir(parents=True)
        self.paths.config_file.write_text(toml)

    def ask(self, prompt: str, *options: str) -> Printing:
        return Printing(self.start("ask", *options, prompt))

    # ---- the running server, without a process for each question

    def api(self, path: str) -> dict[str, Any]:
        """A GET; {} while no server answers."""
        try:
            url = json.loads(self.paths.state_file.read_bytes())["url"]
            headers = {"x-api-key": self.key()}
            answer = httpx.get(f"{url}{API}{path}", headers=headers, trust_env=False)
        except (OSError, httpx.HTTPError):
            return {}
        found: dict[str, Any] = answer.json()
        return found

    def pid_of(self, victim: str) -> int:
        """Of "server" or "engine"."""
        return int(wait_for(lambda: self.api("/status").get(victim, {}).get("pid")))

    def stored(self, newer_than: int = 0) -> Iterator[Stored]:
        """Questions and their replies, read from the file as it is."""
        with closing(sqlite3.connect(f"file:{self.paths.database}?mode=ro", uri=True)) as conn:
            asked = conn.execute(
                "SELECT m.n, m.text, c.id FROM messages m JOIN conversations c"
                " ON c.n = m.conversation WHERE m.role = 'user' AND m.n > ? ORDER BY m.n",
                (newer_than,),
            )
            for n, question, conversation in asked.fetchall():
                found = conn.execute(
                    "SELECT m.status, m.blocks, r.id FROM messages m JOIN runs r ON r.message = m.n"
                    " WHERE m.parent = ?",
                    (n,),
                ).fetchall()
                replies = [
                    (status, "".join(block["text"] for block in json.loads(blocks)))
                    for status, blocks, _ in found
                ]
                yield Stored(question, replies, conversation, found[0][2] if found else "")

    def newest(self) -> int:
        """The number of the newest message."""
        if not self.paths.database.exists():
            return 0
        with closing(sqlite3.connect(f"file:{self.paths.database}?mode=ro", uri=True)) as conn:
            (newest,) = conn.execute("SELECT coalesce(max(n), 0) FROM messages").fetchone()
        return int(newest)

    # ---- deaths

    def doom(
        self, point: str, number: signal.Signals, *, passes: int = 0, delay_s: float = 0.0
    ) -> None:
        """The next process that comes to the point for the (passes + 1)th time ends there."""
        for old in self.path.glob("plan*"):
            old.unlink()
        plan = {
            "name": str(time.monotonic_ns()),
            "point": point,
            "passes": passes,
            "delay_s": delay_s,
            "signal": int(number),
        }
        self.path.mkdir(parents=True, exist_ok=True)
        fresh = self.path / "plan.new"
        fresh.write_text(json.dumps(plan))
        fresh.replace(self.plan)

    def died_at(self) -> float | None:
        """When the plan was carried out, on the monotonic clock."""
        try:
            return float(json.loads((self.path / "plan.done").read_bytes())["at"])
        except FileNotFoundError:
            return None

    def spare(self) -> bool:
        """Takes the plan back; False: it was carried out."""
        try:
            self.plan.unlink()
        except FileNotFoundError:
            return False
        return True
