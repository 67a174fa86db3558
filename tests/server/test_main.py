"""The server's command: it starts, or says in one line why not and leaves with the right code.

No model is loaded here: what is asked for cannot be, so that only the refusals and the history
are at work.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import httpx
import pytest

from hobnob.exits import Exit
from hobnob.paths import Paths
from hobnob.server import config, main
from hobnob.server.lock import Lock
from hobnob.server.wire import API
from hobnob.store.store import Store

PATIENCE_SECONDS = 30
"""Only a failing test waits for as long."""


@dataclass(slots=True)
class Home:
    path: Path

    @property
    def paths(self) -> Paths:
        return Paths.home({"HOBNOB_HOME": str(self.path)})

    def environment(self, **extra: str) -> dict[str, str]:
        names = {k: v for k, v in os.environ.items() if not k.startswith("HOBNOB_")}
        bad = self.path.parent / "bad.gguf"
        bad.write_bytes(b"this is no model")
        own = {"HOBNOB_HOME": str(self.path), "HOBNOB_MODEL": str(bad), "HOBNOB_PORT": "0"}
        return {**names, **own, **extra}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-P", "-m", "hobnob.server.main", *arguments]

    def run(self, *arguments: str, **extra: str) -> tuple[int, str]:
        """In this process: exit code and stderr of a start that comes to nothing."""
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(StringIO()) as err:
            for name in [name for name in os.environ if name.startswith("HOBNOB_")]:
                patch.delenv(name)
            for name, value in self.environment(**extra).items():
                patch.setenv(name, value)
            patch.setattr(os, "umask", lambda mask: 0)
            patch.setattr(main, "_log_to", lambda paths, also_stderr: None)
            return main.main(arguments), err.getvalue()

    @contextmanager
    def server(self, *arguments: str, **extra: str) -> Iterator[tuple[Any, httpx.Client]]:
        """Its process, and a client of it."""
        child = subprocess.Popen(
            self.command(*arguments),
            env=self.environment(**extra),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            state = self._state(child)
            headers = {"x-api-key": self.paths.key_file.read_text().strip()}
            with httpx.Client(base_url=state["url"], headers=headers, trust_env=False) as client:
                yield child, client
        finally:
            child.kill()
            child.communicate()

    def _state(self, child: subprocess.Popen[str]) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline and child.poll() is None:
            if self.paths.state_file.exists():
                return dict(json.loads(self.paths.state_file.read_text()))
            time.sleep(0.01)
        raise AssertionError(f"no server came up: {child.communicate()}")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def refused(done: tuple[int, str], code: Exit, *words: str) -> None:
    """In one line, with the right exit code and these words."""
    assert done[0] == code, done[1]
    lines = done[1].splitlines()
    assert len(lines) == 1 and lines[0].startswith("hobnob: "), done[1]
    assert all(word in lines[0] for word in words), done[1]


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which another program listens."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield int(other.getsockname()[1])


def test_a_taken_port_is_one_line_that_names_it_and_the_way_out(home: Home, taken: int) -> None:
    done = home.run("--port", str(taken))
    refused(done, Exit.CONFIG, str(taken), "--port")
    assert not home.paths.engine_log.exists()


def test_a_taken_port_from_the_config_is_refused_on_demand_too(home: Home, taken: int) -> None:
    refused(home.run("--on-demand", HOBNOB_PORT=str(taken)), Exit.CONFIG, str(taken))


def test_on_demand_a_taken_default_port_gives_way(
    taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "DEFAULT_PORT", taken)
    with main._bind(config.Config(), on_demand=True) as bound:
        assert bound.getsockname()[1] not in (0, taken)
    with pytest.raises(main.StartError, match=str(taken)):
        main._bind(config.Config(), on_demand=False)


@pytest.mark.parametrize("port", ["70000", "-1", "abc", "7e3"])
def test_a_port_that_is_none_is_refused(home: Home, port: str) -> None:
    refused(home.run(f"--port={port}"), Exit.CONFIG, "port")


def test_an_address_that_is_not_this_machine_s_is_refused(home: Home) -> None:
    done = home.run("--host=203.0.113.9", HOBNOB_KEY="a-key-of-my-own")
    refused(done, Exit.CONFIG, "203.0.113.9")


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_the_network_needs_a_key_that_the_user_chose(home: Home, host: str) -> None:
    refused(home.run(f"--host={host}"), Exit.KEY, "key", "HOBNOB_KEY")
    assert not home.paths.state_file.exists()


@pytest.mark.parametrize("key", ["short", "clé-clé-clé", "two words here"])
def test_a_chosen_key_that_will_not_do_is_refused_and_not_shown(home: Home, key: str) -> None:
    done = home.run(HOBNOB_KEY=key)
    refused(done, Exit.KEY, "key")
    assert key not in done[1]


def test_a_second_server_is_refused_and_the_first_goes_on(home: Home) -> None:
    with home.server() as (_, client):
        done = subprocess.run(
            home.command(),
            env=home.environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        refused((done.returncode, done.stderr), Exit.CONFIG, "running already")
        assert done.stdout == ""
        assert client.get("/health").status_code == 200
        assert home.paths.state_file.exists()


def test_a_mistake_in_the_config_file_is_one_line(home: Home) -> None:
    home.paths.config_dir.mkdir(parents=True)
    home.paths.config_file.write_text("sequenses = 4\n")
    refused(home.run(), Exit.CONFIG, "sequenses", str(home.paths.config_file))


def test_a_home_that_cannot_be_written_is_one_line(home: Home) -> None:
    home.path.mkdir()
    (home.path / "data").write_text("a file where a folder should be")
    refused(home.run(), Exit.CONFIG, "cannot be made", "HOBNOB_HOME")


def test_a_model_asked_for_by_name_that_is_not_there_is_a_reason_not_to_start(home: Home) -> None:
    refused(home.run("--model=nope"), Exit.MODEL, "nope")
    refused(home.run(f"--model={home.path.parent / 'bad.gguf'}"), Exit.MODEL, "bad.gguf")


def test_a_database_of_a_newer_version_is_refused_and_left_alone(home: Home) -> None:
    home.paths.make()
    asyncio.run(_make_database(home.paths.database))
    with contextlib.closing(sqlite3.connect(home.paths.database)) as db, db:
        db.execute("PRAGMA user_version = 999")
    before = home.paths.database.read_bytes()
    refused(home.run(), Exit.CONFIG, "newer")
    assert home.paths.database.read_bytes() == before


async def _make_database(path: Path) -> None:
    await (await Store.open(path)).close()


def test_an_unknown_option_is_a_usage_error(home: Home) -> None:
    with pytest.raises(SystemExit) as left:
        home.run("--bogus")
    assert left.value.code == Exit.USAGE


def test_without_a_usable_model_the_history_still_answers_and_says_why(home: Home) -> None:
    with home.server() as (child, client):
        assert client.get("/health").json()["state"] == "failed"
        assert client.get(f"{API}/conversations").json() == {"conversations": []}
        answer = client.post(f"{API}/conversations/new/messages", json={"text": "hi"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_unavailable")
        assert "bad.gguf" in client.get(f"{API}/status").json()["engine"]["failure"]["message"]
        assert client.get("/v1/models").json()["data"] == []
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=PATIENCE_SECONDS)
    assert child.returncode == 0
    assert out == ""
    assert "listening on http://127.0.0.1:" in err and "Traceback" not in err


def test_no_key_and_no_prompt_is_ever_logged(home: Home) -> None:
    secret, chosen = "very private words", "a-key-of-my-own"
    with home.server("--on-demand", HOBNOB_KEY=chosen) as (child, client):
        made = client.headers["x-api-key"]
        for key in (chosen, made, "a-wrong-key"):
            for path in (f"{API}/conversations/new/messages", "/v1/chat/completions"):
                body = {"text": secret, "model": secret, "messages": secret}
                client.post(path, json=body, headers={"x-api-key": key})
        client.get(f"{API}/search", params={"q": secret})
        client.post(f"{API}/stop")
        out, err = child.communicate(timeout=PATIENCE_SECONDS)
    assert (child.returncode, out, err) == (0, "", "")
    log = home.paths.server_log.read_text()
    assert "listening" in log
    for word in (secret, chosen, made, "a-wrong-key"):
        assert word not in log
    assert home.paths.server_log.stat().st_mode & 0o777 == 0o600


def test_every_file_and_folder_is_its_owner_s_only(home: Home) -> None:
    with home.server():
        found = [home.paths.data_dir, home.paths.state_dir]
        found += [file for folder in found for file in folder.iterdir()]
        assert len(found) > 5
        assert [path for path in found if path.stat().st_mode & 0o077] == []


def test_a_lock_held_by_nobody_alive_is_no_obstacle(home: Home) -> None:
    with home.server() as (child, _):
        child.kill()
        child.wait()
        assert home.paths.state_file.exists()
    Lock.acquire(home.paths.lock_file).release()
    home.paths.state_file.unlink()
    with home.server() as (_, client):
        assert client.get("/health").status_code == 200


def test_the_address_of_a_killed_server_is_gone_before_the_next_one_listens(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two may have the same port: a client would take the new server for the old one."""
    home.paths.make()
    home.paths.state_file.write_text("{}")
    there: list[bool] = []

    def bind(*_: object, **__: object) -> None:
        there.append(home.paths.state_file.exists())
        raise main.StartError("That is enough.", Exit.CONFIG)

    monkeypatch.setattr(main, "_bind", bind)
    assert home.run()[0] == Exit.CONFIG
    assert there == [False]
