"""Search over messages: any text is a valid query, and all of its terms must occur.

Words go to the full-text index: whole words, whatever their case and Latin accents; the last one
may be a beginning of three letters or more; words in double quotes are a phrase. What that index
cannot find inside its words is looked for as a substring: terms of scripts written without spaces
(Chinese, Japanese, Thai, ...), emoji, and terms with signs such as `c++`. When the words find
nothing, all terms are looked for as substrings.
"""

from __future__ import annotations

import re
import sqlite3
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from hobnob.store import rows
from hobnob.store.values import Hit

MAX_QUERY_CHARS = 1_000
MAX_TERMS = 32
"""What is longer is cut: such a query is pasted text, and its beginning says enough."""

MIN_BEGINNING_CHARS = 3
"""Shorter words must be whole ones: nearly every message has a word that begins with `t`."""

MARK_ON = "\x02"
MARK_OFF = "\x03"
_SNIPPET_SIDE_CHARS = 60
_SNIPPET_MATCH_CHARS = 100

_HIT = """
    SELECT c.id AS conversation, c.title, m.id AS message, m.role, m.created_at, m.text
    FROM messages m JOIN conversations c ON c.n = m.conversation
"""

_TERM = re.compile(r'"([^"]*)"|([^\s"]+)')

_NO_SPACES = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u2e80-\u9fff\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f"  # Chinese, Japanese, Korean
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff]"
)


@dataclass(frozen=True, slots=True)
class Query:
    words: str  # an FTS5 expression; "" when no term is a word
    parts: tuple[str, ...]  # substrings that must occur too
    terms: tuple[str, ...]  # all of them, for the second try

    @classmethod
    def parse(cls, text: str) -> Query:
        text = rows.searchable(text[:MAX_QUERY_CHARS])
        found = [(a or b).strip() for a, b in _TERM.findall(text)]
        terms = tuple(term for term in found if term)[:MAX_TERMS]
        words = [term for term in terms if _is_word(term)]
        return cls(
            words=" ".join(f'"{word}"' for word in words) + _beginning(words),
            parts=tuple(term for term in terms if not _is_word(term)),
            terms=terms,
        )


def search(conn: sqlite3.Connection, owner: str, text: str, *, limit: int) -> list[Hit]:
    query = Query.parse(text)
    hits = _by_words(conn, owner, query, limit) if query.words else []
    if not hits and query.terms:
        hits = _by_parts(conn, owner, query.terms, limit)
    return hits


def conversations_where(conn: sqlite3.Connection, owner: str, text: str) -> tuple[str, list[str]]:
    """A condition on `conversations c` and its parameters: the title or a message matches."""
    query = Query.parse(text)
    title, title_values = _contains("c.title", query.terms)
    if not query.terms:
        return "1", []
    if query.words and _any_by_words(conn, owner, query):
        parts, values = _contains("f.text", query.parts)
        inside = f"SELECT rowid FROM messages_index f WHERE messages_index MATCH ? AND {parts}"
        values = [query.words, *values]
    else:
        parts, values = _contains("text", query.terms)
        inside = f"SELECT n FROM messages_searchable WHERE {parts}"
    return (
        f"(({title}) OR c.n IN (SELECT conversation FROM messages WHERE n IN ({inside})))",
        [*title_values, *values],
    )


def _beginning(words: Sequence[str]) -> str:
    """The last word is often still being typed: let it be a beginning, if not of too many words."""
    return "*" if words and len(words[-1]) >= MIN_BEGINNING_CHARS else ""


def _is_word(term: str) -> bool:
    """Whether the index can find the term: it has letters or digits, all of scripts with spaces,
    and no sign that makes it another word."""
    if _NO_SPACES.search(term):
        return False
    kinds = {unicodedata.category(char) for char in term}
    has_letters = any(kind[0] in "LN" for kind in kinds)
    return has_letters and "#" not in term and not any(kind[0] == "S" for kind in kinds)


