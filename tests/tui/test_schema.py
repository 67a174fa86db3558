"""What a schema on the command line means, and which replies are whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hobnob.exits import Exit, ExitError
from hobnob.tui.schema import is_whole, read, response_format, short


def fields(**properties: dict[str, str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


STRING, INTEGER = {"type": "string"}, {"type": "integer"}


@pytest.mark.parametrize(
    ("text", "schema"),
    [
        ("name, age int", fields(name=STRING, age=INTEGER)),
        (" name ,age  int, ", fields(name=STRING, age=INTEGER)),
        ("n float, b bool, s str", fields(n={"type": "number"}, b={"type": "boolean"}, s=STRING)),
        ("bio: in one: sentence", fields(bio={**STRING, "description": "in one: sentence"})),
        ("age int: in years\nbio: short, dry", fields(age={**INTEGER, "description": "in years"})),
    ],
)
def test_fields_in_short_are_an_object_that_has_all_of_them(
    text: str, schema: dict[str, Any]
) -> None:
    if "\n" in text:  # by lines, a comma is part of the description
        schema = fields(**schema["properties"], bio={"type": "string", "description": "short, dry"})
    assert short(text) == schema
    assert read(text) == schema


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name, age integer", "'age integer' is no field"),
        ("name of the person, age", "'name of the person' is no field"),
        ("2nd, first", "'2nd' is no field"),
        (": about", "': about' is no field"),
        ("a, b, a int", "has the field 'a' twice"),
        (" , ", "has no fields"),
        ("{", "The schema is no JSON: Expecting property name"),
        ('{"a": 1}}', "The schema is no JSON: Extra data at line 1, column 9"),
        ("nowhere.json", "There is no file 'nowhere.json'"),
        ("", "There is no file ''"),
    ],
)
def test_what_is_no_schema_is_wrong_use_in_one_sentence(text: str, words: str) -> None:
    with pytest.raises(ExitError) as raised:
        read(text)
    assert words in raised.value.message and raised.value.exit_code is Exit.USAGE
    assert "\n" not in raised.value.message


def test_a_schema_is_read_from_a_file_or_from_the_argument_itself(tmp_path: Path) -> None:
    schema = {"type": "array", "items": {"type": "string"}}
    file = tmp_path / "a schema.json"
    file.write_text(json.dumps(schema))
    assert read(str(file)) == schema == read(f" {json.dumps(schema)}")
    for wrong in ("[1]", "nonsense", '"x"', "[" * 100_000):
        file.write_text(wrong)
        with pytest.raises(ExitError, match="The schema in .* is no"):
            read(str(file))
    file.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ExitError, match="is not UTF-16"):
        read(str(file))


@pytest.mark.parametrize(
    ("title", "name"), [("Person", "Person"), ("a person", "reply"), (3, "reply"), (None, "reply")]
)
def test_it_travels_with_a_name_that_the_api_takes(title: Any, name: str) -> None:
    schema = {"type": "object", "title": title}
    sent = {"type": "json_schema", "json_schema": {"name": name, "schema": schema}}
    assert response_format(schema) == sent


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ('{"a": 1}', True),
        (' ["x"]\n', True),
        ('"x"', True),
        ("true", True),
        ("null", True),
        ('{"a": 1', False),
        ('{"a": "x', False),
        ("", False),
        ("12", False),
        ("-1.5", False),
        ("Sure: {}", False),
        ("[" * 100_000, False),
    ],
)
def test_a_reply_is_whole_when_it_is_json_that_could_not_go_on(text: str, whole: bool) -> None:
    assert is_whole(text) is whole
