"""Conversations as one page for a browser, which fetches nothing and runs nothing. Pure.

Replies are read as Markdown in which HTML is text; pictures are links, since looking at a page
must tell nobody that it is looked at. The page forbids itself the rest (its policy).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from pygments import highlight  # type: ignore[import-untyped]
from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]
from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
from pygments.util import ClassNotFound  # type: ignore[import-untyped]

from hobnob.tui.clean import one_line
from hobnob.tui.exchange import branches, heading
from hobnob.tui.moment import moment
from hobnob.tui.records import Message, Tree

HIGHLIGHTED_CHARS = 200_000
"""Longer code keeps one colour: some lexers take minutes for it."""

POLICY = "default-src 'none'; style-src 'unsafe-inline'"

_LOOKS = """
:root { color-scheme: light dark; --edge: #8884; --user: #8881; }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
h1.title { border-bottom: 1px solid var(--edge); margin-top: 3rem; }
.about, .who { opacity: .7; font-size: .875rem; }
.user { background: var(--user); border-radius: .5rem; padding: .1rem 1rem; }
.typed { white-space: pre-wrap; overflow-wrap: anywhere; }
pre { overflow-x: auto; border: 1px solid var(--edge); border-radius: .5rem; padding: .75rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { border: 1px solid var(--edge); padding: .25rem .75rem; }
blockquote { border-left: 3px solid var(--edge); margin-left: 0; padding-left: 1rem; }
"""
_DARK = "@media (prefers-color-scheme: dark) {\n%s\n}"


class WebPage:
    """The branches that are shown, or with `every` all of them, each message once."""

    def __init__(self, *, every: bool = False) -> None:
        self._every = every
        self._markdown = _reader()

    def begin(self) -> str:
        looks = f"{_LOOKS}{_code_looks('default')}{_DARK % _code_looks('monokai')}"
        return (
            '<!doctype html>\n<html><head><meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>Conversations</title>\n<style>{looks}</style></head>\n<body>\n"
        )

    def conversation(self, tree: Tree) -> str:
        one = tree.conversation
        title = escape(one_line(one.title) or one.id)
        parts = [f'<h1 class="title">{title}</h1>', f'<p class="about">{_about(tree)}</p>']
        if one.system:
            parts += ['<p class="who">System</p>', _typed(one.system)]
        for place, messages in branches(tree, every=self._every):
            parts += [] if place is None else [f"<h2>Another branch, {escape(place)}</h2>"]
            parts += [self._message(message) for message in messages]
        return "\n".join([*parts, ""])

    def end(self) -> str:
        return "</body></html>\n"

    def _message(self, one: Message) -> str:
        who = escape(heading(one, named=self._every))
        user = one.role == "user"
        body = _typed(one.text) if user else self._markdown.render(one.text)
        kind = "user" if user else "reply"
        return f'<section class="{kind}"><p class="who">{who}</p>\n{body}\n</section>'


def _about(tree: Tree) -> str:
    models = dict.fromkeys(message.model for message in tree.messages if message.model)
    when = moment(tree.conversation.created_at, UTC)
    dated = [f"{when:%Y-%m-%d %H:%M} UTC"] if when else []
    return escape(" · ".join([*dated, *map(one_line, models)]))


def _typed(text: str) -> str:
    """As its writer typed it."""
    return f'<div class="typed">{escape(text)}</div>'


def _code_looks(style: str) -> str:
    return str(HtmlFormatter(style=style).get_style_defs("pre code"))


def _reader() -> MarkdownIt:
    markdown = MarkdownIt("commonmark", {"html": False, "highlight": _highlighted})
    markdown.enable(["table", "strikethrough"])
    markdown.add_render_rule("image", _picture)
    markdown.add_render_rule("link_open", _link)
    return markdown


def _picture(
    self: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, env: EnvType
) -> str:
    token = tokens[at]
    words = self.renderInlineAsText(token.children or [], options, env)
    source = str(token.attrGet("src") or "")
    # Inside of a link there can be no other.
    inside = sum(before.nesting for before in tokens[:at] if before.tag == "a") > 0
    label = escape(words or source)
    return label if inside else f'<a href="{escape(source)}" rel="noreferrer">{label}</a>'


def _link(
    self: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, env: EnvType
) -> str:
    tokens[at].attrSet("rel", "noreferrer")
    return self.renderToken(tokens, at, options, env)


def _highlighted(code: str, name: str, _: Any) -> str:
    """Lines with colours, or "" for the plain ones."""
    if not name or len(code) > HIGHLIGHTED_CHARS:
        return ""
    try:
        lexer = get_lexer_by_name(name, stripnl=False)
    except ClassNotFound:
        return ""
    return str(highlight(code, lexer, HtmlFormatter(nowrap=True)))
