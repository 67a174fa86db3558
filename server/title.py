"""A conversation's title: the first words of its first message, or what a model wrote. Pure."""

from __future__ import annotations

import re
import unicodedata

MAX_TITLE_CHARACTERS = 60
SCANNED_CHARACTERS = 4_000
"""A title needs no more of the text than this."""

MOST_WORDS = 12
"""A model is asked for six; what has many more is no title."""

_THOUGHTS = re.compile(r"<(think|thinking|thought|reasoning)>.*?(?:</\1>|\Z)", re.S | re.I)
_END_OF_THOUGHTS = re.compile(r".*</(?:think|thinking|thought|reasoning)>", re.S | re.I)
_BEFORE = re.compile(r"(?:#{1,6}|[-*+>•]|\d{1,2}[.)])\s+")
_NAMES = r"(?:title|titel|titre|t[ií]tulo|titolo|标题|標題|タイトル)"
_LABEL = re.compile(rf"{_NAMES}\s*[:：]\s*", re.I)
_BOLD_LABEL = re.compile(rf"(\*\*|__){_NAMES}\s*(?:[:：]\s*\1|\1\s*[:：])\s*", re.I)
_MARKS = ("**", "__", "*", "_", "`")
_QUOTES = ('""', "''", "“”", "„“", "„”", "«»", "»«", "‘’", "‚‘", "「」", "『』", "《》")
_AROUND = [(one, one) for one in _MARKS] + [(pair[0], pair[1]) for pair in _QUOTES]

_ZWJ = "\u200d"


def title_from(text: str) -> str:
    """One line without control characters, of at most MAX_TITLE_CHARACTERS; empty for no words."""
    return _short(" ".join(_plain(text[:SCANNED_CHARACTERS]).split()))


def title_of_reply(text: str) -> str:
    """As `title_from`, of the first line that a model asked for a title wrote, without thoughts,
    marks and quotes around it; empty where that is no title."""
    said = _END_OF_THOUGHTS.sub("", _THOUGHTS.sub("", text[:SCANNED_CHARACTERS]))
    bare = (_bare(" ".join(_plain(line).split())) for line in said.splitlines())
    line = next(filter(None, bare), "")
    if len(line.split()) > MOST_WORDS or not any(one.isalnum() for one in line):
        return ""
    return _short(line)


def _bare(line: str) -> str:
    before = None
    while line != before:
        before = line
        for pattern in (_BEFORE, _LABEL, _BOLD_LABEL):
            if found := pattern.match(line):
                line = line[found.end() :]
        for opening, closing in _AROUND:
            line = _unwrapped(line, opening, closing).strip()
        if line.endswith((".", "。")) and not line.endswith(".."):
            line = line[:-1]
    return line


def _unwrapped(line: str, opening: str, closing: str) -> str:
    """Without these marks, where they are around all of it."""
    if len(line) < len(opening + closing) or not line.startswith(opening):
        return line
    inside = line[len(opening) : len(line) - len(closing)]
    if not line.endswith(closing) or opening in inside or closing in inside:
        return line
    return inside


def _short(line: str) -> str:
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
