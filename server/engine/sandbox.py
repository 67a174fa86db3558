"""Runs a model file's chat template: Jinja as Hugging Face's `apply_chat_template` knows it.

A template comes with a model from anywhere, so it can reach nothing, change nothing, and is
bounded in time (CPU time of the thread), in output and in every value that it builds: Jinja's own
sandbox stops the first two, and lets one line eat the machine's memory. One thread at a time.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Container, Iterable, Mapping
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import do_indent
from jinja2.parser import Parser
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_SOURCE_CHARS = 1_000_000
MAX_CHARS = 32_000_000  # of any string that a template builds, and of its output
MAX_ITEMS = 1_000_000  # of any list, nested ones counted
MAX_INT_BITS = 4096
MAX_INDENT = 32
RENDER_SECONDS = 2.0
MAX_MESSAGE_CHARS = 300


class TemplateError(Exception):
    """No prompt can be made: one sentence for a person."""


class TextTooLong(TemplateError):
    """The messages cannot fit the window, whatever their tokens."""


class TemplateRefused(TemplateError):
    """The template itself refused the messages (`raise_exception`), or left one of them out."""


class TemplateBroken(TemplateError):
    """The template cannot be compiled: a syntax error, or a feature that we do not know."""


class _Limit(jinja2.TemplateRuntimeError):
    """A bound of this module."""


class _Raised(jinja2.TemplateRuntimeError):
    """`raise_exception` was called."""


# What a template may do wrong while it runs: any of the errors of ordinary expressions.
_FAULTS = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)

# Without those that make long texts from short ones (center, ljust, zfill, expandtabs, encode…).
_STR_METHODS = frozenset(
    "capitalize casefold count endswith find format index isalnum isalpha isascii isdecimal "
    "isdigit islower isnumeric isspace istitle isupper join lower lstrip partition removeprefix "
    "removesuffix replace rfind rindex rpartition rsplit rstrip split splitlines startswith strip "
    "swapcase title upper".split()
)
_FILTERS = frozenset(
    "abs attr bool capitalize count d default dictsort e escape first float forceescape groupby "
    "int items last length list lower map max min reject rejectattr reverse round safe select "
    "selectattr sort sum title trim unique upper wordcount".split()
)


class Program:
    """A compiled template."""

    def __init__(self, source: str, *, now: Callable[[], datetime] = datetime.now) -> None:
        """Raises TemplateBroken."""
        if len(source) > MAX_SOURCE_CHARS:
            raise TemplateBroken("The model's chat template is too long.")
        self._environment = _Environment(now)
        try:
            self._template = self._environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            where = f"line {error.lineno}: {error.message or 'syntax error'}"
            raise TemplateBroken(f"The model's chat template is broken: {_clean(where)}") from error
        except (RecursionError, OverflowError, MemoryError, SyntaxError, ValueError) as error:
            raise TemplateBroken("The model's chat template is nested too deeply.") from error

    def render(self, variables: Mapping[str, Any]) -> str:
        """Raises TemplateRefused when the template calls `raise_exception`, else TemplateError."""
        self._environment.start()
        parts: list[str] = []
        size = 0
        try:
            for part in self._template.generate(variables):
                size += len(part)
                if size > MAX_CHARS:
                    raise _Limit("it writes too much")
                parts.append(part)
        except _Raised as error:
            raise TemplateRefused(f"The model's chat template says: {_clean(error)}") from error
        except _FAULTS as error:
            raise TemplateError(f"The model's chat template failed: {_reason(error)}") from error
        return "".join(parts)


def _reason(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "it calls itself too often."
    if isinstance(error, MemoryError):
        return "it needs too much memory."
    return _clean(str(error) or type(error).__name__)


def _clean(text: object) -> str:
    """One line that ends with a full stop."""
    line = " ".join(re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", str(text)).split())
    line = line[:MAX_MESSAGE_CHARS]
    return line if line.endswith((".", "!", "?")) else line + "."


# ---- bounds -----------------------------------------------------------------------------------


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise _Limit("it builds too large a value")


def _check_sizes(operator: str, left: Any, right: Any) -> None:
    """For `+` and `*` of texts and lists."""
    for one, other in ((left, right), (right, left)):
        if not isinstance(one, str | list | tuple):
            continue
        limit = MAX_CHARS if isinstance(one, str) else MAX_ITEMS
        if operator == "+" and isinstance(other, str | list | tuple):
            _check_size(len(one) + len(other), limit)
        elif operator == "*" and isinstance(other, int):
            _check_size(len(one) * max(other, 0), limit)


def _check_ints(operator: str, left: int, right: int) -> None:
    bits = left.bit_length() + right.bit_length()
    if operator == "**":
        bits = left.bit_length() * max(right, 1)
    if bits > MAX_INT_BITS:
        raise _Limit("it computes too large a number")


def _check_format(text: str) -> None:
    """Refuses a width or precision that is long, or not written in the text itself."""
    if "*" in text or re.search(r"[0-9]{4}|\{[^{}]*:[^{}]*\{", text):
        raise _Limit("it uses a format with a large or computed width")


def _bounded(value: Any) -> Any:
    """The value, if all in it is within bounds; what is shared counts as often as it is met."""
    stack, items, chars = [value], 0, 0
    while stack:
        item = stack.pop()
        items += 1
        if isinstance(item, str):
            chars += len(item)
        elif isinstance(item, Mapping):
            stack.extend(item.keys())
            stack.extend(item.values())
        elif isinstance(item, list | tuple | set | frozenset):
            stack.extend(item)
        if items > MAX_ITEMS or chars > MAX_CHARS:
            raise _Limit("it builds too large a value")
    return value


def _text(value: Any) -> str:
    if isinstance(value, str | Undefined):
        return str(value)
    return str(_bounded(value))


def _concat(parts: Iterable[Any]) -> str:
    texts = [_text(part) for part in parts]
    _check_size(sum(map(len, texts)), MAX_CHARS)
    return "".join(texts)


# ---- the environment ----------------------------------------------------------------------------


class _Meter(NodeTransformer):
    """Puts the bounds into a parsed template, where Jinja's sandbox has no hook."""

    def __init__(self, filters: Container[str]) -> None:
        self._filters = filters

    def _ticking(self, node: Any) -> Any:
        self.generic_visit(node)
        call = nodes.Call(nodes.EnvironmentAttribute("tick"), [], [], None, None)
        node.body.insert(0, nodes.ExprStmt(call).set_lineno(node.lineno))
        return node

    visit_For = visit_Macro = visit_CallBlock = _ticking

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes), "_concat", node.lineno)

    def _bounded(self, node: Any) -> Any:
        self.generic_visit(node)
        if getattr(node, "ctx", "load") != "load":
            return node
        return _filtered(node, "_bounded", node.lineno)

    # Lists that share lists grow as 2^n in n steps, for whoever compares or prints them.
    visit_List = visit_Dict = visit_Tuple = _bounded

    def visit_Filter(self, node: nodes.Filter) -> nodes.Filter:
        """Jinja itself tells of a filter that it lacks only when the line runs."""
        if node.name not in self._filters:
            raise jinja2.TemplateAssertionError(f"no filter named {node.name!r}", node.lineno)
        self.generic_visit(node)
        return node


