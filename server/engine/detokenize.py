"""Token ids to text that may be shown: never half a character, never the start of a stop string.

Owns the bytes of an unfinished character and the text that a stop string may still claim. Pure:
the same ids give the same texts, however the bytes lie in the tokens, at a cost linear in them.
Bytes that are not UTF-8 become U+FFFD, exactly as Python's incremental "replace" decoder has it.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Node:
    """A state of the stop-string automaton: the longest end of the text that begins a stop."""

    depth: int
    next: dict[str, _Node] = field(default_factory=dict)
    fail: _Node | None = None
    stop: str | None = None  # the longest stop string that the text ends with here


def _automaton(stops: Sequence[str]) -> _Node:
    """Aho-Corasick: one look per character, whatever the number and length of the stops."""
    root = _Node(0)
    for stop in stops:
        node = root
        for char in stop:
            node = node.next.setdefault(char, _Node(node.depth + 1))
        node.stop = stop
    queue = deque([root])
    while queue:
        node = queue.popleft()
        for char, child in node.next.items():
            child.fail = root if node is root else _step(root, node.fail or root, char)
            child.stop = child.stop or child.fail.stop
            queue.append(child)
    return root


def _step(root: _Node, node: _Node, char: str) -> _Node:
    while char not in node.next:
        if node.fail is None:
            return root
        node = node.fail
    return node.next[char]


class Detokenizer:
    """One reply's text, token by token.

    The stop string that is complete first wins, so that the result does not depend on how the
    text came in pieces; of two complete at once, the one that began first.
    """

    def __init__(self, pieces: Callable[[int], bytes], stop: Sequence[str] = ()) -> None:
        if not all(stop):
            raise ValueError("a stop string is empty")
        self._pieces = pieces
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._root = self._node = _automaton(stop)
        self._held = ""  # its length is the depth of _node
        self._flushed = False
        self.finished: str | None = None
        """The stop string that was met; it and what follows it are in no text."""

    def push(self, token: int) -> str:
        """The text that became showable. A programmer error after the end."""
        assert self.finished is None and not self._flushed, "pushed after the end"
        return self._show(self._decoder.decode(self._pieces(token)))

    def flush(self) -> str:
        """The generation ended: what was held back, an unfinished character as U+FFFD."""
        if self.finished is not None or self._flushed:
            return ""
        self._flushed = True
        shown = self._show(self._decoder.decode(b"", final=True))
        if self.finished is None:
            shown += self._held
        self._held = ""
        return shown

    def _show(self, text: str) -> str:
        if not self._root.next:
            return text
        known = self._held + text
        at = len(self._held)
        for char in text:
            at += 1
            self._node = _step(self._root, self._node, char)
            if self._node.stop is not None:
                self.finished = self._node.stop
                self._held = ""
                return known[: at - len(self.finished)]
        shown = len(known) - self._node.depth
        self._held = known[shown:]
        return known[:shown]
