"""What may come next in a reply that is held to a form, on llguidance with a small vocabulary."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hobnob.server.engine import constraint, form_grammar
from hobnob.server.engine.constraint import Constraint, Constraints
from hobnob.server.engine.form_grammar import FormError
from hobnob.server.engine.ranking import Row

EOG = 0
CONTROL = 1
WORDS = [b"<|end|>", b"<|start|>", b"", *(bytes([n]) for n in range(256))]
WORDS += [b'{"', b'":', b'": ', b"true", b"name", b'", "', b"  ", b"\n\n", "é".encode(), b"12"]
FREE: Row = np.zeros(len(WORDS), np.float32)

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "bé", None]}, "maxItems": 3},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


def form(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"schema": schema}}


def made(eog: list[int] | None = None) -> Constraints:
    return Constraints(
        len(WORDS),
        [EOG] if eog is None else eog,
        WORDS.__getitem__,
        lambda id: id in (EOG, CONTROL),
        lambda text: [3 + byte for byte in text.encode()],
    )


MADE = made()


def allowed(held: Constraint) -> list[int]:
    return [int(id) for id in np.flatnonzero(held.masked(FREE) > -np.inf)]


def tokens_of(text: str) -> list[int]:
    return [3 + byte for byte in text.encode()]


def wander(held: Constraint, chance: random.Random, most: int = 400) -> tuple[list[int], bool]:
    """Any reply that is allowed, and whether it came to its end."""
    said: list[int] = []
    while len(said) < most and not held.complete:
        choices = allowed(held)
        assert choices
        # Strings would go on for ever: an end is taken where there is one, mostly.
        ends = [id for id in choices if WORDS[id] in (b'"', b"}", b"]")]
        token = chance.choice(ends if ends and chance.random() < 0.3 else choices)
        if token == EOG:
            return said, True
        held.accept(token)
        said.append(token)
    return said, held.complete


@given(st.integers(0, 2**32))
def test_whatever_is_drawn_of_what_is_allowed_is_json_of_the_schema(seed: int) -> None:
    said, ended = wander(MADE.of(form(PERSON), []), random.Random(seed))
    assert ended
    value = json.loads(b"".join(WORDS[id] for id in said))
    assert set(value) <= {"name", "age", "tags"} and {"name", "age"} <= set(value)
    assert 0 <= value["age"] <= 150 and len(value["name"]) <= 12
    assert all(tag in ("a", "bé", None) for tag in value.get("tags", []))


@given(st.integers(0, 2**32))
def test_a_reply_that_goes_on_is_held_to_the_place_where_it_was(seed: int) -> None:
    chance = random.Random(seed)
    said, _ = wander(MADE.of(form(PERSON), []), chance)
    cut = chance.randrange(len(said))
    first, again = MADE.of(form(PERSON), []), MADE.of(form(PERSON), said[:cut])
    for token in said[:cut]:
        first.accept(token)
    assert allowed(again) == allowed(first)
    assert again.complete is first.complete is False


def test_the_end_and_control_tokens_are_allowed_at_the_end_alone_and_never() -> None:
    held = MADE.of(form({"type": "integer", "maximum": 99}), tokens_of("7"))
    assert EOG in allowed(held) and CONTROL not in allowed(held)
    before = MADE.of(form({"type": "integer", "maximum": 99}), [])
    assert EOG not in allowed(before) and CONTROL not in allowed(before)


def test_a_form_that_is_filled_is_complete_though_no_end_was_drawn() -> None:
    held = MADE.of({"type": "json_object"}, tokens_of('{"a": [1, {}]}'))
    assert held.complete
    assert not MADE.of({"type": "json_object"}, tokens_of('{"a": [1, {}]')).complete


def test_any_object_is_one_and_nothing_else_is() -> None:
    held = MADE.of({"type": "json_object"}, [])
    assert {WORDS[id] for id in allowed(held)} == {b"{", b'{"'}


def test_spaces_between_parts_have_a_bound() -> None:
    held = MADE.of({"type": "json_object"}, tokens_of("{\n" + " " * 20))
    following = {WORDS[id] for id in allowed(held)}
    assert {b'"', b"}"} < following and not {b" ", b"  ", b"\n", b"\n\n"} & following


def test_a_mask_changes_nothing_but_what_is_forbidden() -> None:
    row = np.random.default_rng(1).normal(size=len(WORDS)).astype(np.float32)
    given_row = row.copy()
    masked = MADE.of(form(PERSON), []).masked(row)
    kept = masked > -np.inf
    assert (row == given_row).all() and (masked[kept] == row[kept]).all() and 0 < kept.sum() < 10


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"type": "string", "pattern": "("},
        {"$ref": "#/nowhere"},
        {"$ref": "https://example.com/schema.json"},
        {"properties": 3},
        {"type": "object", "minProperties": 3, "maxProperties": 1},
        {"not": {"type": "string"}},
        {"enum": []},
    ],
)
def test_a_schema_that_no_reply_can_be_held_to_is_one_sentence(schema: Any) -> None:
    with pytest.raises(FormError) as told:
        form_grammar.check(form(schema))
    sentence = str(told.value)
    assert "\n" not in sentence and sentence.endswith(".") and len(sentence) < 400
    with pytest.raises(FormError):
        MADE.of(form(schema), [])


def test_a_schema_that_refers_to_itself_alone_is_refused() -> None:
    with pytest.raises(FormError, match="schema cannot be used"):
        MADE.of(form({"$ref": "#"}), [])


def test_what_a_check_lets_through_compiles() -> None:
    for schema in (
        PERSON,
        {},
        {"enum": [1, "two", None]},
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}},
    ):
        form_grammar.check(form(schema))
        assert allowed(MADE.of(form(schema), []))


def test_a_reply_that_does_not_fit_its_form_is_refused() -> None:
    with pytest.raises(FormError, match="does not fit"):
        MADE.of(form(PERSON), tokens_of("Hello"))


def test_a_model_without_an_end_token_cannot_hold_a_reply_to_a_form() -> None:
    with pytest.raises(FormError, match="no token that ends"):
        made(eog=[]).of(form(PERSON), [])


def test_runs_with_one_form_do_not_see_each_other() -> None:
    one, other = MADE.of(form(PERSON), []), MADE.of(form(PERSON), [])
    one.accept(3 + ord("{"))
    assert allowed(other) != allowed(one)
    assert allowed(other) == allowed(MADE.of(form(PERSON), []))


def test_forms_that_were_compiled_are_remembered_up_to_a_bound() -> None:
    own = made()
    for n in range(constraint.REMEMBERED + 5):
        own.of(form({"const": n}), [])
    assert len(own._compiled) == constraint.REMEMBERED
