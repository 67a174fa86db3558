"""Finding the local server, starting it, stopping it. Standard library only.

A state file is believed only while the lock file is held and the server it names answers with
the same instance; a pid from it is shown, never signalled. However many clients start a server
at once, one server results. The server gets a session of its own and none of our descriptors,
so it outlives the terminal.
"""

from __future__ import annotations

import fcntl
import http.client
import ipaddress
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hobnob import exits
from hobnob.exits import Exit, ExitError
from hobnob.paths import Paths
from hobnob.server.wire import API, WIRE_VERSION

START_SECONDS = 30.0
"""How long a server may take from its start to its first answer. The model loads later."""
STOP_SECONDS = 10.0
HEALTH_SECONDS = 2.0
POLL_SECONDS = 0.05
MAX_ANSWER_BYTES = 64 * 1024
LOG_TAIL_BYTES = 16 * 1024

# -P: a folder called `hobnob` where the user stands must not be imported.
SERVER_COMMAND = (sys.executable, "-P", "-m", "hobnob.server.main")

Progress = Callable[[str], None]
Cancelled = Callable[[], bool]


class LaunchError(ExitError):
    """There is no server to speak to, and why."""

    def __init__(self, message: str, exit_code: Exit = Exit.UNREACHABLE):
        code = "not_running" if exit_code is Exit.UNREACHABLE else "not_started"
        super().__init__(message, exit_code, code)


@dataclass(frozen=True, slots=True)
class Server:
    """The running local server, as its state file names it."""

    pid: int
    host: str
    port: int
    url: str
    version: str
    wire: int
    started_at: int  # UTC milliseconds
    instance: str


@dataclass(frozen=True, slots=True)
class Target:
    """Which server the clients speak to: the one at `url`, or with None the local one."""

    paths: Paths
    url: str | None = None
    key: str | None = None

    @classmethod
    def choose(
        cls,
        url: str | None = None,
        key: str | None = None,
        *,
        environ: Mapping[str, str] | None = None,
    ) -> Target:
        """From the arguments, else HOBNOB_URL and HOBNOB_KEY. Raises LaunchError."""
        env = os.environ if environ is None else environ
        address = url or env.get("HOBNOB_URL") or None
        secret = (key or env.get("HOBNOB_KEY") or "").strip() or None
        if address is not None:
            address = normalise_url(address)
            if secret is None:
                raise LaunchError(needs_key(address), Exit.KEY)
        if secret is not None and not (secret.isascii() and secret.isprintable()):
            raise LaunchError("The key has characters that are not allowed in a key.", Exit.KEY)
        return cls(Paths.home(env), address, secret)


# ---- addresses --------------------------------------------------------------------------------


def normalise_url(text: str) -> str:
    """The base address that is meant, without a trailing slash. Raises LaunchError.

    Taken as meant: no scheme, 0.0.0.0 or [::] (where a server listens, not where it is called),
    a trailing /v1 or native prefix. A user or password is refused: it would end up in logs.
    """
    written = text.strip()
    complete = written if "://" in written else f"http://{written}"
    try:
        parts = urlsplit(complete)
        port = parts.port
    except ValueError:
        raise _bad_url(written, "its port is not a number from 1 to 65535") from None
    if parts.scheme not in ("http", "https"):
        raise _bad_url(written, "it must begin with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise LaunchError(
            "HOBNOB_URL must not hold a user or password; put the key in HOBNOB_KEY.", Exit.CONFIG
        )
    if parts.query or parts.fragment or not parts.hostname or port == 0:
        raise _bad_url(written, "write it as http://HOST:PORT")
    if not complete.isascii() or any(c.isspace() for c in complete):
        raise _bad_url(written, "write it as http://HOST:PORT")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(parts.hostname, parts.hostname)
    shown = f"[{host}]" if ":" in host else host
    place = shown if port is None else f"{shown}:{port}"
    return f"{parts.scheme}://{place}{_base_path(parts.path)}"


def needs_key(url: str, which: str = "a key") -> str:
    return (
        f"The server at {url} needs {which}: put it in HOBNOB_KEY "
        "(`hobnob key` on its machine prints it)."
    )


