"""Every error that a client can be told about: its code, its HTTP status, whether a retry can help.

HobnobError
├── InvalidRequest        400 invalid_request
│   ├── PromptTooLong     400 context_length_exceeded
│   ├── TextTooLong       400 context_length_exceeded (too long even to be counted in tokens)
│   └── EmptyPrompt       400 empty_prompt
├── Unauthorized          401 unauthorized
├── Forbidden             403 forbidden              (Host, Origin)
├── NotFound              404 not_found
│   └── ModelNotFound     404 model_not_found
├── Conflict              409 conflict
├── Gone                  410 gone                   (log pruned; read the stored message)
├── BodyTooLarge          413 body_too_large
├── UnsupportedMedia      415 unsupported_media_type
├── HeadersTooLarge       431 headers_too_large
├── EngineFailed          500 engine_failed
├── Internal              500 internal
├── Busy                  503 server_overloaded      retry
│   ├── QueueTimeout      503 queue_timeout          retry
│   ├── ModelLoading      503 model_loading          retry
│   └── ServerStopping    503 server_stopping        retry
└── ModelUnavailable      503 model_unavailable

The edge (server/routes) wraps them in the envelope of the API in use.
"""

from __future__ import annotations

from typing import ClassVar


class HobnobError(Exception):
    """Base of all. `message` is one sentence for a person, without secrets or prompt text."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: int | None = None):
        super().__init__(message)
        self.message = message
        self.param = param
        """The request field at fault."""
        self.retry_after_s = retry_after_s
        """Seconds for Retry-After; None when a retry cannot help."""


class InvalidRequest(HobnobError):
    code = "invalid_request"
    status = 400


class PromptTooLong(InvalidRequest):
    code = "context_length_exceeded"

    def __init__(self, n_prompt_tokens: int, n_ctx: int):
        super().__init__(
            f"The prompt has {n_prompt_tokens} tokens; the context window holds {n_ctx}, "
            "and at least 1 of them must be left for the reply.",
            param="messages",
        )
        self.n_prompt_tokens = n_prompt_tokens
        self.n_ctx = n_ctx


class TextTooLong(InvalidRequest):
    code = PromptTooLong.code


class EmptyPrompt(InvalidRequest):
    code = "empty_prompt"


class Unauthorized(HobnobError):
    code = "unauthorized"
    status = 401


class Forbidden(HobnobError):
    code = "forbidden"
    status = 403


class NotFound(HobnobError):
    code = "not_found"
    status = 404


class ModelNotFound(NotFound):
    code = "model_not_found"


class Conflict(HobnobError):
    code = "conflict"
    status = 409


class Gone(HobnobError):
    """What follows the cursor is not there any more; the stored values are to be read instead.

    Of a run's log that was pruned, `message_id` is the reply.
    """

    code = "gone"
    status = 410

    def __init__(self, message: str, *, message_id: str | None = None):
        super().__init__(message)
        self.message_id = message_id


class BodyTooLarge(HobnobError):
    code = "body_too_large"
    status = 413


class HeadersTooLarge(HobnobError):
    code = "headers_too_large"
    status = 431


class UnsupportedMedia(HobnobError):
    code = "unsupported_media_type"
    status = 415


class EngineFailed(HobnobError):
    code = "engine_failed"


class Internal(HobnobError):
    pass


class Busy(HobnobError):
    code = "server_overloaded"
    status = 503


class QueueTimeout(Busy):
    code = "queue_timeout"


class ModelLoading(Busy):
    code = "model_loading"


class ServerStopping(Busy):
    code = "server_stopping"


class ModelUnavailable(HobnobError):
    code = "model_unavailable"
    status = 503
