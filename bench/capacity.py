"""Who is compared, and with what: the values that every contestant is started from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HOBNOB = "hobnob"
LLAMA_SERVER = "llama-server"
LLAMA_SERVER_SAME = "llama-server, our llama.cpp"
LLAMA_CPP_PYTHON = "llama-cpp-python"

BF16_VALUES = "--cache-type-v bf16"
"""What hobnob chooses on a CPU (docs/decisions/0007); llama-server can be told to."""
BF16_VALUES_PYTHON = "--flash_attn true --type_v 30"
"""llama-cpp-python's server too."""


class ServerFailed(Exception):
    """A contestant did not start or died; the message ends with its log's last lines."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What every contestant gets alike."""

    model: Path
    eos: int
    threads: int
    streams: int  # replies at once
    cells: int  # context of all of them together, tokens


@dataclass(frozen=True, slots=True)
class Variant:
    """One contestant and the flags that it runs with beyond the common ones."""

    contestant: str
    flags: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    streams: int | None = None  # where other than the scenario's suits it better
    program: str = ""  # a module of the bench in place of `hobnob serve`

    @property
    def shown(self) -> str:
        parts = [f"{name}={value}" for name, value in self.environment.items()]
        parts += [f"-np {self.streams}"] if self.streams is not None else []
        return " ".join([*parts, *self.flags]) or "defaults"