def is_loopback(url: str) -> bool:
    """Whether the address is this machine, so that no proxy may come between."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _base_path(path: str) -> str:
    base = path.rstrip("/")
    for suffix in (API, "/v1"):
        if base.endswith(suffix):
            return base.removesuffix(suffix).rstrip("/")
    return base


def _bad_url(written: str, reason: str) -> LaunchError:
    return LaunchError(f"The server address {written!r} cannot be used: {reason}.", Exit.CONFIG)


# ---- finding ----------------------------------------------------------------------------------


def find(paths: Paths) -> Server | None:
    """The running local server, or None. Starts and changes nothing."""
    server = _read_state(paths.state_file)
    if server is None:
        return None
    health = _ask(server, "GET", f"{API}/health")
    if health is None or health.get("instance", server.instance) != server.instance:
        return None
    # Asked last: a probe of the lock can make a server that starts at this very moment
    # believe that it is taken, and where nobody answers there is no need to ask.
    return server if lock_held(paths) else None


def still_serves(paths: Paths, server: Server) -> bool:
    """Whether the server has neither begun to stop nor died. Its address may be another program's
    by then, which must not be sent a key. Cheap: asks nobody, and leaves the lock alone."""
    if _read_state(paths.state_file) != server:
        return False  # taken away before the address is let go of
    try:
        os.kill(server.pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # not ours to signal
    return True


def lock_held(paths: Paths) -> bool:
    """Whether a server process holds the lock, answering or not."""
    try:
        descriptor = os.open(paths.lock_file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def refuse_silent(paths: Paths) -> None:
    """Raises LaunchError when a server holds the lock that was just found not to answer."""
    if lock_held(paths):
        raise _silent(paths)


def _silent(paths: Paths) -> LaunchError:
    if words := _held_for(paths):
        return LaunchError(words, Exit.TRY_LATER)
    return LaunchError(
        f"A hobnob server{_holder(paths)} holds the lock but does not answer. If it hangs, end its"
        " process and try again."
    )


def _held_for(paths: Paths) -> str:
    """A sentence where the lock is held, if it is, for other work than to serve."""
    try:
        with open(paths.lock_file, encoding="utf-8") as file:
            return file.read(MAX_ANSWER_BYTES).strip()
    except (OSError, ValueError):
        return ""


def read_key(paths: Paths) -> str | None:
    """The local server's key, or None while it has none (it makes one at its first start)."""
    try:
        key = paths.key_file.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise LaunchError(
            f"The key file {paths.key_file} cannot be read: {_why(error)}.", Exit.CONFIG
        ) from None
    return key or None


def _read_state(path: Path) -> Server | None:
    try:
        with open(path, "rb") as file:
            raw = json.loads(file.read(MAX_ANSWER_BYTES))
        values = {f.name: raw[f.name] for f in fields(Server)}
    except (OSError, ValueError, TypeError, KeyError):
        return None
    if not isinstance(values["port"], int) or not isinstance(values["host"], str):
        return None
    return Server(**values)


