"""Exit codes are a contract: their numbers, and that no error lacks one."""

from __future__ import annotations

import pytest

from hobnob.exits import Exit, for_code, for_server
from hobnob.server import errors


def test_the_numbers_are_the_documented_ones() -> None:
    assert {one.name: int(one) for one in Exit} == {
        "OK": 0,
        "INTERNAL": 1,
        "USAGE": 2,
        "NOT_FOUND": 3,
        "TRUNCATED": 4,
        "SCHEMA": 5,
        "REFUSED": 6,
        "CANCELLED": 7,
        "UNREACHABLE": 69,
        "OUTPUT": 74,
        "TRY_LATER": 75,
        "KEY": 76,
        "MODEL": 77,
        "CONFIG": 78,
        "INTERRUPTED": 130,
        "CLOSED_OUTPUT": 141,
        "TERMINATED": 143,
    }


def _tree(kind: type[errors.HobnobError]) -> list[type[errors.HobnobError]]:
    return [kind, *(one for sub in kind.__subclasses__() for one in _tree(sub))]


@pytest.mark.parametrize("kind", _tree(errors.HobnobError))
def test_every_server_error_has_an_exit_code_of_its_own_choice(
    kind: type[errors.HobnobError],
) -> None:
    unknown_is_internal = kind.code in ("internal", "engine_failed")
    assert (for_code(kind.code) is Exit.INTERNAL) == unknown_is_internal
    if kind.status == 503 and kind is not errors.ModelUnavailable:
        assert for_code(kind.code) is Exit.TRY_LATER


def test_a_code_from_a_newer_server_is_an_internal_error() -> None:
    assert for_code("something_new") is Exit.INTERNAL


def test_how_a_server_died_is_passed_on_if_it_says_something() -> None:
    assert for_server(78) is Exit.CONFIG
    assert for_server(0) is for_server(1) is for_server(-9) is for_server(200) is Exit.UNREACHABLE
