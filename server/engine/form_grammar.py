"""From the form that a reply is held to, to what llguidance compiles. Pure; knows no vocabulary.

The server asks here whether a form can be held to at all, the engine for the grammar. The library
is imported when somebody asks: that takes 50 ms, which every start and restart would pay.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llguidance import LLParserLimits

SPACE = r" |\n[ \t]{0,20}"
"""Between tokens of JSON: without a bound small models write line breaks to their limit."""


class FormError(Exception):
    """No reply can be held to the form, or the one so far does not fit it; one sentence."""


@functools.cache
def limits() -> LLParserLimits:
    """Of the work of compiling a form, and of one mask."""
    from llguidance import LLParserLimits

    return LLParserLimits(
        initial_lexer_fuel=1_000_000,  # about 20 ms, the library says
        step_lexer_fuel=200_000,  # about 14 ms
        step_max_items=50_000,
        max_grammar_size=100_000,
        verbose_errors=False,
    )


def grammar(response_format: Mapping[str, Any]) -> str:
    """What llguidance compiles, from a form as server/response_format.py makes it."""
    from llguidance import LLMatcher

    schema: Any = {"type": "object"}
    if response_format["type"] == "json_schema":
        schema = response_format["json_schema"]["schema"]
    return LLMatcher.grammar_from_json_schema(
        json.dumps(schema), defaults={"whitespace_pattern": SPACE}
    )


def check(response_format: Mapping[str, Any]) -> None:
    """Raises FormError for a form that no model's reply could be held to."""
    from llguidance import LLMatcher

    try:
        text = grammar(response_format)
    except ValueError as error:
        raise failure(str(error)) from None
    failed, said = LLMatcher.validate_grammar_with_warnings(text, limits=limits())
    if failed:
        raise failure(said[0])


def failure(error: str) -> FormError:
    """What the library said, as one sentence."""
    first = error.strip().splitlines()[0] if error.strip() else "it cannot be compiled"
    return FormError(f"The schema cannot be used: {first[:300].rstrip('.')}.")