def _by_words(conn: sqlite3.Connection, owner: str, query: Query, limit: int) -> list[Hit]:
    parts, values = _contains("m.text", query.parts)
    # Ranked first and read afterwards: a sort would carry the text of every match.
    best = conn.execute(
        "SELECT m.n FROM messages_index JOIN messages m ON m.n = messages_index.rowid"
        " JOIN conversations c ON c.n = m.conversation"
        f" WHERE messages_index MATCH ? AND c.owner = ? AND c.temporary = 0 AND {parts}"
        " ORDER BY bm25(messages_index), m.n DESC LIMIT ?",
        (query.words, owner, *values, limit),
    ).fetchall()
    found = (conn.execute(f"{_HIT} WHERE m.n = ?", row).fetchone() for row in best)
    return [_hit(row, query.terms) for row in found]


def _by_parts(conn: sqlite3.Connection, owner: str, terms: Sequence[str], limit: int) -> list[Hit]:
    parts, values = _contains("m.text", terms)
    found = conn.execute(
        f"{_HIT} WHERE c.owner = ? AND c.temporary = 0"
        f" AND m.status NOT IN ('queued', 'running') AND {parts}"
        " ORDER BY m.n DESC LIMIT ?",
        (owner, *values, limit),
    )
    return [_hit(row, terms) for row in found]


def _any_by_words(conn: sqlite3.Connection, owner: str, query: Query) -> bool:
    parts, values = _contains("m.text", query.parts)
    found = conn.execute(
        "SELECT 1 FROM messages_index JOIN messages m ON m.n = messages_index.rowid"
        " JOIN conversations c ON c.n = m.conversation"
        f" WHERE messages_index MATCH ? AND c.owner = ? AND c.temporary = 0 AND {parts} LIMIT 1",
        (query.words, owner, *values),
    )
    return found.fetchone() is not None


def _contains(column: str, terms: Sequence[str]) -> tuple[str, list[str]]:
    if not terms:
        return "1", []
    condition = " AND ".join(f"{column} LIKE ? ESCAPE '\\'" for _ in terms)
    escaped = (re.sub(r"([\\%_])", r"\\\1", term) for term in terms)
    return condition, [f"%{term}%" for term in escaped]


def _hit(row: sqlite3.Row, terms: Sequence[str]) -> Hit:
    return Hit(
        conversation=row["conversation"],
        title=row["title"],
        message=row["message"],
        role=row["role"],
        snippet=snippet(row["text"], terms),
        created_at=row["created_at"],
    )


def snippet(text: str, terms: Sequence[str]) -> str:
    """One line around the first match, every match in it marked."""
    plain = _without_accents(text)
    pattern = _pattern(terms, edge=r"\b")
    if (first := pattern.search(plain)) is None:  # they were found inside of words
        pattern = _pattern(terms, edge="")
        first = pattern.search(plain)
    at, end = first.span() if first else (0, 0)
    start = max(0, at - _SNIPPET_SIDE_CHARS)
    stop = min(end, at + _SNIPPET_MATCH_CHARS) + _SNIPPET_SIDE_CHARS
    pieces, done = ["…" if start else ""], start
    for match in pattern.finditer(plain, start, stop):
        pieces += text[done : match.start()], MARK_ON, text[match.start() : match.end()], MARK_OFF
        done = match.end()
    pieces += text[done:stop], "…" if stop < len(text) else ""
    return " ".join("".join(pieces).split())


def _pattern(terms: Sequence[str], *, edge: str) -> re.Pattern[str]:
    """What the index or LIKE found by these terms, in a text without accents."""
    found = []
    for term in map(_without_accents, terms):
        words = r"\W+".join(re.escape(word) for word in re.split(r"\W+", term) if word)
        found.append(edge + words if _is_word(term) else re.escape(term))
    return re.compile("|".join(found), re.IGNORECASE)


def _without_accents(text: str) -> str:
    """As long as the text, so that places in one are places in the other."""
    return text if text.isascii() else text.translate(_BARE)


class _Bare(dict[int, str]):
    """Characters without their accents, each worked out once: a message can have a million."""

    def __missing__(self, code: int) -> str:
        bare = unicodedata.normalize("NFD", chr(code))[0]
        if code < 0x10000:  # which bounds it
            self[code] = bare
        return bare


_BARE = _Bare()
