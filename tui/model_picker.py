"""The models on the server's machine, with their size and whether they fit; Enter takes one.

To take another one is to start the local server again; the client says where that must not be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from hobnob.tui.clean import one_line
from hobnob.tui.key_bar import Hints, KeyBar
from hobnob.tui.line import Line
from hobnob.tui.notice import ClientError

_STYLES = {"fits": "$success", "part": "$warning", "tight": "$warning", "too_large": "$error"}
_VERDICTS = {"fits": "fits", "part": "fits in part", "tight": "just fits", "too_large": "too large"}


class ModelPicker(ModalScreen[bool]):
    """Answers whether another model answers from now on."""

    AUTO_FOCUS = "Input"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(False)", "Close", id="models.close"),
        Binding("down", "to_list", "The list", id="models.list", show=False),
    ]
    key_hints: ClassVar[Hints] = (
        "Enter take it",
        "models.list the list",
        "models.close close",
        "app.help keys",
    )

    def __init__(self, line: Line) -> None:
        super().__init__()
        self._line = line
        self._models: list[dict[str, Any]] = []

    def compose(self) -> ComposeResult:
        with Vertical(id="search"):
            yield Input(placeholder="Models on this machine", id="search-text")
            yield OptionList(id="hits", markup=False)
            yield Static("looking for models…", id="search-state", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self._look()

    @work(exclusive=True)
    async def _look(self) -> None:
        try:
            self._models = await (await self._line.get()).models()
        except ClientError as error:
            self._say(error.message)
            return
        self._show("")

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        if self._models:
            self._show(event.value)

    def _show(self, part: str) -> None:
        shown = matching(self._models, part)
        found = self.query_one(OptionList)
        found.clear_options()
        found.add_options([Option(row(one), id=str(one.get("id"))) for one in shown])
        if shown:
            current = [n for n, one in enumerate(shown) if one.get("loaded")]
            found.highlighted = current[0] if current else 0
        none = "There is no such model." if self._models else "There is no model on this machine."
        self._say("" if shown else none)

    def _say(self, words: str) -> None:
        self.query_one("#search-state", Static).update(Content(one_line(words)))

    @on(Input.Submitted)
    def _enter(self, event: Input.Submitted) -> None:
        event.stop()
        found = self.query_one(OptionList)
        if found.highlighted is not None:
            self._take(found.get_option_at_index(found.highlighted).id)

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._take(event.option_id)

    def _take(self, id: str | None) -> None:
        model = next((one for one in self._models if str(one.get("id")) == id), None)
        if model is None or id is None:
            return
        if model.get("problem"):
            self._say(f"It cannot be loaded: {model['problem']}")
        elif model.get("loaded"):
            self.dismiss(False)
        else:
            self._switch(id)

    @work(exclusive=True)
    async def _switch(self, id: str) -> None:
        self._say(f"starting the server with {id}…")
        try:
            await (await self._line.get()).choose_model(id)
        except ClientError as error:
            self._say(error.message)
            return
        self.dismiss(True)

    def action_to_list(self) -> None:
        self.query_one(OptionList).focus()


def matching(models: Sequence[dict[str, Any]], part: str) -> list[dict[str, Any]]:
    """Those with the part in their name."""
    wanted = part.strip().lower()
    return [one for one in models if wanted in str(one.get("id", "")).lower()]


def row(model: Mapping[str, Any]) -> Content:
    """Name and size, and below them whether it fits."""
    mark = "● " if model.get("loaded") else "  "
    size = model.get("size")
    facts = [f"{size / 1e9:.2f} GB"] if isinstance(size, int) else []
    facts.append(one_line(str(model.get("source") or "")))
    head = (mark + one_line(str(model.get("id", ""))), "bold")
    parts: list[tuple[str, str]] = [head, ("   " + "   ".join(filter(None, facts)), "$muted")]
    problem, fit = model.get("problem"), model.get("fit")
    if problem:
        parts.append((f"\n  cannot be loaded: {one_line(str(problem))}", "$error"))
    elif model.get("loaded"):
        parts.append(("\n  answers now", "$success"))
    elif isinstance(fit, Mapping):
        verdict = str(fit.get("verdict"))
        words = f"\n  {_VERDICTS.get(verdict, verdict)}: {one_line(str(fit.get('words', '')))}"
        parts.append((words, _STYLES.get(verdict, "$muted")))
    return Content.assemble(*parts)
