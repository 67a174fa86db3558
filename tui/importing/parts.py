"""The small things of which other tools' files are made, whatever they hold: values of the
expected type or nothing, times of all kinds, contents in parts. Pure; nothing here raises."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from hobnob.tui.folds import Fold
from hobnob.tui.importing.values import Block

FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999: what a calendar has."""

ID_CHARS = 20

IMAGE, SOUND, FILE, TOOL = "image", "sound", "file", "tool call"
OTHER = "part of an unknown kind"

_KINDS = {
    "image": IMAGE,
    "image_url": IMAGE,
    "input_image": IMAGE,
    "image_asset_pointer": IMAGE,
    "audio": SOUND,
    "input_audio": SOUND,
    "audio_asset_pointer": SOUND,
    "real_time_user_audio_video_asset_pointer": SOUND,
    "video_container_asset_pointer": "video",
    "file": FILE,
    "input_file": FILE,
    "document": FILE,
    "tool_use": TOOL,
    "tool_call": TOOL,
    "function_call": TOOL,
    "server_tool_use": TOOL,
    "tool_result": "tool result",
    "web_search_tool_result": "tool result",
    "function_call_output": "tool result",
}
_TEXTS = ("text", "input_text", "output_text", "audio_transcription")
_THOUGHTS = ("thinking", "reasoning", "reasoning_text", "summary_text")


def text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def fields(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def name(value: Any) -> str | None:
    """Of a model, say: on one line and not endless; None for none."""
    return " ".join(text(value).replace("\0", " ").split())[:200] or None


def milliseconds(value: Any) -> int | None:
    """As `seconds`, from a number of milliseconds."""
    return _in_calendar(value)


def seconds(value: Any) -> int | None:
    """UTC milliseconds of a number of seconds since 1970; None for what is no time."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return _in_calendar(value * 1000)
    except OverflowError:
        return None


def written(value: Any) -> int | None:
    """UTC milliseconds of a time as ISO 8601 has it, without a zone UTC; None for none."""
    try:
        when = datetime.fromisoformat(text(value)[:64].strip())
        when = when if when.tzinfo else when.replace(tzinfo=UTC)
        return _in_calendar(when.timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def any_time(value: Any) -> int | None:
    """Of a number or a text. A number beyond the year 5138 in seconds is one of milliseconds."""
    if isinstance(value, str):
        return written(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) >= 10**11:
        return milliseconds(value)
    return seconds(value)


def _in_calendar(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return round(value) if FIRST_MS <= value <= LAST_MS else None


def made_id(*names: str) -> str:
    """An id like the server's, always the same for the same names."""
    whole = json.dumps(names).encode("ascii")
    return hashlib.sha256(whole).hexdigest()[:ID_CHARS]


def joined(texts: Iterable[str]) -> str:
    """Pieces that a tool shows one below the other."""
    return "\n\n".join(piece for piece in texts if piece.strip())


def blocks(said: str, thought: str = "") -> list[Block]:
    before = [{"type": "reasoning", "text": thought}] if thought.strip() else []
    return [*before, *([{"type": "text", "text": said}] if said.strip() else [])]


def file_block(name: str, content: str) -> str:
    """The text of an attached file, as the app attaches one."""
    return Fold(content, " ".join(name.split()) or "file").attached()


def read_content(content: Any, left_out: Counter[str]) -> tuple[str, str]:
    """What was said and what was thought, of a text or of a list of parts as the APIs of OpenAI
    and Anthropic have them. What is neither is counted."""
    if isinstance(content, str):
        return content, ""
    said: list[str] = []
    thought: list[str] = []
    for part in items(content):
        if isinstance(part, str):
            said.append(part)
            continue
        kind = text(fields(part).get("type") or fields(part).get("content_type"))
        if kind in _TEXTS:
            said.append(text(part.get("text")))
        elif kind in _THOUGHTS:
            thought.append(text(part.get("thinking") or part.get("text")))
        elif kind == "redacted_thinking":
            left_out["hidden thought"] += 1
        elif kind == "refusal":
            said.append(text(part.get("refusal")))
        else:
            left_out[_KINDS.get(kind, OTHER)] += 1
    return joined(said), joined(thought)
