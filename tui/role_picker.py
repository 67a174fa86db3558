"""The user's roles, each with a line about it; Enter takes one for the open conversation."""

from __future__ import annotations

from typing import Any, ClassVar

from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from hobnob.exits import ExitError
from hobnob.tui import roles
from hobnob.tui.clean import one_line
from hobnob.tui.key_bar import Hints, KeyBar
from hobnob.tui.line import Line
from hobnob.tui.notice import ClientError
from hobnob.tui.roles import BadRole, NoRole, Roles
from hobnob.tui.talk import Talk


class RolePicker(ModalScreen[str]):
    """Answers with the name of the one that was chosen, or with nothing."""

    AUTO_FOCUS = "Input"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss('')", "Close", id="roles.close"),
        Binding("down", "to_list", "The list", id="roles.list", show=False),
    ]

    key_hints: ClassVar[Hints] = (
        "Enter take it",
        "roles.list the list",
        "roles.close close",
        "app.help keys",
    )

    def __init__(self, found: Roles) -> None:
        super().__init__()
        self._roles = [(name, _about(found, name)) for name in found.names()]

    def compose(self) -> ComposeResult:
        with Vertical(id="search"):
            yield Input(placeholder="Roles", id="search-text")
            yield OptionList(id="hits", markup=False)
            yield Static(id="search-state", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self._show("")

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        self._show(event.value)

    def _show(self, part: str) -> None:
        wanted = part.strip().lower()
        shown = [one for one in self._roles if wanted in one[0].lower()]
        listed = self.query_one(OptionList)
        listed.clear_options()
        listed.add_options([Option(_row(name, about), id=name) for name, about in shown])
        if shown:
            listed.highlighted = 0
        self.query_one("#search-state", Static).update("" if shown else "There is no such role.")

    @on(Input.Submitted)
    def _enter(self, event: Input.Submitted) -> None:
        event.stop()
        listed = self.query_one(OptionList)
        if listed.highlighted is not None:
            self.dismiss(listed.get_option_at_index(listed.highlighted).id or "")

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(event.option_id or "")

    def action_to_list(self) -> None:
        self.query_one(OptionList).focus()


async def take_role(app: App[Any], talk: Talk, line: Line, name: str) -> bool:
    """Has the open conversation asked in the role of that name, or in one that is chosen from a
    list. Says what came of it; False: nothing changed. For a worker."""
    found = Roles.home()
    if not name and found.names():
        name = await app.push_screen_wait(RolePicker(found))
        if not name:
            return False
    try:
        role = found.read(name)
        await talk.tune(roles.tuned(talk.tuning, role))
    except (BadRole, NoRole, ClientError) as error:
        app.notify(error.message, severity="warning", markup=False)
        return False
    words = f"From the next message on: {role.name}. {await roles.other_model(line, role)}"
    app.notify(words.rstrip(), markup=False)
    return True


def _about(found: Roles, name: str) -> str:
    try:
        return found.read(name).line
    except ExitError as error:
        return error.message


def _row(name: str, about: str) -> Content:
    return Content.assemble((one_line(name), "bold"), ("   " + about, "$muted"))
