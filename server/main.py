"""`python -m hobnob.server.main`: from flags and files to a running server, or one line of why not.

Decides and prepares; serving.py serves. Everything that can refuse does so before the engine is
started: configuration, folders, lock, port, key. Exit codes are hobnob.exits.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

import uvloop

from hobnob.exits import Exit
from hobnob.paths import Paths
from hobnob.server import capacity, config, keys, listener, models
from hobnob.server.capacity import Capacity
from hobnob.server.config import Config, ConfigError
from hobnob.server.engine.absent import AbsentEngine
from hobnob.server.engine.handle import Engine
from hobnob.server.engine.process import WORKER, EngineProcess
from hobnob.server.engine.protocol import Configure, Stepped
from hobnob.server.engine.state import EngineState, EngineStatus
from hobnob.server.errors import HobnobError, ModelNotFound, ModelUnavailable
from hobnob.server.lock import AlreadyServing, Lock, remove_state
from hobnob.server.models import Model
from hobnob.server.requests import RunSettings
from hobnob.server.security import Policy
from hobnob.server.served import ServedModel
from hobnob.server.serving import EngineService, Setup, serve
from hobnob.server.wire import Failure
from hobnob.store.values import StoreError

LOG_BYTES = 2 * 1024 * 1024
LOGS_KEPT = 2
LAST_MODEL = "last-model"
SNAPSHOTS = "hobnob-snapshots"
MB = 1024 * 1024

FLAGS = (
    "model",
    "draft_model",
    "host",
    "port",
    "ctx",
    "sequences",
    "threads",
    "gpu_layers",
    "seed",
)

log = logging.getLogger("hobnob.server")


class StartError(Exception):
    """One sentence for a person, and the exit code that goes with it."""

    def __init__(self, message: str, exit_code: Exit):
        super().__init__(message)
        self.exit_code = exit_code


def main(arguments: Sequence[str] | None = None) -> int:
    os.umask(0o077)
    flags, on_demand = _parse(arguments)
    try:
        return _start(flags, on_demand=on_demand)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except StartError as error:
        print(f"hobnob: {error}", file=sys.stderr, flush=True)
        return error.exit_code


def _parse(arguments: Sequence[str] | None) -> tuple[dict[str, str | None], bool]:
    parser = argparse.ArgumentParser(prog="hobnob serve", allow_abbrev=False)
    parser.add_argument("--on-demand", action="store_true", help=argparse.SUPPRESS)
    for name in FLAGS:
        parser.add_argument(f"--{name.replace('_', '-')}", metavar=name.upper())
    given = vars(parser.parse_args(arguments))
    on_demand = given.pop("on_demand")
    return given, on_demand


def _start(flags: dict[str, Any], *, on_demand: bool) -> Exit:
    """Prepares, serves, and returns when the server has stopped. Raises StartError."""
    paths = Paths.home()
    try:
        settings = config.load(paths.config_file, os.environ, flags)
    except ConfigError as error:
        raise StartError(str(error), Exit.CONFIG) from None
    _make_folders(paths)
    _log_to(paths, also_stderr=not on_demand)
    lock = _acquire(paths)
    try:
        # Of a server that was killed; before we listen, or a client would find us under its name.
        remove_state(paths.state_file)
        policy = _policy(settings, paths)
        with _bind(settings, on_demand=on_demand) as sock:
            server = _prepare(settings, paths, policy, sock, flags, on_demand=on_demand)
            # Python's own loop took a third more of the processor for each token on its way out.
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                return runner.run(serve(server.setup, server.engine))
    except StoreError as error:
        raise StartError(str(error), Exit.CONFIG) from None
    finally:
        lock.release()


@dataclass(frozen=True, slots=True)
class _Server:
    setup: Setup
    engine: EngineService


def _prepare(
    settings: Config,
    paths: Paths,
    policy: Policy,
    sock: socket.socket,
    flags: Mapping[str, Any],
    *,
    on_demand: bool,
) -> _Server:
    places = models.places(os.environ, settings.model_folders)
    bounds = _bounds(settings)
    found = models.find(places)
    chosen = _choose(settings, paths, found, named=flags["model"] is not None)
    draft = _draft_model(settings, found, named=flags["draft_model"] is not None)
    served = _served(chosen)
    setup = Setup(
        paths=paths,
        listener=sock,
        policy=policy,
        settings=_run_settings(settings, bounds, served),
        model=served,
        models=lambda: [_model_json(one, served) for one in models.find(places)],
        explain=bounds.explain,
        starter=isinstance(chosen, Model) and chosen.source == "starter",
        idle_stop_s=(settings.idle_stop_s or None) if on_demand else None,
        full_durability=settings.durability == "full",
        model_titles=settings.titles == "model",
    )
    return _Server(setup, _engine(settings, paths, bounds, chosen, draft))


# ---- files ------------------------------------------------------------------------------------


def _make_folders(paths: Paths) -> None:
    try:
        paths.make()
    except OSError as error:
        raise StartError(
            f"The folder {error.filename} cannot be made: {error.strerror}. "
            "HOBNOB_HOME can name another place.",
            Exit.CONFIG,
        ) from None


def _acquire(paths: Paths) -> Lock:
    try:
        return Lock.acquire(paths.lock_file)
    except AlreadyServing as held:
        if words := str(held):
            raise StartError(words, Exit.TRY_LATER) from None
        raise StartError(
            "A hobnob server is running already; `hobnob status` shows it, `hobnob stop` ends it.",
            Exit.CONFIG,
        ) from None
    except OSError as error:
        raise _unusable(error, paths.lock_file) from None


def _unusable(error: OSError, path: object) -> StartError:
    return StartError(f"{path} cannot be used: {error.strerror}.", Exit.CONFIG)


class _NotCancelled(logging.Filter):
    """When the server leaves without waiting, uvicorn reports each request as a failure."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def _log_to(paths: Paths, *, also_stderr: bool) -> None:
    """Bounded, for its owner only; no request, prompt or key is ever logged."""
    try:
        handler = RotatingFileHandler(
            paths.server_log, maxBytes=LOG_BYTES, backupCount=LOGS_KEPT, encoding="utf-8"
        )
    except OSError as error:
        raise _unusable(error, paths.server_log) from None
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handlers: list[logging.Handler] = [handler]
    if also_stderr:
        terminal = logging.StreamHandler()
        terminal.setFormatter(logging.Formatter("hobnob: %(message)s"))
        handlers.append(terminal)
    for one in handlers:
        one.addFilter(_NotCancelled())
    logging.raiseExceptions = False  # a line that the disk does not take is no event of its own
    logging.basicConfig(handlers=handlers, level=logging.WARNING, force=True)
    log.setLevel(logging.INFO)


