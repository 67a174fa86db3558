"""Sampling options from a request, its conversation and the config, resolved and range-checked.

The one place that knows every option's range; what it returns is safe to hand to the engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from hobnob.server import response_format
from hobnob.server.engine.protocol import Sampling
from hobnob.server.errors import InvalidRequest

MAX_SEED = 2**64 - 1
RANDOM_SEED = -1
"""As llama-server has it: a new seed, also where an earlier layer names one."""

MAX_STOP_STRINGS = 16
MAX_STOP_CHARACTERS = 256
MAX_BREAKERS = 16
MAX_BREAKER_BYTES = 40
MAX_BIASES = 1024
MAX_LOGPROBS = 20

FLOATS: dict[str, tuple[float, float]] = {
    "temperature": (0.0, 10.0),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repeat_penalty": (0.1, 10.0),
    "presence_penalty": (-10.0, 10.0),
    "frequency_penalty": (-10.0, 10.0),
    "typical_p": (0.0, 1.0),
    "top_n_sigma": (-1.0, 100.0),
    "xtc_probability": (0.0, 1.0),
    "xtc_threshold": (0.0, 1.0),
    "dry_multiplier": (0.0, 100.0),
    "dry_base": (1.0, 10.0),
    "mirostat_tau": (0.0, 100.0),
    "mirostat_eta": (0.0, 1.0),
    "adaptive_target": (-1.0, 1.0),
    "adaptive_decay": (0.0, 0.99),
}
INTEGERS: dict[str, tuple[int, int]] = {
    "seed": (RANDOM_SEED, MAX_SEED),
    "top_k": (0, 1_000_000),
    "repeat_last_n": (0, 1_000_000),
    "max_tokens": (0, 2**31 - 1),
    "logprobs": (-1, MAX_LOGPROBS),
    "dry_allowed_length": (0, 1_000_000),
    "dry_penalty_last_n": (0, 1_000_000),
    "mirostat": (0, 2),
}
FLAGS = frozenset({"ignore_eos", "exact"})
OTHERS = frozenset({"stop", "logit_bias", "dry_sequence_breakers", "response_format"})
NAMES = frozenset({*FLOATS, *INTEGERS, *FLAGS, *OTHERS})
"""Every option there is, as in `-o NAME VALUE` and in the API."""


@dataclass(frozen=True, slots=True)
class Options:
    sampling: Sampling
    exact: bool | None  # None: as the engine has it by default


def resolve(
    layers: list[Mapping[str, Any]], *, n_vocab: int, choose_seed: Callable[[], int]
) -> Options:
    """Later layers win; a value of None leaves the choice to the layers before.

    Raises InvalidRequest with `param` for an unknown name, a wrong type or a value out of range.
    """
    values: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            if name not in NAMES:
                raise InvalidRequest(f"There is no option {_quoted(name)}.", param=str(name)[:64])
            if value is not None:
                values[name] = _checked(name, value, n_vocab)
    exact = values.pop("exact", None)
    if values.get("seed", RANDOM_SEED) == RANDOM_SEED:
        values["seed"] = choose_seed()
    return Options(Sampling(**values), exact)


def check(options: Mapping[str, Any]) -> None:
    """Raises InvalidRequest for options that no model would take (token ids are not looked up)."""
    resolve([options], n_vocab=2**31, choose_seed=lambda: 0)


def to_params(options: Options) -> dict[str, Any]:
    """As stored with a run: JSON values only."""
    sampling = options.sampling
    params: dict[str, Any] = {name: getattr(sampling, name) for name in Sampling.__struct_fields__}
    params["logit_bias"] = {str(token): bias for token, bias in sampling.logit_bias.items()}
    params["exact"] = options.exact
    return params


def from_params(params: Mapping[str, Any]) -> Options:
    """The inverse of `to_params`; what is not an option is passed over. Raises TypeError or
    msgspec.ValidationError for what `to_params` never made."""
    values = {name: params[name] for name in Sampling.__struct_fields__ if name in params}
    unchecked = msgspec.to_builtins(Sampling(**values))
    exact = msgspec.convert(params.get("exact"), bool | None)
    return Options(msgspec.convert(unchecked, Sampling, str_keys=True), exact)


def _checked(name: str, value: Any, n_vocab: int) -> Any:
    if name in FLOATS:
        return _float(name, value, *FLOATS[name])
    if name in INTEGERS:
        return _integer(name, value, *INTEGERS[name])
    if name == "stop":
        return _stop(value)
    if name == "dry_sequence_breakers":
        return _breakers(value)
    if name == "logit_bias":
        return _bias(value, n_vocab)
    if name == "response_format":
        return response_format.normal(value)
    if not isinstance(value, bool):
        raise InvalidRequest(f"{name} must be true or false.", param=name)
    return value


def _float(name: str, value: Any, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRequest(f"{name} must be a number.", param=name)
    # Compared before it is converted: float() overflows on integers of 400 digits.
    if (isinstance(value, float) and not math.isfinite(value)) or not low <= value <= high:
        raise InvalidRequest(f"{name} must be between {low:g} and {high:g}.", param=name)
    return float(value)


def _integer(name: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(f"{name} must be a whole number.", param=name)
    if not low <= value <= high:
        raise InvalidRequest(f"{name} must be between {low} and {high}.", param=name)
    return value


def _stop(value: Any) -> list[str]:
    strings = [value] if isinstance(value, str) else value
    if not isinstance(strings, list) or not all(isinstance(item, str) for item in strings):
        raise InvalidRequest("stop must be a string or a list of strings.", param="stop")
    strings = list(dict.fromkeys(item for item in strings if item))  # an empty one stops nothing
    if len(strings) > MAX_STOP_STRINGS:
        raise InvalidRequest(f"stop takes at most {MAX_STOP_STRINGS} strings.", param="stop")
    if any(len(item) > MAX_STOP_CHARACTERS for item in strings):
        raise InvalidRequest(
            f"A stop string has at most {MAX_STOP_CHARACTERS} characters.", param="stop"
        )
    return strings


def _breakers(value: Any) -> list[str]:
    name = "dry_sequence_breakers"
    strings = [value] if isinstance(value, str) else value
    if not isinstance(strings, list) or not all(isinstance(item, str) for item in strings):
        raise InvalidRequest(f"{name} must be a string or a list of strings.", param=name)
    strings = list(dict.fromkeys(item for item in strings if item))  # an empty one breaks nothing
    if len(strings) > MAX_BREAKERS:
        raise InvalidRequest(f"{name} takes at most {MAX_BREAKERS} strings.", param=name)
    if any(len(item.encode("utf-8", "replace")) > MAX_BREAKER_BYTES for item in strings):
        raise InvalidRequest(
            f"A string of {name} has at most {MAX_BREAKER_BYTES} bytes.", param=name
        )
    return strings


def _bias(value: Any, n_vocab: int) -> dict[int, float]:
    if not isinstance(value, Mapping):
        raise InvalidRequest("logit_bias must map token ids to numbers.", param="logit_bias")
    if len(value) > MAX_BIASES:
        raise InvalidRequest(f"logit_bias takes at most {MAX_BIASES} tokens.", param="logit_bias")
    return {
        _token(key, n_vocab): _float("logit_bias", bias, -100, 100) for key, bias in value.items()
    }


def _token(key: Any, n_vocab: int) -> int:
    """JSON has no integer keys, so digits are taken as well."""
    text = str(key)
    digits = text.isascii() and text.isdigit() and len(text) <= 10
    if isinstance(key, bool) or not digits or int(text) >= n_vocab:
        raise InvalidRequest(
            f"logit_bias names {_quoted(key)}, which is not a token of this model.",
            param="logit_bias",
        )
    return int(text)


def _quoted(value: Any) -> str:
    return repr(str(value)[:40])
