"""The form that a reply is asked for in: a JSON schema from a file, as JSON, or in short.

In short it is the fields of an object, by commas or a line each: `name, age int, bio: in one
sentence`. Pure but for the file.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from hobnob.exits import Exit, ExitError
from hobnob.tui import stdin

TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}

_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What the API takes as a schema's name."""


def read(given: str) -> dict[str, Any]:
    """Raises ExitError, one sentence. Whether the schema can be held to is the server's to say."""
    text = given.strip()
    if text.startswith("{"):
        return _schema(text, "The schema")
    if os.path.isfile(given):
        return _schema(stdin.read_file(given), f"The schema in {given}")
    if any(one.isspace() or one in ",:" for one in text):
        return short(text)
    raise _wrong(
        f"There is no file {given!r}: --schema takes a FILE, JSON, or fields as in 'name, age int'."
    )


def short(text: str) -> dict[str, Any]:
    """An object with these fields and no others. Raises ExitError."""
    properties: dict[str, dict[str, str]] = {}
    for part in text.split("\n") if "\n" in text else text.split(","):
        if not part.strip():
            continue
        declared, colon, about = part.partition(":")
        name, type_ = _declared(declared, part.strip())
        if name in properties:
            raise _wrong(f"The schema has the field {name!r} twice.")
        properties[name] = {"type": type_}
        if about.strip():
            properties[name]["description"] = about.strip()
    if not properties:
        raise _wrong("The schema has no fields.")
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def response_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    """As the API takes it."""
    title = schema.get("title")
    name = title if isinstance(title, str) and _NAME.fullmatch(title) else "reply"
    return {"type": "json_schema", "json_schema": {"name": name, "schema": dict(schema)}}


def is_whole(text: str) -> bool:
    """Whether a reply that may have been cut is JSON all the same. Of a number nobody can tell:
    it may be the beginning of a longer one."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, bool) or not isinstance(value, int | float)


def _schema(text: str, what: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        at = f"line {error.lineno}, column {error.colno}"
        raise _wrong(f"{what} is no JSON: {error.msg} at {at}.") from None
    except (ValueError, RecursionError):
        raise _wrong(f"{what} is no JSON that can be read.") from None
    if not isinstance(found, dict):
        raise _wrong(f"{what} is no object, as a JSON schema is.")
    return found


def _declared(text: str, part: str) -> tuple[str, str]:
    words = text.split()
    name, type_ = words if len(words) == 2 else (words[0] if len(words) == 1 else "", "str")
    if not _FIELD.fullmatch(name) or type_ not in TYPES:
        raise _wrong(
            f"{part!r} is no field of a schema: write NAME or NAME TYPE, with one of the types "
            f"{', '.join(TYPES)}, and what it means after a colon."
        )
    return name, TYPES[type_]


def _wrong(sentence: str) -> ExitError:
    return ExitError(sentence, Exit.USAGE, "usage")
