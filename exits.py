"""Exit codes of every command, and which error leads to which; see docs/scripting.md.

Codes 0 to 7 are ours, 65 and above follow sysexits.h where it has one, 128 and above are
128 + signal, as a shell shows them.
"""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    OK = 0
    INTERNAL = 1  # a fault of ours, or a reply that the server could not finish
    USAGE = 2  # wrong arguments, an unreadable prompt, a request refused as wrong
    NOT_FOUND = 3  # no such conversation, message or run
    TRUNCATED = 4  # cut by the token limit or the window; only with --fail-on-truncation
    SCHEMA = 5  # the reply does not satisfy the schema asked for
    REFUSED = 6  # a moderation stage refused the prompt or the reply
    CANCELLED = 7  # another client cancelled the reply
    UNREACHABLE = 69  # no server answers
    OUTPUT = 74  # the answer could not be written (full disk)
    TRY_LATER = 75  # the server is full or stopping
    KEY = 76  # no key, or the server does not accept it
    MODEL = 77  # the model is not there or cannot be loaded
    CONFIG = 78  # configuration, paths or permissions are wrong
    INTERRUPTED = 130
    CLOSED_OUTPUT = 141
    TERMINATED = 143


class ExitError(Exception):
    """A failure that ends a command: one sentence for a person, and how to exit.

    `code` is what scripts see in `--json`: one of the server's error codes or one of ours.
    """

    def __init__(self, message: str, exit_code: Exit, code: str):
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        self.code = code


_BY_CODE: dict[str, Exit] = {
    "invalid_request": Exit.USAGE,
    "context_length_exceeded": Exit.USAGE,
    "empty_prompt": Exit.USAGE,
    "conflict": Exit.USAGE,
    "body_too_large": Exit.USAGE,
    "headers_too_large": Exit.USAGE,
    "unsupported_media_type": Exit.USAGE,
    "unauthorized": Exit.KEY,
    "forbidden": Exit.KEY,
    "not_found": Exit.NOT_FOUND,
    "gone": Exit.NOT_FOUND,
    "model_not_found": Exit.MODEL,
    "model_unavailable": Exit.MODEL,
    "model_loading": Exit.TRY_LATER,
    "server_overloaded": Exit.TRY_LATER,
    "queue_timeout": Exit.TRY_LATER,
    "server_stopping": Exit.TRY_LATER,
    "engine_failed": Exit.INTERNAL,
    "internal": Exit.INTERNAL,
    "not_saved": Exit.OUTPUT,
    "refused": Exit.REFUSED,
    "unreachable": Exit.UNREACHABLE,
    "not_running": Exit.UNREACHABLE,
    "bad_answer": Exit.UNREACHABLE,
    "bad_address": Exit.CONFIG,
    "cancelled": Exit.CANCELLED,
}


def for_code(code: str) -> Exit:
    """The exit code for an error's code; an unknown code (a newer server) is INTERNAL."""
    return _BY_CODE.get(code, Exit.INTERNAL)


def for_server(returncode: int) -> Exit:
    """The exit code that passes on how a server process ended while it started."""
    try:
        code = Exit(returncode)
    except ValueError:
        return Exit.UNREACHABLE
    return code if code not in (Exit.OK, Exit.INTERNAL) else Exit.UNREACHABLE