def _ask(
    server: Server, method: str, path: str, headers: Mapping[str, str] | None = None
) -> dict[str, Any] | None:
    """The JSON object that the server answers; None when it does not answer with one."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=HEALTH_SECONDS)
    try:
        connection.request(method, path, headers=dict(headers or {}))
        answer = connection.getresponse()
        body = json.loads(answer.read(MAX_ANSWER_BYTES))
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return body if answer.status < 300 and isinstance(body, dict) else None


# ---- starting ---------------------------------------------------------------------------------


def ensure(
    paths: Paths,
    *,
    args: Sequence[str] = (),
    progress: Progress | None = None,
    cancelled: Cancelled | None = None,
    timeout_s: float = START_SECONDS,
) -> Server:
    """The running local server, started if there is none. Blocks; raises LaunchError.

    `args` go to the server that is started, if one is. `progress` hears one sentence when the
    wait begins. `cancelled` is asked now and then whether to give up.
    """
    server = find(paths)
    if server is None:
        wait = _Wait(time.monotonic() + timeout_s, cancelled or (lambda: False))
        _make_folders(paths)
        with _launching(paths, wait) as won:
            # Whoever waited for another client's launch finds its server here.
            server = won or find(paths) or _start(paths, args, progress, wait)
    if server.wire != WIRE_VERSION:
        raise LaunchError(
            f"The running server is hobnob {server.version}, which this version cannot speak "
            "to; end it with `hobnob stop`.",
            Exit.CONFIG,
        )
    return server


@dataclass(frozen=True, slots=True)
class _Wait:
    deadline: float
    cancelled: Cancelled

    def step(self) -> bool:
        """Sleep a little; False when time is up. Raises LaunchError when cancelled."""
        if self.cancelled():
            raise LaunchError("Starting the server was interrupted.", Exit.INTERRUPTED)
        time.sleep(POLL_SECONDS)
        return time.monotonic() < self.deadline


def _make_folders(paths: Paths) -> None:
    try:
        paths.make()
    except OSError as error:
        raise LaunchError(
            f"The folder {error.filename} cannot be made: {_why(error)}. "
            "HOBNOB_HOME can name another place.",
            Exit.CONFIG,
        ) from None


@contextmanager
def _launching(paths: Paths, wait: _Wait) -> Iterator[Server | None]:
    """Hold the launch lock; yields the server instead if another client's launch brought one."""
    try:
        descriptor = os.open(paths.launch_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LaunchError(
            f"{paths.launch_lock} cannot be written: {_why(error)}.", Exit.CONFIG
        ) from None
    try:
        server = None
        while server is None and not _try_lock(descriptor):
            server = find(paths)
            if server is None and not wait.step():
                raise LaunchError("Another hobnob is starting the server and does not finish.")
        yield server
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _start(paths: Paths, args: Sequence[str], progress: Progress | None, wait: _Wait) -> Server:
    if progress is not None:
        progress("Starting the server")
    child, log_start = _spawn(paths, args)
    try:
        return _await_answer(paths, child, log_start, wait)
    finally:
        # Whenever it ends, somebody has to take its exit code, or it stays a zombie.
        threading.Thread(target=child.wait, daemon=True).start()


def _await_answer(
    paths: Paths, child: subprocess.Popen[bytes], log_start: int, wait: _Wait
) -> Server:
    while wait.step():
        returncode = child.poll()
        server = find(paths)
        if server is not None:
            return server
        # A child that found the lock taken leaves at once; the holder is who we wait for.
        if returncode is not None:
            if not lock_held(paths):
                raise _died(paths, returncode, log_start)
            if _held_for(paths):
                raise _silent(paths)
    if child.poll() is None:
        child.terminate()  # our own child, which never answered
        raise LaunchError(f"The server did not answer in time; see {paths.server_log}.")
    raise _silent(paths)


def _spawn(paths: Paths, args: Sequence[str]) -> tuple[subprocess.Popen[bytes], int]:
    """The new process, and where its lines begin in the log (which the server keeps bounded)."""
    command = [*SERVER_COMMAND, "--on-demand", *args]
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    try:
        log = os.open(paths.server_log, flags, 0o600)
        try:
            start = os.fstat(log).st_size
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        finally:
            os.close(log)
    except OSError as error:
        raise LaunchError(f"The server cannot be started: {_why(error)}.", Exit.CONFIG) from None
    return child, start


def _died(paths: Paths, returncode: int, log_start: int) -> LaunchError:
    said = _last_line(paths.server_log, log_start).removeprefix("hobnob: ")
    if returncode < 0:
        said = said or f"it was ended by signal {-returncode}"
    sentence = said or f"it ended with code {returncode}; see {paths.server_log}"
    return LaunchError(f"The server did not start: {sentence}", exits.for_server(returncode))


def _last_line(path: Path, start: int) -> str:
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - LOG_TAIL_BYTES))
            lines = file.read(LOG_TAIL_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    spoken = [line.strip() for line in lines if line.strip()]
    return spoken[-1] if spoken else ""


# ---- stopping ---------------------------------------------------------------------------------


def stop(paths: Paths, *, timeout_s: float = STOP_SECONDS, restarting: bool = False) -> bool:
    """Ask the local server to stop and wait until it has; False if none runs. `restarting`: the
    caller starts another at once, for which temporary conversations are left.

    Raises LaunchError when one holds the lock but does not answer, or does not end.
    """
    server = find(paths)
    if server is None:
        refuse_silent(paths)
        return False
    # Its own key first: the one in HOBNOB_KEY may be for another machine's server.
    keys = dict.fromkeys(key for key in (read_key(paths), os.environ.get("HOBNOB_KEY")) if key)
    asked, path = None, f"{API}/stop{'?restarting=true' if restarting else ''}"
    for key in keys:
        headers = {"Authorization": f"Bearer {key}", "Content-Length": "0"}
        asked = _ask(server, "POST", path, headers)
        if asked is not None:
            break
    deadline = time.monotonic() + timeout_s
    while lock_held(paths):
        if asked is None and find(paths) is not None:
            raise LaunchError("The server refused to stop.", Exit.KEY)
        if time.monotonic() > deadline:
            raise LaunchError(f"The server{_holder(paths)} did not end in {timeout_s:.0f} s.")
        time.sleep(POLL_SECONDS)
    return True


def _holder(paths: Paths) -> str:
    server = _read_state(paths.state_file)
    return f" (probably pid {server.pid})" if server is not None else ""


def _why(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
