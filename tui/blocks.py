"""Markdown text to a flat list of leaf blocks, line by line.

Owns the block structure of a reply: paragraphs, headings, code, tables, rules and the quote and
list markers before them. A closed block never changes, so its rows can be kept; only the last
one is open. What a chunk costs does not depend on the text before it, and the blocks do not
depend on how the text was cut into chunks. Every character of the text is in a block, except
the markers that a block's kind or lead stands for; control characters are made visible.
Knows nothing of widths or colours.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from hobnob.tui.clean import clean

PARAGRAPH = "paragraph"
HEADING = "heading"
CODE = "code"
MATH = "math"
TABLE = "table"
RULE = "rule"

QUOTE_BAR = "▌ "
BULLETS = "•◦▪"
TAB_COLUMNS = 4
MAX_DEPTH = 24  # containers inside each other; deeper markers are shown as text

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)", re.DOTALL)
_HEADING = re.compile(r" {0,3}(#{1,6})(?=[ \t]|$)")
_RULE = re.compile(r" {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$")
_SETEXT = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_QUOTE = re.compile(r" {0,3}>")
_ITEM = re.compile(r"( {0,3})([-*+]|(\d{1,9})[.)])(?=[ \t]|$)")
_DELIMITER = re.compile(r"\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?$")
_MATH = re.compile(r" {0,3}(\$\$|\\\[)")
_MARKS = re.compile(r"[ \t>]{0,40}(?:[-=*_+#`~|$:]{1,40}|\d{1,9}[.)]?)[ \t]?")
_MATH_END = {"$$": "$$", "\\[": "\\]"}


@dataclass(frozen=True, slots=True)
class Block:
    """A leaf. `first` and `rest` stand before its first row and before the others."""

    kind: str
    lines: tuple[str, ...]
    first: str = ""
    rest: str = ""
    gap: bool = False  # an empty row above it
    level: int = 0  # of a heading
    info: str = ""  # of a code fence: what follows the opening marker
    quoted: bool = False

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@dataclass(frozen=True, slots=True)
class _Container:
    """A quote (width 0) or a list item whose content starts `width` columns in."""

    width: int
    lead: str  # what is shown before the rows of its content
    marker: str = ""  # of an item: shown instead of `lead` before its first row
    bullet: bool = False


@dataclass(slots=True)
class _Open:
    """The leaf that still grows."""

    kind: str
    lines: list[str] = field(default_factory=list)
    first: str = ""
    rest: str = ""
    gap: bool = False
    begins: bool = False  # nothing stands above it
    level: int = 0
    info: str = ""
    quoted: bool = False
    fence: str = ""  # the marker that opened a fence; empty for indented code
    indent: int = 0  # columns taken off each line of a fence
    blanks: int = 0  # empty lines at the end of indented code: its own only if more follows

    def freeze(self) -> Block:
        lines = self.lines[: len(self.lines) - self.blanks] if self.blanks else self.lines
        return Block(
            self.kind,
            tuple(lines),
            self.first,
            self.rest,
            self.gap,
            self.level,
            self.info,
            self.quoted,
        )


class Splitter:
    """Feed text, read `blocks` (closed, in order) and `tail()` (what is still open)."""

    def __init__(self, show: Callable[[str], str] = clean) -> None:
        """`show` makes a line harmless; `str` leaves it as it is, for a file or pipe."""
        self.blocks: list[Block] = []
        """Closed blocks. Only ever appended to."""
        self._show = show
        self._open: _Open | None = None
        self._stack: tuple[_Container, ...] = ()
        self._fresh: frozenset[int] = frozenset()  # depths whose marker was not shown yet
        self._blank = False  # an empty line came since the last block
        self._previous: str | None = None  # kind of the last block opened
        self._partial: list[str] = []
        self._cr = False

    def feed(self, text: str) -> None:
        """Add text; complete lines take effect, the rest waits."""
        if self._cr:
            text = "\r" + text
        self._cr = text.endswith("\r")
        if self._cr:
            text = text[:-1]
        *complete, last = text.replace("\r\n", "\n").split("\n")
        for line in complete:
            self._partial.append(line)
            whole = "".join(self._partial)
            self._partial.clear()
            self._line(self._show(whole))
        if last:
            self._partial.append(last)

    def tail(self) -> list[Block]:
        """The blocks after `blocks`, as they would be if the text ended here.

        A last line of nothing but marks is held back: it would flash as something that it isn't.
        """
        partial = "".join(self._partial)
        probe = self._probe()
        if partial and not _MARKS.fullmatch(partial):
            probe._line(self._show(partial))
        probe._unwind(0)
        return probe.blocks

    def close(self) -> None:
        """The text has ended: everything is in `blocks` now. Safe to call twice."""
        partial = "".join(self._partial) + ("\r" if self._cr else "")
        self._partial.clear()
        self._cr = False
        if partial:
            self._line(self._show(partial))
        self._unwind(0)

    @property
    def open_fence(self) -> str:
        """What closes the code block that would go on over whatever text came next; "" if none.

        One inside a list or a quote ends with it.
        """
        leaf = self._open
        return leaf.fence if leaf is not None and leaf.kind == CODE and not self._stack else ""

    def _probe(self) -> Splitter:
        """A copy that may be thrown away; its `blocks` start empty."""
        copy = Splitter(self._show)
        copy._stack, copy._fresh = self._stack, self._fresh
        copy._blank, copy._previous = self._blank, self._previous
        if self._open is not None:
            copy._open = replace(self._open, lines=self._open.lines.copy())
        return copy

    # ---- one line -----------------------------------------------------------------------------

    def _line(self, line: str) -> None:
        rest, depth = self._match(line)
        whole = depth == len(self._stack)
        leaf = self._open
        if leaf is not None and leaf.kind in (CODE, MATH) and whole and self._literal(leaf, rest):
            return
        rest, opened = self._containers(rest, depth)
        if opened:
            leaf = None
        if not rest.strip():
            self._empty(depth, opened)
            return
        if not (opened or whole):
            if leaf is not None and leaf.kind == PARAGRAPH and not self._starts_leaf(rest):
                leaf.lines.append(rest.lstrip(" \t"))  # lazy continuation
                return
            self._unwind(depth)
            leaf = None
        if self._open is None or not self._continues(self._open, rest):
            self._start_leaf(rest)

    def _match(self, line: str) -> tuple[str, int]:
        """Strip the markers of the open containers; how many of them the line belongs to."""
        rest = line
        for depth, container in enumerate(self._stack):
            rest = _detab(rest)
            if container.width == 0:
                found = _QUOTE.match(rest)
                if found is None:
                    return rest, depth
                rest = rest[found.end() :]
                rest = rest[1:] if rest[:1] in (" ", "\t") else rest
            elif not rest.strip():
                rest = ""
            elif _indent(rest) >= container.width:
                rest = rest[container.width :]
            else:
                return rest, depth
        return rest, len(self._stack)

    def _literal(self, leaf: _Open, rest: str) -> bool:
        """Take the line into open code or math. False: the line is not part of it."""
        if leaf.kind == MATH:
            if not rest.strip():
                return False  # no formula holds an empty line; most likely it was not one
            leaf.lines.append(rest)
            if rest.rstrip().endswith(_MATH_END[leaf.fence]):
                self._close()
            return True
        if leaf.fence:
            end = _FENCE.match(rest)
            if end and end[1][0] == leaf.fence[0] and len(end[1]) >= len(leaf.fence):
                if not end[2].strip():
                    self._close()
                    return True
            leaf.lines.append(_outdent(rest, leaf.indent))
            return True
        if not rest.strip():
            leaf.lines.append(_outdent(_detab(rest), 4))
            leaf.blanks += 1
            return True
        rest = _detab(rest)
        if _indent(rest) < 4:
            return False
        leaf.lines.append(rest[4:])
        leaf.blanks = 0
        return True

    def _containers(self, rest: str, depth: int) -> tuple[str, bool]:
        """Open the quotes and items that start on this line."""
        opened = False
        while len(self._stack) < MAX_DEPTH or depth < MAX_DEPTH:
            rest = _detab(rest)
            here = depth == len(self._stack)
            in_paragraph = self._open is not None and self._open.kind == PARAGRAPH and here
            if _indent(rest) >= 4 and not opened:
                break
            if found := _QUOTE.match(rest):
                rest = rest[found.end() :]
                rest = rest[1:] if rest[:1] in (" ", "\t") else rest
                container = _Container(0, QUOTE_BAR)
            elif (item := _ITEM.match(rest)) and not _RULE.match(rest):
                if in_paragraph and not opened and not _interrupts(item, rest):
                    break
                container, rest = self._item(item, rest, depth)
            else:
                break
            if not opened:
                self._unwind(depth)
            opened = True
            self._stack += (container,)
            depth = len(self._stack)
            if container.width:
                self._fresh |= {depth - 1}
        return rest, opened

    def _item(self, found: re.Match[str], rest: str, depth: int) -> tuple[_Container, str]:
        after = _detab(rest[found.end() :])
        space = _indent(after)
        if not after.strip() or space > 4:
            space = 1
        width = found.end() + space
        if found[3] is None:
            level = sum(c.bullet for c in self._stack[:depth])
            marker = BULLETS[level % len(BULLETS)] + " "
        else:
            marker = found[2] + " "
        container = _Container(width, " " * len(marker), marker, bullet=found[3] is None)
        return container, after[min(space, len(after)) :]

    def _empty(self, depth: int, opened: bool) -> None:
        """An empty line: it ends a paragraph, and a quote that it is not marked for."""
        if opened:
            return  # an item or quote whose text may follow on the next line
        for at in range(depth, len(self._stack)):
            if self._stack[at].width == 0:
                self._unwind(at)
                break
        if self._open is not None and self._open.kind != CODE:
            self._close()
        self._blank = True

    def _starts_leaf(self, rest: str) -> bool:
        """Whether the line begins a block of its own even right after a paragraph."""
        return bool(
            _FENCE.match(rest)
            and _opens_fence(rest)
            or _HEADING.match(rest)
            or _RULE.match(rest)
            or _MATH.match(rest)
        )

    def _continues(self, leaf: _Open, rest: str) -> bool:
        """Add the line to the open leaf. False: it begins another one."""
        if leaf.kind == TABLE:
            if "|" in rest and not self._starts_leaf(rest):
                leaf.lines.append(rest)
                return True
            return False
        if leaf.kind != PARAGRAPH:
            return False
        if found := _SETEXT.match(rest):
            if leaf.lines:
                self._turn(leaf, HEADING)
                leaf.level = 1 if found[1][0] == "=" else 2
                self._close()
                return True
        if self._starts_leaf(rest):
            return False
        if len(leaf.lines) == 1 and _is_table(leaf.lines[0], rest.strip()):
            self._turn(leaf, TABLE)
            leaf.lines.append(rest)
            return True
        leaf.lines.append(rest.lstrip(" \t"))
        return True

    def _start_leaf(self, rest: str) -> None:
        if _indent(_detab(rest)) >= 4:
            self._begin(CODE).lines.append(_detab(rest)[4:])
        elif (found := _FENCE.match(rest)) and _opens_fence(rest):
            leaf = self._begin(CODE)
            leaf.fence, leaf.info, leaf.indent = found[1], found[2].strip(), _indent(rest)
        elif found := _HEADING.match(rest):
            leaf = self._begin(HEADING)
            leaf.level = len(found[1])
            leaf.lines.append(_heading_text(rest[found.end() :]))
            self._close()
        elif _RULE.match(rest):
            self._begin(RULE).lines.append(rest.strip())
            self._close()
        elif found := _MATH.match(rest):
            self._start_math(found[1], rest)
        else:
            self._begin(PARAGRAPH).lines.append(rest.lstrip(" \t"))

    def _start_math(self, marker: str, rest: str) -> None:
        end = _MATH_END[marker]
        body = rest.strip()[len(marker) :]
        if end in body and not body.endswith(end):
            self._begin(PARAGRAPH).lines.append(rest.lstrip(" \t"))  # a formula, then words
            return
        leaf = self._begin(MATH)
        leaf.fence = marker
        leaf.lines.append(rest.strip())
        if body.endswith(end):
            self._close()

    # ---- opening and closing ------------------------------------------------------------------

    def _begin(self, kind: str) -> _Open:
        self._close()
        first, rest = self._lead()
        leaf = _Open(kind, [], first, rest, self._gap(kind), begins=self._previous is None)
        leaf.quoted = any(c.width == 0 for c in self._stack)
        self._fresh = frozenset()
        self._blank = False
        self._previous = kind
        self._open = leaf
        return leaf

    def _turn(self, leaf: _Open, kind: str) -> None:
        """The second line showed that the paragraph was something else."""
        leaf.kind = self._previous = kind
        leaf.gap = not leaf.begins

    def _gap(self, kind: str) -> bool:
        if self._previous is None:
            return False
        boxes = (CODE, TABLE)
        return self._blank or kind in (*boxes, HEADING) or self._previous in boxes

    def _lead(self) -> tuple[str, str]:
        first = "".join(
            c.marker if at in self._fresh else c.lead for at, c in enumerate(self._stack)
        )
        return first, "".join(c.lead for c in self._stack)

    def _close(self) -> None:
        if self._open is not None:
            leaf, self._open = self._open, None
            if leaf.blanks:
                self._blank = True
            self.blocks.append(leaf.freeze())

    def _unwind(self, depth: int) -> None:
        """Leave every container from `depth` on."""
        self._close()
        if any(at >= depth for at in self._fresh):
            self._begin(PARAGRAPH)  # an item without content still shows its marker
            self._close()
        self._stack = self._stack[:depth]


def split(text: str) -> list[Block]:
    """All blocks of a whole text."""
    splitter = Splitter()
    splitter.feed(text)
    splitter.close()
    return splitter.blocks


def cells(row: str) -> list[str]:
    """The cells of a table row; a bar inside a code span or after a backslash is text."""
    out, cell, ticks, at = [], [], 0, 0
    row = row.strip().removeprefix("|")
    last_tick = row.rfind("`")
    while at < len(row):
        char = row[at]
        if char == "\\" and row[at + 1 : at + 2] == "|":
            cell.append("|")
            at += 2
            continue
        if char == "`":
            ticks ^= 1
        if char == "|" and not (ticks and at < last_tick):
            out.append("".join(cell).strip())
            cell = []
        else:
            cell.append(char)
        at += 1
    if cell and "".join(cell).strip():
        out.append("".join(cell).strip())
    return out


def alignments(delimiter: str) -> list[str]:
    """left, right or center for each column of a table."""
    names = {(True, True): "center", (False, True): "right"}
    found = [(cell.startswith(":"), cell.endswith(":")) for cell in cells(delimiter)]
    return [names.get(pair, "left") for pair in found]


def _heading_text(rest: str) -> str:
    """Without the optional closing marks."""
    text = rest.strip(" \t")
    bare = text.rstrip("#")
    return bare.rstrip(" \t") if bare[-1:] in ("", " ", "\t") else text


def _is_table(header: str, delimiter: str) -> bool:
    if "|" not in header or not _DELIMITER.match(delimiter):
        return False
    return len(cells(header)) == len(cells(delimiter))


def _interrupts(item: re.Match[str], rest: str) -> bool:
    """Whether a list may begin right after a paragraph's line: "1986. was" is no list."""
    return bool(rest[item.end() :].strip()) and item[3] in (None, "1")


def _opens_fence(rest: str) -> bool:
    found = _FENCE.match(rest)
    return found is not None and not (found[1][0] == "`" and "`" in found[2])


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _outdent(line: str, columns: int) -> str:
    return line[min(columns, _indent(line)) :]


def _detab(line: str) -> str:
    """Tabs before the text become spaces."""
    if "\t" not in line[: len(line) - len(line.lstrip(" \t"))]:
        return line
    body = line.lstrip(" \t")
    return line[: len(line) - len(body)].expandtabs(TAB_COLUMNS) + body
