"""Reads a file with conversations, whatever tool wrote it: it is known by its content.

What cannot be read is an Unreadable with one sentence; what can is in memory as a whole, so there
is a bound to its size.
"""

from __future__ import annotations

import json
import stat
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from hobnob.tui.importing import (
    chatgpt,
    claude,
    llama_server,
    llm_logs,
    own,
    plain_messages,
)
from hobnob.tui.importing.values import Found, Reading, Unreadable

MAX_BYTES = 512 * 1024 * 1024
"""Of a file, or of the conversations in an archive."""

MAX_DATABASE_BYTES = 8 * 1024**3
"""Of a log in SQLite, which is not read as a whole."""

STDIN = Path("-")

_ZIP = b"PK\x03\x04"
_UNKNOWN = (
    "It is none of the files that can be imported: hobnob's JSON export, the exports of ChatGPT, "
    "Claude and llama-server, a logs.db of llm, or messages as a list or one a line."
)

Parse = Callable[[Any], Found]
_TOOLS: tuple[tuple[str, Callable[[Any], bool], Parse], ...] = (
    (chatgpt.TOOL, chatgpt.is_one, chatgpt.conversation),
    (claude.TOOL, claude.is_one, claude.conversation),
    (llama_server.TOOL, llama_server.is_one, llama_server.conversation),
    (plain_messages.TOOL, plain_messages.is_conversation, plain_messages.conversation),
)


def read(path: Path) -> Reading:
    """Raises Unreadable."""
    try:
        if path == STDIN:
            return _of_bytes(_all_of(sys.stdin.buffer))
        if not stat.S_ISREG(path.stat().st_mode):
            raise Unreadable("It is no file.")
        with open(path, "rb") as file:
            start = file.read(len(llm_logs.HEADER))
            file.seek(0)
            if start == llm_logs.HEADER:
                if path.stat().st_size > MAX_DATABASE_BYTES:
                    raise Unreadable(_too_large(MAX_DATABASE_BYTES))
                return llm_logs.read(path)
            if start.startswith(_ZIP):
                return _of_archive(file)
            return _of_bytes(_all_of(file))
    except OSError as error:
        raise Unreadable(f"It cannot be read: {error.strerror or error}.") from None


def _all_of(file: BinaryIO) -> bytes:
    data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise Unreadable(_too_large(MAX_BYTES))
    return data


def _too_large(limit: int) -> str:
    return f"It is larger than {limit // 2**20} MiB, the most that is read."


# ---- an archive ---------------------------------------------------------------------------------


def _of_archive(file: BinaryIO) -> Reading:
    """The conversations in a data export as it is downloaded, and nothing else that is in it."""
    try:
        with zipfile.ZipFile(file) as archive:
            names = [one for one in archive.infolist() if _has_conversations(one.filename)]
            if not names:
                raise Unreadable("It is an archive without a conversations.json.")
            readings = []
            left = MAX_BYTES
            for one in sorted(names, key=lambda one: one.filename):
                with archive.open(one) as inner:
                    data = inner.read(left + 1)  # what the archive says of sizes may be wrong
                left -= len(data)
                if left < 0:
                    raise Unreadable(_too_large(MAX_BYTES))
                readings.append(_of_bytes(data))
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError) as error:
        raise Unreadable(f"The archive cannot be read: {error}.") from None
    return _together(readings)


def _has_conversations(name: str) -> bool:
    """Large exports have several: conversations-000.json and so on."""
    last = name.rpartition("/")[2]
    return last.startswith("conversations") and last.endswith(".json")


def _together(readings: list[Reading]) -> Reading:
    whole = Reading(readings[0].tool, [])
    for one in readings:
        whole.found.extend(one.found)
        whole.unreadable.extend(one.unreadable)
        whole.left_out.update(one.left_out)
    whole.found.sort(key=lambda one: one.updated_at or 0)
    return whole


# ---- a text -------------------------------------------------------------------------------------


