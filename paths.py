"""Where hobnob's files lie. The one module that knows HOBNOB_HOME and the XDG variables.

Standard library only, and cheap to import: every command needs it before it does anything.
Nothing is created until `make` is called.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_BESIDE = ("-wal", "-shm", "-journal")


@dataclass(frozen=True, slots=True)
class Paths:
    config_dir: Path
    data_dir: Path
    state_dir: Path
    cache_dir: Path

    @classmethod
    def home(cls, environ: Mapping[str, str] | None = None) -> Paths:
        """The user's folders: under HOBNOB_HOME if that is set, else where XDG puts them.

        As the XDG rules say, an empty or relative variable counts as unset. macOS uses the
        same places as Linux, so that one page of documentation is true of both.
        """
        env = os.environ if environ is None else environ
        one = env.get("HOBNOB_HOME", "")
        if one:
            root = Path(os.path.abspath(os.path.expanduser(one)))
            return cls(root / "config", root / "data", root / "state", root / "cache")
        user = Path(env.get("HOME") or os.path.expanduser("~"))
        return cls(
            config_dir=_xdg(env, "XDG_CONFIG_HOME", user / ".config"),
            data_dir=_xdg(env, "XDG_DATA_HOME", user / ".local" / "share"),
            state_dir=_xdg(env, "XDG_STATE_HOME", user / ".local" / "state"),
            cache_dir=_xdg(env, "XDG_CACHE_HOME", user / ".cache"),
        )

    @property
    def config_file(self) -> Path:
        return self.config_dir / "config.toml"

    @property
    def database(self) -> Path:
        return self.data_dir / "hobnob.db"

    @property
    def key_file(self) -> Path:
        return self.data_dir / "key"

    @property
    def lock_file(self) -> Path:
        """Held with flock by the one server that may use the database, for as long as it lives."""
        return self.data_dir / "lock"

    @property
    def reserve_file(self) -> Path:
        """Takes up the room that a start needs, so that a full disk does not prevent one."""
        return self.data_dir / "reserve"

    @property
    def state_file(self) -> Path:
        """Where the running server is; true only while the lock file is held."""
        return self.state_dir / "server.json"

    @property
    def launch_lock(self) -> Path:
        """Held by a client while it starts a server, so that twenty clients start one."""
        return self.state_dir / "launch.lock"

    @property
    def server_log(self) -> Path:
        return self.state_dir / "server.log"

    @property
    def engine_log(self) -> Path:
        return self.state_dir / "engine.log"

    @property
    def snapshots_dir(self) -> Path:
        """What the engine computed of finished conversations; to be lost without a loss."""
        return self.cache_dir / "snapshots"

    @property
    def printed_dir(self) -> Path:
        """One small file per unfinished `hobnob ask`: how many bytes of the reply are printed."""
        return self.state_dir / "printed"

    @property
    def terminals_dir(self) -> Path:
        """One small file for each terminal: the conversation that it talked in last."""
        return self.state_dir / "terminals"

    @property
    def own_files(self) -> tuple[Path, ...]:
        """Files that nothing else may be written over."""
        beside = (self.database.with_name(f"{self.database.name}{end}") for end in _BESIDE)
        return (
            *(self.config_file, self.database, *beside, self.key_file, self.lock_file),
            *(self.reserve_file, self.state_file, self.launch_lock, self.server_log),
            self.engine_log,
        )

    def make(self) -> None:
        """Create the folders that are written to, readable by the user alone. Raises OSError."""
        for folder in (self.data_dir, self.state_dir):
            # `parents` would make the one above with everybody's permissions.
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)


def _xdg(env: Mapping[str, str], name: str, default: Path) -> Path:
    value = env.get(name, "")
    base = Path(value) if os.path.isabs(value) else default
    return base / "hobnob"
