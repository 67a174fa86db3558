"""One frozen configuration, from flags, HOBNOB_* variables and config.toml, in that order.

Reads nothing else and decides nothing: capacity.py and models.py say what the values mean. A
section's key is a variable with two underscores: HOBNOB_CAPACITY__STREAMS.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from hobnob import toml_file
from hobnob.server import sampling_options
from hobnob.server.errors import InvalidRequest

PREFIX = "HOBNOB_"
DEFAULT_PORT = 7113

Port = Annotated[int, Field(ge=0, le=65535)]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
Seconds = Annotated[float, Field(ge=0, le=31_536_000, allow_inf_nan=False)]


class ConfigError(Exception):
    """One sentence that names the key and where it was set."""


class CapacityConfig(BaseModel):
    """Two numbers that say how much is expected; the rest follows from them unless it is set."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    streams: int = Field(default=8, ge=1, le=128)
    """Replies generated at the same time."""
    reply_tokens: int = Field(default=1024, ge=1, le=1_000_000)
    """Length of a usual reply."""
    queue: Count | None = None
    """Runs that may wait beyond those; more are refused with 503."""
    queue_tokens: Count | None = None
    """Prompt tokens of waiting runs together."""
    queue_timeout_s: Seconds | None = None
    """How long a run may wait; 0: runs never wait."""
    kept_replies: Count | None = None
    """Ended replies kept in memory for clients that come back."""


class SnapshotsConfig(BaseModel):
    """What is kept of finished conversations, so that they need not be read again."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: str | None = None
    """A folder is made in it; None: in the cache folder."""
    disk_mb: Count = 4096
    """At most, and never more than a tenth of what is free; 0: nothing is kept on disk."""
    ram_mb: Count | None = None
    """With what is saved of replies that were put aside; None: a quarter of what is free."""


class Config(BaseSettings):
    """Zero and "auto" mean: choose."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_prefix=PREFIX, env_nested_delimiter="__"
    )

    model: str | None = None
    """Name (as `hobnob models list` shows it) or path; else the last one used, else the starter."""
    model_folders: list[str] = []
    """Folders with GGUF files, beside the known places of other programs."""
    ctx: Count = 0
    """Context window of one conversation, tokens."""
    sequences: int = Field(default=0, ge=0, le=128)
    """Replies generated at once; 0: capacity.streams."""
    cells: Count = 0
    """KV cells over all sequences, tokens."""
    ubatch: int = Field(default=512, ge=16, le=8192)
    """Tokens of one step at the most."""
    threads: int = Field(default=0, ge=0, le=1024)
    gpu_layers: int = Field(default=-1, ge=-1, le=10_000)
    """-1 or "auto": all that fit where the build can use a GPU, else none."""
    kv_type: Literal["auto", "f16", "f16-bf16", "q8_0"] = "auto"
    """Of keys and values; auto: what suits the device."""
    flash_attn: Literal["auto", "on", "off"] = "auto"
    target_gap_ms: float = Field(default=0.0, ge=0, le=60_000, allow_inf_nan=False)
    """Longest step wanted while replies stream and a prompt is being read."""
    speculation: Literal["auto", "off"] = "off"
    """Drafts from what the conversation said before; they never change a reply."""
    draft_model: str | None = None
    """Name or path of a small model of the same vocabulary, which drafts too."""
    seed: int | None = Field(default=None, ge=0, le=2**64 - 1)
    """For requests that give none; without it each gets a random one."""

    host: str = "127.0.0.1"
    port: Port | None = None
    """7113; where that is taken, a server that was started on demand takes any free one."""
    key: str | None = Field(default=None, repr=False)
    """A key of your own, beside the generated one; needed to listen beyond this machine."""
    allowed_hosts: list[str] = []
    """Names in the Host header, beside localhost and loopback addresses."""
    allowed_origins: list[str] = []
    """Web pages that may call the server."""
    idle_stop_s: Seconds = 900.0
    """A server that was started on demand stops when it was idle so long; 0: never."""
    when_loading: Literal["wait", "refuse"] = "wait"
    """What a request meets while the model loads: progress, or 503 with Retry-After."""

    titles: Literal["words", "model"] = "words"
    """A new conversation's: the first words of it, or what the model makes of its beginning."""
    durability: Literal["normal", "full"] = "normal"
    """What a loss of power may take; `full` costs an fsync a message and one a reply."""

    capacity: CapacityConfig = CapacityConfig()
    snapshots: SnapshotsConfig = SnapshotsConfig()
    sampling: dict[str, Any] = {}
    """Default sampling options."""

    @field_validator("gpu_layers", mode="before")
    @classmethod
    def _auto_layers(cls, value: Any) -> Any:
        return -1 if isinstance(value, str) and value.strip().lower() == "auto" else value

    @field_validator("sampling")
    @classmethod
    def _known_options(cls, value: dict[str, Any]) -> dict[str, Any]:
        try:
            sampling_options.check(value)
        except InvalidRequest as error:
            raise ValueError(error.message) from None
        return value


_SECTIONS: dict[str, type[BaseModel]] = {
    "capacity": CapacityConfig,
    "snapshots": SnapshotsConfig,
}


def load(config_file: Path, environ: Mapping[str, str], flags: Mapping[str, Any]) -> Config:
    """The configuration. `flags` are named like the fields. Raises ConfigError."""
    layers = (
        ("a command-line option", {name: v for name, v in flags.items() if v is not None}),
        ("the environment", _from_environment(environ)),
        (str(config_file), _from_file(config_file)),
    )
    sources = [InitSettingsSource(Config, init_kwargs=values) for _, values in layers]
    try:
        return _build(sources)
    except ValidationError as error:
        raise ConfigError(_sentence(error, layers)) from None


def _build(sources: list[InitSettingsSource]) -> Config:
    class Layered(Config):
        """Config with exactly these sources; pydantic-settings asks the class for them."""

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return tuple(sources)

    return Layered()


class _Environment(EnvSettingsSource):
    """Reads the mapping that it is given; the process's own variables play no part."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        super().__init__(Config, env_ignore_empty=True)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return {name.lower(): value for name, value in self._environ.items() if value}


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    try:
        return _Environment(environ)()
    except ValueError as error:  # a list or section that is not JSON
        raise ConfigError(f"{PREFIX}*: {error}.") from None
    except RecursionError:
        raise ConfigError(f"{PREFIX}*: a value is nested too deeply.") from None


def _from_file(path: Path) -> dict[str, Any]:
    try:
        return toml_file.read(path)
    except toml_file.Unreadable as error:
        raise ConfigError(str(error)) from None


def _sentence(error: ValidationError, layers: tuple[tuple[str, dict[str, Any]], ...]) -> str:
    """Of the first thing that is wrong."""
    first = error.errors(include_url=False, include_input=False)[0]
    names = [str(part) for part in first["loc"]]
    key = ".".join(names)
    where = next((name for name, values in layers if names and names[0] in values), "")
    prefix = f"{key} ({where})" if where else key
    if first["type"] == "extra_forbidden":
        section = _SECTIONS.get(names[0], Config) if len(names) > 1 else Config
        known = section.model_fields
        near = difflib.get_close_matches(names[-1], known, n=1)
        return f"{prefix}: there is no such key{f'; did you mean {near[0]}?' if near else '.'}"
    message = first["msg"].removeprefix("Value error, ").rstrip(".")
    return f"{prefix}: {message[:1].lower()}{message[1:]}."