def _filtered(node: nodes.Expr, name: str, lineno: int) -> nodes.Filter:
    call = nodes.Filter(node, name, [], [], None, None)
    call.set_lineno(lineno)
    return call


class _Generation(Extension):
    """`{% generation %}…{% endgeneration %}` marks the reply for training; the text stays."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(lineno)


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(["+", "*", "**", "%"])
    concat = staticmethod(_concat)  # what blocks and macros join their output with

    def __init__(self, now: Callable[[], datetime]) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[loopcontrols, _Generation],
            finalize=self._finalized,
            autoescape=False,
        )
        self._deadline = float("inf")
        self._now = now
        plain = self.filters
        self.filters = {name: plain[name] for name in _FILTERS if name in plain}
        self.filters |= {
            "_bounded": _bounded,
            "_concat": _concat,
            "format": self._format,
            "indent": self._indent,
            "join": self._join,
            "replace": self._replace,
            "string": _text,
            "tojson": _tojson,
        }
        self.globals = {
            "range": self.globals["range"],  # the sandbox's, at most 100,000 long
            "namespace": self.globals["namespace"],
            "cycler": self.globals["cycler"],
            "joiner": self.globals["joiner"],
            "dict": lambda *args, **kwargs: _bounded(dict(*args, **kwargs)),
            "raise_exception": _raise_exception,
            "strftime_now": lambda form: self._now().strftime(form),
        }

    def start(self) -> None:
        """A rendering begins: its time is counted from here."""
        self._deadline = time.thread_time() + RENDER_SECONDS

    def tick(self) -> str:
        """Called by every turn of a loop and every call of a macro."""
        if time.thread_time() > self._deadline:
            raise _Limit("it takes too long")
        return ""

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        return super()._generate(_Meter(self.filters).visit(source), *args, **kwargs)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str) and attr not in _STR_METHODS:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "%" and isinstance(left, str):
            _check_format(left)
        elif isinstance(left, int) and isinstance(right, int):
            _check_ints(operator, left, right)
        else:
            _check_sizes(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str) and __obj.__name__ == "replace":
            return __self._replace(owner, *args)
        if isinstance(owner, str) and __obj.__name__ == "join":
            return __self._join(args[0], owner)
        return super().call(__context, __obj, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        _check_format(value.__self__)
        return wrapped

    # ---- filters ----

    def _finalized(self, value: Any) -> Any:
        return value if isinstance(value, str) else _bounded(value)

    def _join(self, value: Iterable[Any], d: str = "", attribute: str | None = None) -> str:
        if attribute is not None:
            value = [self.getitem(item, attribute) for item in value]
        texts = [_text(item) for item in value]
        _check_size(sum(map(len, texts)) + len(d) * len(texts), MAX_CHARS)
        return str(d).join(texts)

    def _replace(self, value: Any, old: str, new: str, count: int | None = None) -> str:
        text = _text(value)
        found = text.count(old) if count is None or count < 0 else count
        _check_size(len(text) + min(found, len(text) + 1) * len(new), MAX_CHARS)
        return text.replace(old, new, -1 if count is None else count)

    def _indent(
        self, value: Any, width: int | str = 4, first: bool = False, blank: bool = False
    ) -> str:
        text, margin = _text(value), len(width) if isinstance(width, str) else width
        _check_size(len(text) + (len(text.splitlines()) + 1) * margin, MAX_CHARS)
        return do_indent(text, width, first, blank)

    def _format(self, value: Any, *args: Any, **kwargs: Any) -> str:
        _check_format(text := _text(value))
        return text % (kwargs or args)


def _raise_exception(message: object = "") -> None:
    raise _Raised(str(message) or "the messages are not as it wants them")


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As Hugging Face has it: no HTML escapes, and other scripts are kept."""
    if (len(indent) if isinstance(indent, str) else indent or 0) > MAX_INDENT:
        raise _Limit(f"tojson indents by more than {MAX_INDENT}")
    return json.dumps(
        _bounded(value),
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
