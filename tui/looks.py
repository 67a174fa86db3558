"""The looks that a row's style names stand for, as component classes of the screen.

The colours are in app.tcss; this module only knows the names. Textual works them out anew whenever
the looks of the widget that has them change, which for each message was half of what opening a
conversation cost.
"""

from __future__ import annotations

PREFIX = "message--"

NAMES = (
    "who",
    "you",
    "state",
    "note",
    "failure",
    "footer",
    "fold",
    "reasoning",
    "heading1",
    "heading2",
    "heading3",
    "strong",
    "em",
    "strike",
    "code",
    "math",
    "link",
    "url",
    "quote",
    "marker",
    "rule",
    "table-head",
    "codeblock",
    "code-label",
    "code-copy",
    "code-keyword",
    "code-string",
    "code-number",
    "code-comment",
    "code-name",
    "code-deleted",
    "found",
    "found-now",
)

COMPONENT_CLASSES = frozenset(PREFIX + name for name in NAMES)
