"""Every error has its place in every API's envelope."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from hobnob.server import errors
from hobnob.server.routes import envelopes
from hobnob.store import values

NATIVE, OPENAI, ANTHROPIC = "/hobnob/v1/x", "/v1/chat/completions", "/v1/messages"


def subclasses(base: type[Exception]) -> list[type[Exception]]:
    found = [base]
    for child in base.__subclasses__():
        found += subclasses(child)
    return found


def make(kind: type[Exception]) -> Exception:
    if kind is errors.PromptTooLong:
        return errors.PromptTooLong(9, 8)
    if kind is errors.Gone:
        return errors.Gone("gone", message_id="m1")
    return kind("a sentence")


ALL = [*subclasses(errors.HobnobError), *subclasses(values.StoreError)]


@pytest.mark.parametrize("path", [NATIVE, OPENAI, ANTHROPIC])
@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__qualname__)
def test_every_error_of_ours_becomes_json_with_a_message(kind: Any, path: str) -> None:
    answer = envelopes.response(path, make(kind))
    error = json.loads(bytes(answer.body))["error"]
    assert error["message"]
    assert 400 <= answer.status_code < 600


def test_every_kind_of_store_error_is_mapped_by_name() -> None:
    mapped = {kind for kind, _, _ in envelopes._STORE_ERRORS}
    direct = {kind for kind in subclasses(values.StoreError) if kind.__base__ is values.StoreError}
    assert direct <= mapped


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (values.NotFound("no"), 404, "not_found"),
        (values.KeyReused("no"), 409, "conflict"),
        (values.BadParent("no"), 400, "invalid_request"),
        (values.WriteFailed("disk full"), 507, "not_saved"),
        (values.Closed("no"), 503, "server_stopping"),
        (errors.Busy("full"), 503, "server_overloaded"),
        (HTTPException(404), 404, "not_found"),
        (HTTPException(405, headers={"Allow": "GET"}), 405, "method_not_allowed"),
        (HTTPException(418, "odd"), 418, "internal"),
        (ZeroDivisionError("secret detail"), 500, "internal"),
    ],
)
def test_status_and_code(error: Exception, status: int, code: str) -> None:
    answer = envelopes.response(NATIVE, error)
    body = json.loads(bytes(answer.body))
    assert (answer.status_code, body["error"]["code"]) == (status, code)
    assert "secret detail" not in body["error"]["message"]


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (errors.InvalidRequest("x"), 400, "invalid_request_error"),
        (errors.Unauthorized("x"), 401, "authentication_error"),
        (errors.Forbidden("x"), 403, "permission_error"),
        (errors.ModelNotFound("x"), 404, "not_found_error"),
        (HTTPException(405), 405, "invalid_request_error"),
        (errors.BodyTooLarge("x"), 413, "request_too_large"),
        (errors.Busy("x"), 529, "overloaded_error"),
        (errors.EngineFailed("x"), 500, "api_error"),
    ],
)
def test_anthropic_has_its_own_names_and_its_own_status_for_overload(
    error: Exception, status: int, kind: str
) -> None:
    answer = envelopes.response(ANTHROPIC, error)
    body = json.loads(bytes(answer.body))
    assert answer.status_code == status
    assert (body["type"], body["error"]["type"]) == ("error", kind)


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (errors.InvalidRequest("x", param="n"), "invalid_request_error", "invalid_request"),
        (errors.Unauthorized("x"), "authentication_error", "unauthorized"),
        (errors.ModelNotFound("x"), "invalid_request_error", "model_not_found"),
        (errors.Busy("x"), "server_error", "server_overloaded"),
    ],
)
def test_openai_has_four_fields(error: Exception, kind: str, code: str) -> None:
    body = json.loads(bytes(envelopes.response(OPENAI, error).body))["error"]
    assert (set(body), body["type"], body["code"]) == (
        {"message", "type", "param", "code"},
        kind,
        code,
    )


def test_an_overload_says_when_to_come_back() -> None:
    assert envelopes.response(OPENAI, errors.Busy("x")).headers["retry-after"] == "1"
    late = errors.Busy("x", retry_after_s=7)
    assert envelopes.response(NATIVE, late).headers["retry-after"] == "7"


def test_a_prompt_over_the_window_is_told_both_numbers() -> None:
    body = json.loads(bytes(envelopes.response(OPENAI, errors.PromptTooLong(900, 512)).body))
    assert body["error"]["code"] == "context_length_exceeded"
    assert (body["error"]["n_prompt_tokens"], body["error"]["n_ctx"]) == (900, 512)
    assert "900" in body["error"]["message"] and "512" in body["error"]["message"]


def test_a_pruned_log_names_the_stored_message() -> None:
    body = json.loads(bytes(envelopes.response(NATIVE, make(errors.Gone)).body))
    assert body["error"]["message_id"] == "m1"


@pytest.mark.parametrize("text", ["half \ud83d", "a\x1b]52;c;x\x07b", "line\u2028line", "x" * 9999])
def test_a_message_is_one_bounded_printable_line(text: str) -> None:
    answer = envelopes.response(OPENAI, errors.InvalidRequest(text, param=text))
    error = json.loads(bytes(answer.body))["error"]
    for value in (error["message"], error["param"]):
        assert value.isprintable() and len(value) <= envelopes.MAX_MESSAGE_CHARS


def test_a_validation_error_never_repeats_its_input() -> None:
    found = {"type": "string_type", "loc": ("body", "text"), "msg": "bad", "input": "my secret"}
    body = bytes(envelopes.response(NATIVE, RequestValidationError([found])).body)
    assert json.loads(body)["error"]["param"] == "text"
    assert b"my secret" not in body


@pytest.mark.parametrize(
    ("path", "api"),
    [
        ("/v1/messages", envelopes.Api.ANTHROPIC),
        ("/v1/messages/count_tokens", envelopes.Api.ANTHROPIC),
        ("/v1/messagesx", envelopes.Api.OPENAI),
        ("/v1", envelopes.Api.OPENAI),
        ("/v1x", envelopes.Api.NATIVE),
        ("/hobnob/v1/messages", envelopes.Api.NATIVE),
        ("/", envelopes.Api.NATIVE),
    ],
)
def test_the_path_decides_whose_envelope_it_is(path: str, api: envelopes.Api) -> None:
    assert envelopes.api_of(path) is api


def test_the_tree_of_errors_in_the_docstring_is_complete() -> None:
    drawn = inspect.getdoc(errors) or ""
    for kind in subclasses(errors.HobnobError):
        assert kind.__name__ in drawn or kind.__module__ != errors.__name__
