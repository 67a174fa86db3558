"""The keys, part by part, what has the focus first. Made from the bindings: it cannot be wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Static

from hobnob.tui.key_bar import Hints, KeyBar
from hobnob.tui.key_names import key_name

Part = tuple[str, str, Sequence[BindingType]]
"""A title, a sentence about it, and its bindings."""


def nearest_first(parts: Sequence[tuple[type[Any], Part]], focused: Widget | None) -> list[Part]:
    """The parts that the focus is in come first, from the inside out; then the others."""
    chain = list(focused.ancestors_with_self) if focused is not None else []

    def distance(part: tuple[type[Any], Part]) -> int:
        return next((n for n, node in enumerate(chain) if isinstance(node, part[0])), len(chain))

    return [part for _, part in sorted(parts, key=distance)]


class HelpScreen(ModalScreen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1,q", "dismiss", "Close", id="help.close"),
    ]
    key_hints: ClassVar[Hints] = ("↑/↓ scroll", "help.close close")

    def __init__(self, parts: Sequence[Part], keymap: Mapping[str, str]) -> None:
        super().__init__()
        self._parts = parts
        self._keys = keymap

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help"):
            for title, about, bindings in self._parts:
                yield Static(Content.styled(title, "bold $primary"), classes="help-title")
                if about:
                    yield Static(about, classes="help-about", markup=False)
                yield Static(table(bindings, self._keys), markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one("#help").focus()


def table(bindings: Sequence[BindingType], keymap: Mapping[str, str]) -> Content:
    """One row for each key that has a name to be remapped by."""
    rows = []
    for binding in bindings:
        if isinstance(binding, Binding) and binding.id:
            keys = keymap.get(binding.id, binding.key)
            names = "  ".join(key_name(key) for key in keys.split(","))
            keys_row, what = (_wide(names, 31), "$accent"), _wide(binding.description, 27)
            rows.append(Content.assemble(keys_row, what, (binding.id, "$faint")))
    return Content("\n").join(rows)


def _wide(text: str, width: int) -> str:
    """So wide that what follows does not touch it, whatever its length."""
    return f"{text}  ".ljust(width)
