"""Rows to values and back: JSON columns, token ids as varints, text as it is searched.

Reading is lenient: a damaged JSON or token column empties that field and hides nothing else.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from typing import Any

_NOT_SEARCHABLE = str.maketrans({"\0": " ", "\x02": " ", "\x03": " "})


def new_id() -> str:
    """A public id: 80 random bits."""
    return secrets.token_hex(10)


def searchable(text: str) -> str:
    """The text for the index, where NUL would hide what follows and \\x02 \\x03 mark matches."""
    return text.translate(_NOT_SEARCHABLE)


def one_line(title: str) -> str:
    """A title without NUL, for the same reason."""
    return title.replace("\0", " ")


def text_of(blocks: Iterable[dict[str, Any]]) -> str:
    """The text blocks' text, joined."""
    return "".join(str(b.get("text", "")) for b in blocks if b.get("type") == "text")


# ---- JSON columns ----


def dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def dump_or_none(value: Any) -> str | None:
    return None if value is None else dump(value)


def load_object(column: str | None) -> dict[str, Any] | None:
    """None for NULL, and for what is no JSON object."""
    value = _load(column)
    return value if isinstance(value, dict) else None


def load_blocks(column: str, text: str) -> list[dict[str, Any]]:
    """The blocks, or the searchable text as one block where they cannot be read."""
    value = _load(column)
    if isinstance(value, list) and all(isinstance(block, dict) for block in value):
        return value
    return [{"type": "text", "text": text}]


def _load(column: str | None) -> Any:
    try:
        return None if column is None else json.loads(column)
    except ValueError:
        return None


# ---- token ids: LEB128, seven bits a byte, the lowest first ----


def pack(tokens: Iterable[int]) -> bytes:
    out = bytearray()
    for token in tokens:
        assert token >= 0, "token ids are not negative"
        while token > 0x7F:
            out.append(token & 0x7F | 0x80)
            token >>= 7
        out.append(token)
    return bytes(out)


def pack_or_none(tokens: list[int] | None) -> bytes | None:
    return pack(tokens) if tokens else None


def unpack(column: bytes | None) -> list[int]:
    """The ids; what follows a cut-off last one is not there."""
    tokens: list[int] = []
    token = shift = 0
    for byte in column or b"":
        if byte > 0x7F:
            token |= (byte & 0x7F) << shift
            shift += 7
        else:
            tokens.append(token | byte << shift)
            token = shift = 0
    return tokens
