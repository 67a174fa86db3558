"""The prompt of a one-shot question, from the arguments, stdin and files, as text to be sent."""

from __future__ import annotations

import codecs
import os
import select
from collections.abc import Callable, Sequence

from hobnob.exits import Exit, ExitError
from hobnob.tui.plain import is_slow

MAX_STDIN_BYTES = 64 * 1024 * 1024
WAIT_SECONDS = 2.0
"""Silence on stdin after which the user is told what we wait for."""

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class PromptError(ExitError):
    """There is no prompt, or it cannot be read."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Exit.USAGE, "bad_prompt")


def join(words: Sequence[str], data: str | None) -> str:
    """The data first, a blank line, then the question. A lone `-` stands for the data."""
    asked = " ".join(argument(word) for word in words)
    if asked.strip() == "-":
        asked = ""
    given = "" if data is None else data.rstrip("\r\n")
    prompt = "\n\n".join(part for part in (given, asked) if part.strip())
    if not prompt:
        raise PromptError("There is no prompt: give one as an argument or on stdin.")
    return prompt


def argument(word: str) -> str:
    """An argument as text. Raises PromptError when its bytes are not UTF-8."""
    try:
        return os.fsencode(word).decode("utf-8")
    except UnicodeDecodeError as error:
        raise PromptError(_not_text("An argument", error)) from None
    except UnicodeEncodeError:
        raise PromptError("An argument has a lone surrogate in it.") from None


def decode(data: bytes, what: str = "Stdin") -> str:
    """Bytes as text: UTF-8, or what their byte order mark says. Raises PromptError."""
    mark, encoding = next((one for one in _BOMS if data.startswith(one[0])), (b"", "utf-8"))
    try:
        return data[len(mark) :].decode(encoding)
    except UnicodeDecodeError as error:
        raise PromptError(_not_text(what, error, encoding, len(mark))) from None


def read_file(name: str) -> str:
    """All of a file as text, which may be a pipe. Raises PromptError."""
    try:
        with open(name, "rb") as file:
            data = file.read(MAX_STDIN_BYTES + 1)
    except OSError as error:
        raise PromptError(f"{name} cannot be read: {error.strerror}.") from None
    if len(data) > MAX_STDIN_BYTES:
        raise PromptError(f"{name} is larger than {MAX_STDIN_BYTES} bytes.")
    return decode(data, name)


def read_stdin(waiting: Callable[[str], None]) -> str | None:
    """All of stdin as text; None when it is a terminal. Raises PromptError."""
    if os.isatty(0):
        return None
    if is_slow(0) and not select.select([0], [], [], WAIT_SECONDS)[0]:
        waiting("Reading stdin to its end (give </dev/null if there is nothing to read)")
    chunks: list[bytes] = []
    size = 0
    while True:
        try:
            chunk = os.read(0, 1024 * 1024)
        except OSError as error:
            raise PromptError(f"Stdin cannot be read: {error.strerror}.") from None
        if not chunk:
            return decode(b"".join(chunks))
        chunks.append(chunk)
        size += len(chunk)
        if size > MAX_STDIN_BYTES:
            raise PromptError(f"Stdin is larger than {MAX_STDIN_BYTES} bytes.")


def _not_text(what: str, error: UnicodeDecodeError, encoding: str = "utf-8", start: int = 0) -> str:
    at = error.start
    byte = error.object[at]
    return f"{what} is not {encoding.upper()}: byte 0x{byte:02x} at position {at + start}."
