"""What the client tells its user besides a run's events: news of the connection, and errors."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from hobnob import exits
from hobnob.exits import Exit, ExitError


class NoticeKind(Enum):
    STARTING = "starting"  # a local server is being started
    RECONNECTING = "reconnecting"  # no connection; tried again after `delay_s`
    RESTARTED = "restarted"  # a local server that had gone was started again
    CONNECTED = "connected"  # the stream goes on after a RECONNECTING
    BUSY = "busy"  # the server asked to come back after `delay_s`
    STORED = "stored"  # the log is gone; the rest comes from the stored message


@dataclass(frozen=True, slots=True)
class Notice:
    """`reason` is one plain sentence for a person, without a full stop."""

    kind: NoticeKind
    reason: str = ""
    delay_s: float = 0.0


def in_words(notice: Notice) -> str:
    """Where there is a line for it."""
    if notice.kind is NoticeKind.STARTING:
        return "starting the server…"
    if notice.kind is NoticeKind.RESTARTED:
        return "the server was restarted"
    return f"{notice.reason.rstrip('.')}; trying again"


class ClientError(ExitError):
    """What a request or a stream came to when trying again cannot help, or did not.

    `code` is one of the server's error codes or one of the client's own: unreachable,
    not_running, not_started, bad_answer.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        exit_code: Exit | None = None,
    ):
        super().__init__(message, exit_code or exits.for_code(code), code)
        self.status = status
        """The HTTP status, when there was one."""
        self.retry_after_s = retry_after_s
        """What the server asked for; not yet bounded."""
