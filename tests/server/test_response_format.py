"""The form of a reply as requests give it."""

from __future__ import annotations

from typing import Any

import pytest

from hobnob.server.errors import InvalidRequest
from hobnob.server.response_format import MAX_SCHEMA_BYTES, MAX_SCHEMA_DEPTH, check, normal

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
HELD = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, {}),
        ({"type": "text"}, {}),
        ({"type": "json_object"}, {"type": "json_object"}),
        ({"type": "json_object", "schema": SCHEMA}, HELD),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": SCHEMA}},
            HELD,
        ),
    ],
)
def test_a_form_is_kept_as_its_type_and_schema(given: Any, kept: dict[str, Any]) -> None:
    assert normal(given) == kept
    assert normal(kept) == kept


def nested(levels: int) -> Any:
    schema: Any = {}
    for _ in range(levels - 1):
        schema = {"items": schema}
    return {"type": "json_schema", "json_schema": {"schema": schema}}


@pytest.mark.parametrize(
    "given",
    [
        "json",
        None,
        [],
        {"type": "xml"},
        {"type": None, "schema": {}},
        {"type": "json_schema"},
        {"type": "json_schema", "schema": SCHEMA},
        {"type": "json_schema", "json_schema": SCHEMA},
        {"type": "json_schema", "json_schema": {"schema": "string"}},
        {"type": "json_schema", "json_schema": {"schema": True}},
        {"type": "json_schema", "json_schema": {"schema": [SCHEMA]}},
        {"type": "json_object", "schema": 3},
        {"type": "json_object", "schema": {"enum": ["x" * MAX_SCHEMA_BYTES]}},
        nested(MAX_SCHEMA_DEPTH + 1),
        nested(100_000),
    ],
)
def test_what_is_no_form_is_refused_by_name(given: Any) -> None:
    with pytest.raises(InvalidRequest) as told:
        normal(given)
    assert told.value.param == "response_format"
    assert told.value.message.endswith(".")


def test_a_schema_as_deep_as_may_be_compiles() -> None:
    check(normal(nested(MAX_SCHEMA_DEPTH)))


def test_a_schema_that_cannot_be_compiled_is_the_request_s_fault() -> None:
    with pytest.raises(InvalidRequest, match="schema cannot be used") as told:
        check(normal({"type": "json_object", "schema": {"type": "nonsense"}}))
    assert told.value.param == "response_format"