def _of_bytes(data: bytes) -> Reading:
    if not data.strip():
        raise Unreadable("It is empty.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unreadable("It is not a text in UTF-8.") from None
    del data
    first = text.lstrip()[:1]
    if first == "[":
        return _of_list(_Entries(text))
    if first != "{":
        raise Unreadable(_UNKNOWN)
    whole = _loaded(text)
    if whole is None:
        return _of_lines(text)
    return _of_object(whole)


def _loaded(text: str) -> Any:
    """None where there is more than one value. Raises Unreadable."""
    try:
        return json.loads(text)
    except RecursionError:
        raise Unreadable("It is nested too deeply.") from None
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            return None
        raise Unreadable(_not_json(error)) from None
    except ValueError as error:
        raise Unreadable(f"It is not valid JSON: {error}.") from None


def _not_json(error: json.JSONDecodeError) -> str:
    return f"It is not valid JSON, in line {error.lineno}: {error.msg}."


def _of_object(whole: Any) -> Reading:
    if own.is_ours(whole):
        return own.read(whole)
    for tool, is_one, parse in _TOOLS:
        if is_one(whole):
            return Reading(tool, [parse(whole)])
    if plain_messages.is_message(whole):
        return Reading(plain_messages.TOOL, [plain_messages.of_messages([whole])])
    listed = whole.get("conversations")
    if isinstance(listed, list):
        return _of_list(listed)
    raise Unreadable(_UNKNOWN)


def _of_list(entries: Iterable[Any]) -> Reading:
    """What the first entry is decides; entries of another kind are said."""
    tool, parse = "", None
    is_one: Callable[[Any], bool] = plain_messages.is_message
    messages: list[Any] = []
    found: list[Found] = []
    unreadable: list[str] = []
    for number, one in enumerate(entries, start=1):
        if not tool:
            tool, is_one, parse = _kind(one)
        if not is_one(one):
            unreadable.append(f"entry {number} is not what the others are")
        elif parse is None:
            messages.append(one)
        else:
            found.append(parse(one))
    if not tool:
        raise Unreadable("There are no conversations in it.")
    if messages:
        found.append(plain_messages.of_messages(messages))
    found.sort(key=lambda one: one.updated_at or 0)
    return Reading(tool, found, unreadable)


def _kind(one: Any) -> tuple[str, Callable[[Any], bool], Parse | None]:
    """Raises Unreadable. With no way to parse one they are the messages of one conversation."""
    for tool, is_one, parse in _TOOLS:
        if is_one(one):
            return tool, is_one, parse
    if plain_messages.is_list(one):
        return plain_messages.TOOL, plain_messages.is_list, plain_messages.of_messages
    if plain_messages.is_message(one):
        return plain_messages.TOOL, plain_messages.is_message, None
    raise Unreadable(_UNKNOWN)


def _of_lines(text: str) -> Reading:
    """JSON Lines: a conversation each, or the messages of one."""
    return _of_list(_lines(text))


def _lines(text: str) -> Iterator[Any]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield json.loads(line)
        except RecursionError:
            raise Unreadable(f"Line {number} is nested too deeply.") from None
        except ValueError:
            raise Unreadable(f"Line {number} is not valid JSON.") from None


class _Entries:
    """The entries of a list, decoded one after another: all at once they take several times the
    memory of the text. Raises Unreadable on the way."""

    _SPACE = " \t\r\n"

    def __init__(self, text: str) -> None:
        self._text = text

    def __iter__(self) -> Iterator[Any]:
        decoder = json.JSONDecoder()
        at = self._after(self._text.index("[") + 1)
        if self._text[at : at + 1] == "]":
            at = self._after(at + 1)
        else:
            while True:
                value, at = self._decoded(decoder, at)
                yield value
                at = self._after(at)
                sign = self._text[at : at + 1]
                at = self._after(at + 1)
                if sign == "]":
                    break
                if sign != ",":
                    raise Unreadable(self._wrong(at, "a comma or the list's end is missing"))
        if at < len(self._text):
            raise Unreadable(self._wrong(at, "something follows the list"))

    def _decoded(self, decoder: json.JSONDecoder, at: int) -> tuple[Any, int]:
        try:
            return decoder.raw_decode(self._text, at)
        except RecursionError:
            raise Unreadable("It is nested too deeply.") from None
        except json.JSONDecodeError as error:
            raise Unreadable(_not_json(error)) from None
        except ValueError as error:  # a number of thousands of digits
            raise Unreadable(f"It is not valid JSON: {error}.") from None

    def _after(self, at: int) -> int:
        while self._text[at : at + 1] and self._text[at] in self._SPACE:
            at += 1
        return at

    def _wrong(self, at: int, what: str) -> str:
        return f"It is not valid JSON, in line {self._text.count(chr(10), 0, at) + 1}: {what}."
