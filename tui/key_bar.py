"""The row at the foot of a screen that names keys: those that do something where the focus is, as
many as there is room for, each whole.

A widget, or what it stands in, says what is worth naming in its `key_hints`; which keys these are
comes from the bindings that are active, so a key that was remapped or does nothing is not named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget

from hobnob.tui.key_names import key_name

BETWEEN = "   "

Hints = Sequence[str]
"""Each is the id of a binding, or the name of a key that has none, and what that does. Several ids
with a / between them do it together. The last one leads to all others."""


class KeyBar(Widget):
    def __init__(self, hints: Hints = ()) -> None:
        """`hints`: those of before anything has the focus."""
        super().__init__(id="keys")
        self._hints = hints
        self._named: list[str] = []

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._bindings_changed)
        self._look()

    def render(self) -> Content:
        return Content(fitting(self._named, self.content_size.width))

    def _bindings_changed(self, _: Screen[Any]) -> None:
        if self.app.app_focus:  # else nothing has the focus until the window has it again
            self._look()

    def _look(self) -> None:
        focused = self.screen.focused
        if focused is not None:
            around = (getattr(node, "key_hints", None) for node in focused.ancestors_with_self)
            self._hints = next((hints for hints in around if hints), self._hints)
        found = named(self._hints, self._keys())
        if found != self._named:
            self._named = found
            self.refresh()

    def _keys(self) -> dict[str, str]:
        """The first key of each binding, by its id. Not Textual's `active_bindings`: an Input has
        keys to scroll by, which are passed on to what is around it when it has nothing to scroll,
        and in a dialog the keys that go before all others are left out there."""
        keys: dict[str, str] = {}
        for node, bindings in self.screen._binding_chain:
            for key, binding in bindings:
                if binding.id and self.app._check_action_state(binding.action, node):
                    keys.setdefault(binding.id, key)
        return keys


def named(hints: Hints, keys: Mapping[str, str]) -> list[str]:
    """The hints with the names of their keys; without those whose binding is not there now."""
    found = []
    for hint in hints:
        ids, _, words = hint.partition(" ")
        if "." not in ids:
            found.append(hint)
        elif all(id in keys for id in ids.split("/")):
            found.append(f"{' '.join(key_name(keys[id]) for id in ids.split('/'))} {words}")
    return found


def fitting(hints: Sequence[str], width: int) -> str:
    """The last one, which leads to all others, and from the first on what fits beside it."""
    if not hints:
        return ""
    *others, last = hints
    room = width - len(last)
    if room < 0:
        return ""
    shown = []
    for hint in others:
        if len(hint) + len(BETWEEN) <= room:
            room -= len(hint) + len(BETWEEN)
            shown.append(hint)
    return BETWEEN.join([*shown, last])