# ---- who may call, and where ------------------------------------------------------------------


def _policy(settings: Config, paths: Paths) -> Policy:
    loopback = listener.is_loopback(settings.host)
    if not loopback and settings.key is None:
        raise StartError(
            f"To listen beyond this machine ({settings.host}), choose a key of your own: "
            f"`key` in {paths.config_file}, or HOBNOB_KEY.",
            Exit.KEY,
        )
    try:
        given = [keys.load_or_make(paths.key_file)]
        if settings.key is not None:
            given.append(keys.chosen(settings.key, "the configuration"))
    except keys.BadKey as error:
        raise StartError(str(error), Exit.KEY) from None
    except OSError as error:
        raise _unusable(error, paths.key_file) from None
    hosts = {name.lower() for name in settings.allowed_hosts}
    if not loopback:
        hosts |= {socket.gethostname().lower(), settings.host.lower()}
    return Policy(
        keys=tuple(given),
        hosts=frozenset(hosts),
        origins=frozenset(settings.allowed_origins),
        loopback=loopback,
    )


def _bind(settings: Config, *, on_demand: bool) -> socket.socket:
    host, port = settings.host, settings.port
    wanted = config.DEFAULT_PORT if port is None else port
    try:
        return listener.bind(host, wanted, or_any=on_demand and port is None)
    except listener.PortTaken:
        raise StartError(
            f"Port {wanted} on {host} is taken by another program; "
            "choose another with --port or `port` in config.toml (0: any free one).",
            Exit.CONFIG,
        ) from None
    except OSError as error:
        raise StartError(
            f"The server cannot listen on {host}, port {wanted}: {error.strerror or error}.",
            Exit.CONFIG,
        ) from None


# ---- the model and its engine -----------------------------------------------------------------


def _choose(
    settings: Config, paths: Paths, found: Sequence[Model], *, named: bool
) -> Model | HobnobError:
    """The model, or why there is none: the server then runs for the history's sake.

    One that was asked for on the command line and cannot be had is a reason not to start.
    """
    try:
        last = models.last_used(paths.state_dir / LAST_MODEL)
        return models.choose(settings.model, found, last).require()
    except (ModelNotFound, ModelUnavailable) as error:
        if named:
            raise StartError(error.message, Exit.MODEL) from None
        log.warning("%s", error.message)
        return error


