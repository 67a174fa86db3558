"""The colours of a finished code block, by Pygments; each line as styled spans.

A block is coloured once. A language that is not named is not guessed (guessing costs more than
it gives), and what would take long (huge blocks, huge lines) stays plain.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from hobnob.tui.inline import Span

if TYPE_CHECKING:
    from pygments.lexer import Lexer  # type: ignore[import-untyped]

MAX_CHARS = 100_000
MAX_LINE_CHARS = 2_000
CACHED_BLOCKS = 128

_STYLES = (
    ("Comment.Preproc", "code-name"),
    ("Comment", "code-comment"),
    ("Literal.String", "code-string"),
    ("Literal.Number", "code-number"),
    ("Keyword.Constant", "code-number"),
    ("Keyword.Type", "code-name"),
    ("Keyword", "code-keyword"),
    ("Operator.Word", "code-keyword"),
    ("Name.Function", "code-name"),
    ("Name.Class", "code-name"),
    ("Name.Decorator", "code-name"),
    ("Name.Tag", "code-keyword"),
    ("Name.Attribute", "code-name"),
    ("Generic.Inserted", "code-string"),
    ("Generic.Deleted", "code-deleted"),
    ("Generic.Heading", "code-keyword"),
)


def language(info: str) -> str:
    """The language that a fence's info string names: its first word, without decoration."""
    words = info.replace("{", " ").replace("}", " ").replace(",", " ").split()
    return words[0].lstrip(".").lower() if words else ""


@lru_cache(CACHED_BLOCKS)
def highlight(lines: tuple[str, ...], name: str) -> tuple[tuple[Span, ...], ...]:
    """One tuple of spans per line; joined they are the lines, character for character."""
    plain = tuple(((line, "codeblock"),) for line in lines)
    lexer = _lexer(name)
    if lexer is None or max(map(len, lines), default=0) > MAX_LINE_CHARS:
        return plain
    if sum(map(len, lines)) > MAX_CHARS:
        return plain
    out: list[list[Span]] = [[]]
    for token, text in lexer.get_tokens("\n".join(lines)):
        style = _style(str(token))
        first, *more = text.split("\n")
        if first:
            out[-1].append((first, style))
        for part in more:
            out.append([(part, style)] if part else [])
    coloured = tuple(tuple(line) for line in out)
    same = tuple("".join(text for text, _ in line) for line in coloured)
    return coloured if same == lines else plain


@lru_cache(256)
def _style(token: str) -> str:
    for prefix, style in _STYLES:
        if token.startswith(f"Token.{prefix}"):
            return f"codeblock {style}"
    return "codeblock"


@lru_cache(64)
def _lexer(name: str) -> Lexer | None:
    if not name or not name.isascii() or len(name) > 32:
        return None
    # Only a reply with code needs these.
    from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
    from pygments.util import ClassNotFound  # type: ignore[import-untyped]

    try:
        return get_lexer_by_name(name, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None
