"""Every refusal in the envelope of the API in use: native, OpenAI or Anthropic, by the path.

Owns the mapping from our errors, the store's and the web framework's to a status, a code and
one sentence. Promises that a reply is always valid JSON and never repeats the request's body.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from hobnob.server import errors
from hobnob.store import values

MAX_MESSAGE_CHARS = 500

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class Api(Enum):
    """Whose envelope a path answers in."""

    NATIVE = "native"
    OPENAI = "openai"
    ANTHROPIC = "anthropic"


@dataclass(frozen=True, slots=True)
class Problem:
    """A refusal, before it is put in an envelope."""

    status: int
    code: str
    message: str
    param: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)


def api_of(path: str) -> Api:
    if path == "/v1/messages" or path.startswith("/v1/messages/"):
        return Api.ANTHROPIC
    if path == "/v1" or path.startswith("/v1/"):
        return Api.OPENAI
    return Api.NATIVE


def printable(text: str) -> str:
    """Text for a message: one line, no control characters or lone surrogates, bounded."""
    clean = _UNPRINTABLE.sub("\ufffd", text)
    return clean if len(clean) <= MAX_MESSAGE_CHARS else clean[: MAX_MESSAGE_CHARS - 1] + "…"


# ---- from an exception to a problem -----------------------------------------------------------

_STORE_ERRORS: tuple[tuple[type[values.StoreError], int, str], ...] = (
    (values.NotFound, 404, "not_found"),
    (values.KeyReused, 409, "conflict"),
    (values.IdTaken, 409, "conflict"),
    (values.BadParent, 400, "invalid_request"),
    (values.WriteFailed, 507, "not_saved"),
    (values.Closed, 503, "server_stopping"),
    (values.SchemaTooNew, 500, "internal"),
    (values.StoreError, 500, "internal"),
)
_HTTP_CODES = {
    400: "invalid_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    413: "body_too_large",
    415: "unsupported_media_type",
    431: "headers_too_large",
}
_HTTP_MESSAGES = {
    404: "There is nothing at this address.",
    405: "This address does not take this method.",
}


def problem_of(error: Exception) -> Problem:
    """Total: whatever is not known is an internal error without details."""
    if isinstance(error, errors.HobnobError):
        return _from_ours(error)
    if isinstance(error, values.StoreError):
        return _from_store(error)
    if isinstance(error, RequestValidationError):
        return _from_validation(error)
    if isinstance(error, HTTPException):
        return _from_http(error)
    return Problem(500, "internal", "The server met an error of its own; its log has the details.")


def _from_ours(error: errors.HobnobError) -> Problem:
    headers: dict[str, str] = {}
    details: dict[str, Any] = {}
    retry_after_s = error.retry_after_s
    if retry_after_s is None and isinstance(error, errors.Busy):
        retry_after_s = 1
    if retry_after_s is not None:
        headers["Retry-After"] = str(max(1, retry_after_s))
    if isinstance(error, errors.ServerStopping):
        headers["Connection"] = "close"
    if isinstance(error, errors.Unauthorized):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, errors.PromptTooLong):
        details = {"n_prompt_tokens": error.n_prompt_tokens, "n_ctx": error.n_ctx}
    if isinstance(error, errors.Gone) and error.message_id is not None:
        details = {"message_id": error.message_id}
    return Problem(error.status, error.code, error.message, error.param, headers, details)


def _from_store(error: values.StoreError) -> Problem:
    status, code = next((s, c) for kind, s, c in _STORE_ERRORS if isinstance(error, kind))
    headers = {"Retry-After": "1", "Connection": "close"} if code == "server_stopping" else {}
    return Problem(status, code, str(error), headers=headers)


def _from_http(error: HTTPException) -> Problem:
    code = _HTTP_CODES.get(error.status_code, "internal")
    message = _HTTP_MESSAGES.get(error.status_code, str(error.detail))
    return Problem(error.status_code, code, message, headers=dict(error.headers or {}))


def _from_validation(error: RequestValidationError) -> Problem:
    """The first fault, named by its field. Its input is never repeated: it may be anything."""
    found = error.errors()[0]
    kind, where = str(found["type"]), [str(part) for part in found["loc"]]
    place = ".".join(where[1:])
    if kind == "json_invalid":
        reason = found.get("ctx", {}).get("error", "syntax error")
        at = f" at character {place}" if place not in ("", "0") else ""
        return Problem(400, "invalid_request", f"The body is not valid JSON: {reason}{at}.")
    if kind == "missing" and not place:
        return Problem(400, "invalid_request", "A JSON body is required.")
    if kind in ("model_type", "model_attributes_type") and not place:
        return Problem(400, "invalid_request", "The body must be a JSON object.")
    if not place:
        return Problem(400, "invalid_request", str(found["msg"]), found["ctx"].get("param"))
    sentence = f"{place}: {found['msg']}"
    return Problem(400, "invalid_request", sentence, param=place)


# ---- from a problem to a response -------------------------------------------------------------

_OPENAI_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def envelope(api: Api, problem: Problem) -> dict[str, Any]:
    """The JSON body of a refusal, or the `error` of a stream that fails after it opened."""
    message = printable(problem.message)
    if api is Api.ANTHROPIC:
        kind = _type(_ANTHROPIC_TYPES, _status(api, problem), "api_error")
        return {"type": "error", "error": {"type": kind, "message": message}}
    param = None if problem.param is None else printable(problem.param)
    if api is Api.OPENAI:
        kind = _type(_OPENAI_TYPES, problem.status, "server_error")
        error = {"message": message, "type": kind, "param": param, "code": problem.code}
    else:
        error = {"code": problem.code, "message": message}
        if param is not None:
            error["param"] = param
    return {"error": {**error, **problem.details}}


def response(path: str, error: Exception) -> JSONResponse:
    """The reply to a request that is refused."""
    api, problem = api_of(path), problem_of(error)
    body = envelope(api, problem)
    return JSONResponse(body, status_code=_status(api, problem), headers=problem.headers)


def _type(names: dict[int, str], status: int, otherwise: str) -> str:
    return names.get(status, "invalid_request_error" if status < 500 else otherwise)


def _status(api: Api, problem: Problem) -> int:
    overloaded = api is Api.ANTHROPIC and problem.status == 503
    return 529 if overloaded else problem.status
