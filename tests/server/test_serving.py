"""A real server process: how it comes up, and every way in which it goes down."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from hobnob.paths import Paths
from hobnob.server import serving
from hobnob.server.lifecycle import Lifecycle
from hobnob.server.lock import AlreadyServing, Lock
from hobnob.server.wire import API
from hobnob.store.store import Store

PROGRAM = Path(__file__).parents[1] / "support" / "serve_fake.py"
PATIENCE_SECONDS = 30
"""For a machine that does other things meanwhile; only a failing test waits for as long."""
STOP_BOUND_SECONDS = 5.0
"""What the product promises. On the process's own clock, so that a busy machine counts too."""


@dataclass(slots=True)
class Process:
    child: subprocess.Popen[str]
    paths: Paths
    state: dict[str, Any]
    client: httpx.AsyncClient

    async def start_run(self) -> str:
        path = f"{API}/conversations/new/messages"
        answer = await self.client.post(path, json={"text": "go on and on"})
        return str(answer.json()["run"]["id"])

    async def ended(self) -> tuple[int, str]:
        """Exit code and what it said on stderr."""
        await until(lambda: self.child.poll() is not None)
        assert self.child.stderr is not None
        return self.child.wait(), self.child.stderr.read()


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def process(
    home: Path, *arguments: str, before: Sequence[str] = ()
) -> AsyncIterator[Process]:
    paths = Paths.home({"HOBNOB_HOME": str(home)})
    child = subprocess.Popen(
        [*before, sys.executable, str(PROGRAM), *arguments],
        env={**os.environ, "HOBNOB_HOME": str(home)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        await until(lambda: _state(paths).get("pid") == child.pid or child.poll() is not None)
        state = _state(paths)
        headers = {"x-api-key": paths.key_file.read_text().strip()}
        async with httpx.AsyncClient(
            base_url=state["url"], headers=headers, trust_env=False
        ) as client:
            yield Process(child, paths, state, client)
    finally:
        if child.poll() is None:
            child.kill()
        child.wait()
        assert child.stderr is not None
        child.stderr.close()


def _state(paths: Paths) -> dict[str, Any]:
    """Of whoever wrote it: after a kill the file of the dead server is still there."""
    try:
        return dict(json.loads(paths.state_file.read_text()))
    except FileNotFoundError:
        return {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_ends_it_with_streams_open_and_every_reader_is_told(
    tmp_path: Path, number: signal.Signals
) -> None:
    async with process(tmp_path) as server:
        run = await server.start_run()
        chat = {"model": "default", "messages": [{"role": "user", "content": "x"}]}
        native, streamed, fed = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def read(method: str, path: str, seen: asyncio.Event, **fields: Any) -> str:
            text = ""
            async with server.client.stream(method, path, **fields) as answer:
                async for part in answer.aiter_text():
                    text += part
                    if "word" in text or "position" in text:
                        seen.set()
            return text

        path = f"{API}/runs/{run}/events"
        following = asyncio.create_task(read("GET", path, native))
        body = {**chat, "stream": True}
        chatting = asyncio.create_task(read("POST", "/v1/chat/completions", streamed, json=body))
        whole = asyncio.create_task(server.client.post("/v1/chat/completions", json=chat))
        feeding = asyncio.create_task(read("GET", f"{API}/changes", fed))
        await native.wait()
        await streamed.wait()
        await fed.wait()
        asked_at = time.monotonic()
        server.child.send_signal(number)
        code, said = await server.ended()
        assert time.monotonic() - asked_at < STOP_BOUND_SECONDS
        assert (code, said) == (0, "")
        assert (await following).rstrip().splitlines()[-2] == "event: error"
        assert "server_stopping" in (await following)
        assert "server_stopping" in (await feeding)
        assert "server_stopping" in (await chatting) and "[DONE]" not in (await chatting)
        assert (await whole).status_code == 503
        assert not server.paths.state_file.exists()
    store = await Store.open(server.paths.database)
    assert [one.id for one in await store.in_flight()] == [run]
    await store.close()


async def test_a_signal_that_was_ignored_from_the_start_stays_ignored(tmp_path: Path) -> None:
    """`nohup hobnob serve &`: the terminal may go."""
    async with process(tmp_path, before=("nohup",)) as server:
        server.child.send_signal(signal.SIGHUP)
        await server.start_run()
        server.child.send_signal(signal.SIGTERM)
        code, _ = await server.ended()
        assert code == 0
        log = server.paths.server_log
        assert "SIGHUP" not in (log.read_text() if log.exists() else "")


async def test_a_request_to_stop_ends_it_as_a_signal_does(tmp_path: Path) -> None:
    async with process(tmp_path) as server:
        await server.start_run()
        answer = await server.client.post(f"{API}/stop")
        assert (answer.status_code, answer.json()) == (202, {"stopping": True})
        assert await server.ended() == (0, "")


async def test_a_client_that_does_not_read_cannot_hold_it_up(tmp_path: Path) -> None:
    async with process(tmp_path, "--word", "x" * 16_384) as server:
        path = f"{API}/runs/{await server.start_run()}/events"
        key = server.client.headers["x-api-key"]
        lines = [f"GET {path} HTTP/1.1", "Host: localhost", f"x-api-key: {key}", "", ""]
        with socket.socket() as silent:
            silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            silent.connect(("127.0.0.1", server.state["port"]))
            silent.sendall("\r\n".join(lines).encode())
            async with server.client.stream("GET", path) as answer:
                # More than the kernel holds for the silent one.
                async for _ in answer.aiter_bytes():
                    if answer.num_bytes_downloaded > 8 * 1024 * 1024:
                        break
            asked_at = time.monotonic()
            server.child.terminate()
            assert await server.ended() == (0, "")
            assert time.monotonic() - asked_at < STOP_BOUND_SECONDS


async def test_a_part_that_does_not_close_is_left_behind(tmp_path: Path) -> None:
    async with process(tmp_path, "--stuck") as server:
        asked_at = time.monotonic()
        server.child.terminate()
        code, said = await server.ended()
        assert time.monotonic() - asked_at < STOP_BOUND_SECONDS
        assert code == 1
        assert "Traceback" not in said
        assert not server.paths.state_file.exists()


async def test_a_server_that_can_log_nothing_any_more_ends_and_the_next_one_goes_on(
    tmp_path: Path,
) -> None:
    async with process(tmp_path, "--break") as first:
        run = await first.start_run()
        path = f"{API}/runs/{run}/events"
        async with first.client.stream("GET", path) as answer:
            seen = await answer.aread()
        assert seen.decode().rstrip().splitlines()[-2] == "event: error"
        code, said = await first.ended()
        assert code == 1
        assert not first.paths.state_file.exists()
    async with process(tmp_path) as second:
        again = ""
        async with second.client.stream("GET", path) as answer:
            async for part in answer.aiter_text():
                again += part
                if again.count("word") > seen.count(b"word"):
                    break
        assert again.startswith(seen.decode().split("event: error")[0].rpartition("\n\n")[0])


async def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    async with process(tmp_path, "--stuck") as server:
        server.child.terminate()
        await until(lambda: not server.paths.state_file.exists())
        server.child.send_signal(signal.SIGINT)
        code, said = await server.ended()
        assert code == 128 + signal.SIGINT
        assert "Traceback" not in said


async def test_the_port_and_the_lock_are_free_again_at_once(tmp_path: Path) -> None:
    async with process(tmp_path) as first:
        await first.start_run()
        first.child.terminate()
        await first.ended()
    async with process(tmp_path) as second:
        assert second.state["instance"] == first.state["instance"]


async def test_an_unused_server_ends_by_itself(tmp_path: Path) -> None:
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, str(PROGRAM), "--idle", "0.2"],
        env={**os.environ, "HOBNOB_HOME": str(tmp_path)},
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert not Paths.home({"HOBNOB_HOME": str(tmp_path)}).state_file.exists()


class Busy:
    """As much of `Runs` as the idle watch looks at."""

    def __init__(self, *, saved: bool) -> None:
        self.looked = 0
        self.saved = saved

    @property
    def live_count(self) -> int:
        """One run goes on for some looks, though nobody reads it."""
        self.looked += 1
        return int(self.looked <= (10 if self.saved else 5))

    @property
    def unsaved_count(self) -> int:
        """It has ended, but its end cannot be saved until the tenth look."""
        return int(not self.saved and self.looked <= 10)


@pytest.mark.parametrize("saved", [True, False])
async def test_a_server_that_writes_or_saves_a_reply_is_in_use_though_nobody_reads_it(
    saved: bool,
) -> None:
    now = [0.0]
    lifecycle = Lifecycle(clock=lambda: now[0])
    runs: Any = Busy(saved=saved)

    async def tick(_: float) -> None:
        now[0] += 1

    await serving.watch_idleness(lifecycle, runs, 3.0, sleep=tick)
    assert lifecycle.stopping
    assert now[0] == 13  # the last look that found it busy, and the bound after that


async def test_the_state_file_says_where_and_who(tmp_path: Path) -> None:
    async with process(tmp_path) as server:
        health = (await server.client.get("/health")).json()
        assert server.state["pid"] == server.child.pid
        assert server.state["url"] == f"http://127.0.0.1:{server.state['port']}"
        assert server.state["instance"] == health["instance"]
        assert server.paths.state_file.stat().st_mode & 0o777 == 0o600


async def test_a_run_goes_on_after_the_server_was_killed(tmp_path: Path) -> None:
    async with process(tmp_path) as first:
        run = await first.start_run()
        path = f"{API}/runs/{run}/events"
        seen = ""
        async with first.client.stream("GET", path) as answer:
            async for part in answer.aiter_text():
                seen += part
                if seen.count("word") >= 3:
                    break
        first.child.kill()
        await first.ended()
    async with process(tmp_path) as second:
        assert (await second.client.get(f"{API}/runs/{run}")).json()["status"] == "running"
        again = ""
        async with second.client.stream("GET", path) as answer:
            async for part in answer.aiter_text():
                again += part
                if again.count("word") > seen.count("word"):
                    break
        whole = seen[: seen.rindex("\n\n")]
        assert again.startswith(whole)


async def begin_temporary(server: Process) -> str:
    """One in whose reply the server writes `xyzzy`, and to which it was said; its path."""
    path = f"{API}/conversations/new/messages"
    answer = await server.client.post(path, json={"text": "xyzzy", "temporary": True})
    return f"{API}/conversations/{answer.json()['conversation']['id']}"


def traces(paths: Paths) -> int:
    files = [file for file in paths.database.parent.iterdir() if file.is_file()]
    return sum(file.read_bytes().count(b"xyzzy") for file in files)


@pytest.mark.parametrize("comes_back", [True, False])
async def test_a_temporary_conversation_outlives_kill_9_only_for_who_comes_back_to_it(
    tmp_path: Path, comes_back: bool
) -> None:
    async with process(tmp_path, "--word", "xyzzy ") as first:
        path = await begin_temporary(first)
        async with first.client.stream("GET", f"{path}/hold"):
            await until(lambda: traces(first.paths) > 3)
            first.child.kill()
            await first.ended()
    assert traces(first.paths)
    grace = () if comes_back else ("--grace", "0.1")
    async with process(tmp_path, "--word", "xyzzy ", *grace) as second:
        if comes_back:
            async with second.client.stream("GET", f"{path}/hold") as held:
                assert held.status_code == 200
                branch = (await second.client.get(f"{path}/messages")).json()
                assert [one["text"] for one in branch["messages"]][0] == "xyzzy"
                assert branch["messages"][1]["status"] == "running"
                second.child.terminate()
                assert "not_found" in (await held.aread()).decode()
        else:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while (await second.client.get(path)).status_code != 404:
                    await asyncio.sleep(0.05)
            await until(lambda: not traces(second.paths))
            second.child.terminate()
        await second.ended()
    assert traces(second.paths) == 0


async def test_a_restart_that_was_asked_for_leaves_temporary_conversations_to_the_next_server(
    tmp_path: Path,
) -> None:
    async with process(tmp_path, "--word", "xyzzy ") as first:
        path = await begin_temporary(first)
        async with first.client.stream("GET", f"{path}/hold") as held:
            await first.client.post(f"{API}/stop", params={"restarting": True})
            assert "server_stopping" in (await held.aread()).decode()
        assert await first.ended() == (0, "")
    async with process(tmp_path) as second:
        assert (await second.client.get(path)).json()["temporary"] is True
        await second.client.post(f"{API}/stop")
        assert await second.ended() == (0, "")
    assert traces(second.paths) == 0


def numbered(stream: str) -> dict[str, str]:
    """Whole events by their number."""
    blocks = [block for block in stream.split("\n\n")[:-1] if "\nid: " in block]
    return {block.rpartition("\nid: ")[2].split("\n")[0]: block for block in blocks}


async def test_a_server_without_replies_ends_too_once_it_finds_that_another_took_over(
    tmp_path: Path,
) -> None:
    async with process(tmp_path) as server:
        other = await Store.open(server.paths.database)  # as one that found no lock
        answer = await server.client.post(f"{API}/conversations", json={})
        assert answer.status_code == 507
        code, said = await server.ended()
        assert code == 1 and "Another server has taken over" in said
        assert "Traceback" not in said
        await other.close()


async def test_a_server_whose_database_was_removed_says_so_keeps_nothing_in_silence_and_ends(
    tmp_path: Path,
) -> None:
    async with process(tmp_path) as server:
        remove_database(server)
        answer = await server.client.post(f"{API}/conversations", json={})
        assert answer.status_code == 507
        assert "was removed, or replaced" in answer.json()["error"]["message"]
        code, said = await server.ended()
        assert code == 1 and "was removed, or replaced by another file" in said
        assert "Traceback" not in said


async def test_a_reply_whose_database_is_removed_breaks_off_and_does_not_end(
    tmp_path: Path,
) -> None:
    async with process(tmp_path) as server:
        path = f"{API}/runs/{await server.start_run()}/events"
        text = ""
        async with server.client.stream("GET", path) as answer:
            parts = answer.aiter_text()
            while text.count("word") < 3:
                text += await anext(parts)
            remove_database(server)
            async with asyncio.timeout(PATIENCE_SECONDS):
                async for part in parts:
                    text += part
        assert "event: error" in text.rpartition("\n\n")[0].rpartition("\n\n")[2]
        assert "event: message_stop" not in text
        code, said = await server.ended()
        assert code == 1 and "was removed, or replaced by another file" in said
        assert "Traceback" not in said


def remove_database(server: Process) -> None:
    for ending in ("", "-wal", "-shm"):
        Path(f"{server.paths.database}{ending}").unlink()


async def test_a_server_that_slept_while_another_took_over_shows_nothing_of_its_own_and_ends(
    tmp_path: Path,
) -> None:
    async with process(tmp_path) as first:
        path = f"{API}/runs/{await first.start_run()}/events"
        early = ""
        async with first.client.stream("GET", path) as answer:
            parts = answer.aiter_text()
            while early.count("word") < 3:
                early += await anext(parts)
            first.child.send_signal(signal.SIGSTOP)
            with pytest.raises(AlreadyServing):  # asleep or not, it holds the lock
                Lock.acquire(first.paths.lock_file)
            first.paths.lock_file.unlink()  # as who tidies up the wrong folder does
            async with process(tmp_path) as second:
                later = ""
                async with second.client.stream("GET", path) as other:
                    async for part in other.aiter_text():
                        later += part
                        if later.count("word") > early.count("word") + 50:
                            break
                first.child.send_signal(signal.SIGCONT)
                async for part in parts:
                    early += part
                assert "event: error" in early.rpartition("\n\n")[0].rpartition("\n\n")[2]
                assert numbered(early).items() <= numbered(later).items()
                code, said = await first.ended()
                assert code == 1 and "Traceback" not in said
                assert _state(second.paths)["pid"] == second.child.pid
                assert (await second.client.get("/health")).status_code == 200


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux")
async def test_an_idle_server_stays_small(tmp_path: Path) -> None:
    async with process(tmp_path) as server:
        await server.client.post(
            "/v1/chat/completions",
            json={
                "model": "default",
                "max_tokens": 3,
                "messages": [{"role": "user", "content": "x"}],
            },
        )
        rollup = Path(f"/proc/{server.child.pid}/smaps_rollup").read_text()
        (pss_kb,) = [int(line.split()[1]) for line in rollup.splitlines() if line[:4] == "Pss:"]
        assert pss_kb < 120 * 1024