def _draft_model(settings: Config, found: Sequence[Model], *, named: bool) -> Path | None:
    """None where there is none: only what was asked for on the command line must be had."""
    if not settings.draft_model:
        return None
    try:
        return models.resolve(settings.draft_model, found).require().path
    except (ModelNotFound, ModelUnavailable) as error:
        if named:
            raise StartError(error.message, Exit.MODEL) from None
        log.warning("no draft model: %s", error.message)
        return None


def _served(chosen: Model | HobnobError) -> ServedModel:
    if isinstance(chosen, Model):
        return ServedModel(chosen.id, str(chosen.path), int(chosen.modified))
    return ServedModel("", "")


def _model_json(model: Model, served: ServedModel) -> dict[str, Any]:
    return {
        "id": model.id,
        "path": str(model.path),
        "source": model.source,
        "size": model.size,
        "modified": int(model.modified * 1000),
        "problem": model.problem,
        "loaded": str(model.path) == served.path,
    }


def _engine(
    settings: Config,
    paths: Paths,
    bounds: Capacity,
    chosen: Model | HobnobError,
    draft: Path | None,
) -> EngineService:
    if not isinstance(chosen, Model):
        failure = Failure(chosen.code, chosen.message)
        return AbsentEngine(failure, _snapshots_folder(settings, paths))
    snapshots = _snapshots_folder(settings, paths)
    configure = _configure(settings, bounds, chosen, snapshots, draft)
    engine = Engine(configure, partial(EngineProcess.spawn, WORKER, paths.engine_log))
    engine.listen(_Remembering(paths.state_dir / LAST_MODEL, chosen))
    return engine


class _Remembering:
    """Takes note of a model once it has loaded: it is the default from then on."""

    def __init__(self, file: Path, model: Model) -> None:
        self._file = file
        self._model = model
        self._done = False

    def on_stepped(self, stepped: Stepped) -> None:
        """Nothing to note."""

    def on_death(self, reason: str, *, reading: bool) -> None:
        """Nothing to note."""

    def on_status(self, status: EngineStatus) -> None:
        if status.state is EngineState.READY and not self._done:
            self._done = True
            models.remember(self._file, self._model)


def _bounds(settings: Config) -> Capacity:
    asked = settings.capacity
    return capacity.derive(
        capacity.Wishes(
            streams=asked.streams,
            reply_tokens=asked.reply_tokens,
            sequences=settings.sequences,
            queue=asked.queue,
            queue_tokens=asked.queue_tokens,
            queue_timeout_s=asked.queue_timeout_s,
            kept_replies=asked.kept_replies,
        )
    )


def _run_settings(settings: Config, bounds: Capacity, model: ServedModel) -> RunSettings:
    seed = {} if settings.seed is None else {"seed": settings.seed}
    return RunSettings(
        model=model.id,
        max_running=bounds.sequences,
        max_waiting=bounds.queue,
        max_waiting_tokens=bounds.queue_tokens,
        queue_timeout_s=bounds.queue_timeout_s,
        reply_tokens=bounds.reply_tokens,
        wait_for_model=settings.when_loading == "wait",
        finished_kept=bounds.kept_replies,
        finished_kept_bytes=bounds.kept_bytes,
        sampling={**seed, **settings.sampling},
    )


def _snapshots_folder(settings: Config, paths: Paths) -> Path:
    """One of our own: strange files in it are removed."""
    chosen = settings.snapshots.folder
    if chosen is None:
        return paths.snapshots_dir
    return Path(os.path.abspath(os.path.expanduser(chosen))) / SNAPSHOTS


def _configure(
    settings: Config, bounds: Capacity, model: Model, snapshots: Path, draft: Path | None
) -> Configure:
    ram_mb = settings.snapshots.ram_mb
    chosen = "speculation" in settings.model_fields_set
    return Configure(
        model=str(model.path),
        n_ctx=settings.ctx,
        n_cells=settings.cells,
        n_seq_max=bounds.sequences,
        n_ubatch=settings.ubatch,
        n_threads=settings.threads,
        n_gpu_layers=settings.gpu_layers,
        kv_type=settings.kv_type,
        flash_attn=settings.flash_attn,
        target_gap_ms=settings.target_gap_ms,
        speculation="auto" if draft and not chosen else settings.speculation,
        snapshot_folder=str(snapshots),
        snapshot_disk_bytes=settings.snapshots.disk_mb * MB,
        snapshot_ram_bytes=-1 if ram_mb is None else ram_mb * MB,
        draft_model="" if draft is None else str(draft),
    )


if __name__ == "__main__":
    sys.exit(main())
