"""The form that a reply is held to, as requests give it and as a run keeps it.

The shape is OpenAI's `response_format`: `{"type": "text"}`, `{"type": "json_object"}`, or
`{"type": "json_schema", "json_schema": {"schema": …}}`. A run keeps `{}` for plain text and
otherwise these fields alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hobnob.server.engine import form_grammar
from hobnob.server.errors import InvalidRequest

PARAM = "response_format"
MAX_SCHEMA_BYTES = 65_536
MAX_SCHEMA_DEPTH = 64
"""The compiler of schemas recurses, in a process that answers others too."""


def normal(value: Any) -> dict[str, Any]:
    """Raises InvalidRequest for what is no form. The schema's words are not looked at."""
    if not isinstance(value, Mapping):
        raise InvalidRequest(f"{PARAM} must be an object with a `type`.", param=PARAM)
    kind = value.get("type")
    if not value or kind == "text":
        return {}
    if kind == "json_object" and value.get("schema") is None:
        return {"type": "json_object"}
    if kind == "json_object":  # as llama-server has it
        return of_schema(value["schema"])
    if kind == "json_schema":
        inner = value.get("json_schema")
        if not isinstance(inner, Mapping) or inner.get("schema") is None:
            raise InvalidRequest(f"{PARAM} needs `json_schema` with a `schema`.", param=PARAM)
        return of_schema(inner["schema"])
    raise InvalidRequest(
        f"{PARAM} has one of the types text, json_object and json_schema.", param=PARAM
    )


def of_schema(schema: Any, param: str = PARAM) -> dict[str, Any]:
    """The form of a JSON schema. Raises InvalidRequest for one that is none, or too large."""
    if not isinstance(schema, Mapping):
        raise InvalidRequest(f"{param}: a JSON schema is an object.", param=param)
    if _depth(schema) > MAX_SCHEMA_DEPTH:
        raise InvalidRequest(
            f"{param}: a schema has at most {MAX_SCHEMA_DEPTH} levels.", param=param
        )
    if len(json.dumps(schema)) > MAX_SCHEMA_BYTES:
        raise InvalidRequest(
            f"{param}: a schema has at most {MAX_SCHEMA_BYTES} bytes.", param=param
        )
    return {"type": "json_schema", "json_schema": {"schema": schema}}


def check(form: Mapping[str, Any]) -> None:
    """Raises InvalidRequest for a form, as `normal` makes it, that cannot be compiled. Takes some
    milliseconds, a hundred at the worst."""
    try:
        form_grammar.check(form)
    except form_grammar.FormError as error:
        raise InvalidRequest(str(error), param=PARAM) from None


def _depth(value: Any) -> int:
    """Levels of objects and lists, counted no further than it matters."""
    levels, here = 0, [value]
    while here and levels <= MAX_SCHEMA_DEPTH:
        parts = [part for part in here if isinstance(part, Mapping | list)]
        here = [
            one for part in parts for one in (part.values() if isinstance(part, Mapping) else part)
        ]
        levels += bool(parts)
    return levels
