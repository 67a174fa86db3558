"""Options: every range, every wrong type, and the order of the layers."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hobnob.server.errors import InvalidRequest
from hobnob.server.sampling_options import (
    FLAGS,
    FLOATS,
    INTEGERS,
    MAX_SEED,
    NAMES,
    RANDOM_SEED,
    Options,
    check,
    from_params,
    resolve,
    to_params,
)

N_VOCAB = 1000


def resolved(*layers: dict[str, Any]) -> Options:
    return resolve(list(layers), n_vocab=N_VOCAB, choose_seed=lambda: 7)


def test_the_last_layer_wins_and_none_leaves_it_to_those_before() -> None:
    options = resolved({"temperature": 0.1, "top_k": 5}, {"temperature": 1}, {"top_k": None})
    assert (options.sampling.temperature, options.sampling.top_k) == (1.0, 5)


def test_a_seed_is_chosen_only_where_none_is_given() -> None:
    assert resolved().sampling.seed == 7
    assert resolved({"seed": MAX_SEED}).sampling.seed == MAX_SEED
    assert resolved({"seed": 5}, {"seed": None}).sampling.seed == 5


def test_minus_one_is_a_random_seed_whatever_was_set_before() -> None:
    assert resolved({"seed": 5}, {"seed": RANDOM_SEED}).sampling.seed == 7
    assert resolved({"seed": RANDOM_SEED}, {"seed": 5}).sampling.seed == 5


BAD_NUMBERS = [float("nan"), math.inf, -math.inf, 10**400, -(10**400), "1", True, [], {}]


@pytest.mark.parametrize("name", sorted(FLOATS))
@pytest.mark.parametrize("value", [*BAD_NUMBERS, 1000.0, -1000])
def test_a_number_out_of_range_or_of_no_range_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as error:
        resolved({name: value})
    assert error.value.param == name and name in error.value.message


@pytest.mark.parametrize("name", sorted(INTEGERS))
@pytest.mark.parametrize("value", [*BAD_NUMBERS, -2, 2**70, 1e30, 1.5])
def test_a_whole_number_is_not_guessed_from_anything_else(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as error:
        resolved({name: value})
    assert error.value.param == name


@pytest.mark.parametrize("name", sorted(FLAGS))
@pytest.mark.parametrize("value", [1, "true", 0.0])
def test_a_flag_is_true_or_false(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequest):
        resolved({name: value})


def test_the_ends_of_every_range_are_taken() -> None:
    for name, (low, high) in {**FLOATS, **INTEGERS}.items():
        for value in (low, high) if name != "seed" else (0, high):
            assert getattr(resolved({name: value}).sampling, name) == value


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(InvalidRequest) as error:
        resolved({"temprature": 1})
    assert error.value.param == "temprature"


@pytest.mark.parametrize(
    ("stop", "strings"),
    [
        ("", []),
        ([""], []),
        (["", "x"], ["x"]),
        ([], []),
        (None, []),
        ("x", ["x"]),
        (["x", "x"], ["x"]),
        (["\ufffd"], ["\ufffd"]),
        ([" "], [" "]),
        (["s"] * 1000, ["s"]),
    ],
)
def test_stop_strings_that_are_taken(stop: Any, strings: list[str]) -> None:
    assert resolved({"stop": stop}).sampling.stop == strings


@pytest.mark.parametrize(
    "stop", [[None], [1], 1, {"a": 1}, "x" * 100_000, [str(n) for n in range(17)]]
)
def test_stop_strings_that_are_refused(stop: Any) -> None:
    with pytest.raises(InvalidRequest) as error:
        resolved({"stop": stop})
    assert error.value.param == "stop"


@pytest.mark.parametrize(
    ("given", "taken"),
    [("x", ["x"]), (["", "\n", "\n"], ["\n"]), ([], []), (["é" * 20], ["é" * 20])],
)
def test_sequence_breakers_that_are_taken(given: Any, taken: list[str]) -> None:
    assert resolved({"dry_sequence_breakers": given}).sampling.dry_sequence_breakers == taken


@pytest.mark.parametrize("given", [1, [1], [None], ["é" * 21], [str(n) for n in range(17)]])
def test_sequence_breakers_that_are_refused(given: Any) -> None:
    with pytest.raises(InvalidRequest) as error:
        resolved({"dry_sequence_breakers": given})
    assert error.value.param == "dry_sequence_breakers"


def test_biases_take_ids_as_numbers_or_as_json_has_them() -> None:
    assert resolved({"logit_bias": {"5": 1, 999: -100}}).sampling.logit_bias == {5: 1.0, 999: -100}


@pytest.mark.parametrize(
    "bias",
    [
        {"1000": 1},
        {"-1": 1},
        {"٣": 1},
        {"x": 1},
        {"9" * 5000: 1},
        {True: 1},
        {"5": float("nan")},
        {"5": 101},
        [5],
        {str(n): 0 for n in range(1025)},
    ],
)
def test_biases_that_are_refused(bias: Any) -> None:
    with pytest.raises(InvalidRequest) as error:
        resolved({"logit_bias": bias})
    assert error.value.param == "logit_bias"


def test_a_check_needs_no_model() -> None:
    check({"logit_bias": {"100000": 1}, "temperature": 0})
    with pytest.raises(InvalidRequest):
        check({"temperature": -1})


FORMATS: list[dict[str, Any]] = [
    {"type": "text"},
    {"type": "json_object"},
    {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": [1, None, "é"]}}},
]


def test_a_layer_may_ask_for_plain_text_where_one_before_it_asks_for_a_form() -> None:
    held, plain = FORMATS[1], FORMATS[0]
    assert resolved({"response_format": held}).sampling.response_format == held
    assert resolved({"response_format": held}, {"response_format": plain}) == resolved()


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "temperature": st.floats(0, 10),
            "seed": st.integers(0, MAX_SEED),
            "stop": st.lists(st.text(max_size=5), max_size=16),
            "logit_bias": st.dictionaries(st.integers(0, N_VOCAB - 1), st.floats(-100, 100)),
            "exact": st.booleans(),
            "response_format": st.sampled_from(FORMATS),
            "max_tokens": st.integers(0, 1000),
        },
    )
)
def test_what_is_stored_with_a_run_gives_the_same_options_back(layer: dict[str, Any]) -> None:
    options = resolved(layer)
    stored = json.loads(json.dumps({**to_params(options), "context": {"n_ctx": 1}}))
    assert from_params(stored) == options
    assert set(to_params(options)) == NAMES
