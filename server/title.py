"""A conversation's title from the first words of its first message. Pure."""

from __future__ import annotations

import unicodedata

MAX_TITLE_CHARACTERS = 60
SCANNED_CHARACTERS = 4_000
"""A title needs no more of the text than this."""

_ZWJ = "\u200d"


def title_from(text: str) -> str:
    """One line without control characters, of at most MAX_TITLE_CHARACTERS; empty for no words."""
    words = _plain(text[:SCANNED_CHARACTERS]).split()
    line = " ".join(words)
    if len(line) <= MAX_TITLE_CHARACTERS:
        return line
    limit = MAX_TITLE_CHARACTERS - 1  # the ellipsis is one
    space = line.rfind(" ", limit // 2, limit + 1)
    cut = space if space > 0 else _whole(line, limit)
    return line[:cut].rstrip() + "…"


def _plain(text: str) -> str:
    """Controls, format characters but the emoji joiner, and surrogates become spaces or nothing."""
    kept = []
    for character in text:
        category = unicodedata.category(character)
        if category in ("Cc", "Zl", "Zp", "Zs"):
            kept.append(" ")
        elif character == _ZWJ or category not in ("Cf", "Cs", "Co", "Cn"):
            kept.append(character)
    return "".join(kept)


def _whole(line: str, limit: int) -> int:
    """The last place at or before `limit` that does not split what is seen as one character."""
    cut = limit
    while cut > 1 and not _may_cut(line, cut):
        cut -= 1
    return cut if cut > 1 else limit


def _may_cut(line: str, at: int) -> bool:
    before, after = line[at - 1], line[at]
    if unicodedata.category(after) in ("Mn", "Mc", "Me") or _ZWJ in (before, after):
        return False
    if "\U0001f3fb" <= after <= "\U0001f3ff":  # skin tones
        return False
    if _is_flag_half(before) and _is_flag_half(after):
        start = at
        while start > 0 and _is_flag_half(line[start - 1]):
            start -= 1
        return (at - start) % 2 == 0
    return not ("\u1160" <= after <= "\u11ff")  # Hangul vowels and finals join what is before


def _is_flag_half(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"
