"""The playground: one prompt against several columns, side by side, all of them at once.

Owns the screen, its keys and the order of things; the trial asks the server. Replies go on in
the server when the playground is left. Leaving keeps nothing unless a reply was kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from textual import events, on, work
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from hobnob.tui import compare, looks
from hobnob.tui.clean import clean
from hobnob.tui.column_form import ColumnForm
from hobnob.tui.column_view import ColumnView
from hobnob.tui.compare import FEWEST, LETTERS, MOST, Column
from hobnob.tui.completions import Completions
from hobnob.tui.composer import Composer
from hobnob.tui.frames import Framed
from hobnob.tui.key_bar import Hints, KeyBar
from hobnob.tui.message import MessageView
from hobnob.tui.notice import ClientError
from hobnob.tui.notices import Notices
from hobnob.tui.prompts import Prompts
from hobnob.tui.screens import AskScreen, one_line
from hobnob.tui.shell_notation import literal
from hobnob.tui.transcript import Entry
from hobnob.tui.trial import Trial
from hobnob.tui.wrap import shorten


class Playground(Framed, Screen[str | None]):
    """Dismissed with the conversation in which a reply was kept, or None."""

    AUTO_FOCUS = "#composer"
    COMPONENT_CLASSES: ClassVar[set[str]] = set(looks.COMPONENT_CLASSES)
    HELP = "One prompt, several columns. Enter asks those that have no reply, else all again."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop_or_leave", "Stop, or back", id="playground.stop"),
        Binding("ctrl+l", "leave", "Back to the chat", id="playground.leave"),
        Binding("ctrl+c", "interrupt", "Copy or stop", id="playground.interrupt"),
        Binding("pageup", "scroll_page(-1)", "Scroll up", id="playground.page_up", priority=True),
        Binding(
            "pagedown", "scroll_page(1)", "Scroll down", id="playground.page_down", priority=True
        ),
        Binding("alt+up", "to_column", "To the columns", id="playground.columns", priority=True),
        Binding("alt+down", "to_prompt", "To the prompt", id="playground.prompt", priority=True),
    ]
    key_hints: ClassVar[Hints] = (
        "Enter ask",
        "Tab columns",
        "composer.newline new line",
        "playground.stop stop, or back",
        "app.help keys",
    )

    def __init__(
        self, trial: Trial, prompts: Prompts, prompt: str, on_draft: Callable[[str], None]
    ) -> None:
        """`on_draft` hears what is in the input and was not asked yet."""
        super().__init__()
        self._trial = trial
        self._prompts = prompts
        self._prompt = prompt
        self._on_draft = on_draft
        self._current = 0
        self._first = 0
        self._keeping = False

    def compose(self) -> ComposeResult:
        with Horizontal(id="titlebar"):
            yield Static(id="title", markup=False)
            yield Static(id="model", markup=False)
        yield Static(id="tabs", markup=False)
        with Horizontal(id="columns"):
            for column in self._trial.columns:
                yield ColumnView(column)
        yield Static(id="hint", classes="empty", markup=False)
        yield Notices()
        completions = Completions(commands=False)
        yield completions
        yield Composer(self._prompts, completions)
        with Horizontal(id="statusbar"):
            yield KeyBar(self.key_hints)

    async def on_mount(self) -> None:
        self.composer.put(self._prompt)
        await self._show_all()
        for column in self._trial.columns:
            self._follow_if_live(column)

    # ---- what there is ------------------------------------------------------------------------

    @property
    def composer(self) -> Composer:
        return self.query_one(Composer)

    @property
    def views(self) -> list[ColumnView]:
        return list(self.query(ColumnView))

    def view_of(self, column: Column) -> ColumnView | None:
        return next((view for view in self.views if view.column is column), None)

    @property
    def current(self) -> ColumnView:
        views = self.views
        return views[min(self._current, len(views) - 1)]

    # ---- what is shown ------------------------------------------------------------------------

    async def _show_all(self) -> None:
        for letter, view in zip(LETTERS, self.views, strict=False):
            view.letter = letter
            await view.show()
        self._show_around()

    def _show_around(self) -> None:
        """The title, the names of all columns where they do not all fit, and which are shown."""
        trial = self._trial
        title = one_line(trial.title) or "New conversation"
        self.query_one("#title", Static).update(Content(f"Playground · {title}"))
        older = f"{trial.not_shown} older replies are not shown" if trial.not_shown else ""
        self.query_one("#model", Static).update(Content(older))
        views = self.views
        self._current = min(self._current, len(views) - 1)
        low, high = compare.window(len(views), self._current, self._first, self.size.width)
        self._first = low
        for number, view in enumerate(views):
            view.display = low <= number < high
        tabs = self.query_one("#tabs", Static)
        tabs.display = high - low < len(views)
        names = []
        room = (self.size.width - 4) // len(views) - len(" A   ")
        for number, view in enumerate(views):
            look = "bold reverse" if number == self._current else "bold"
            shown = low <= number < high
            name = f" {view.letter} {shorten(compare.label(view.column), room)} "
            names.append((name, look if shown else "$muted"))
        tabs.update(Content(" ").join([Content.assemble(name) for name in names]))

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self._show_around)

    def say(self, words: str) -> None:
        hint = self.query_one("#hint", Static)
        hint.update(Content(clean(words)))
        hint.set_class(not words, "empty")

    # ---- asking -------------------------------------------------------------------------------

    @on(Composer.Submitted)
    def _submitted(self, event: Composer.Submitted) -> None:
        event.stop()
        if not event.text.strip():
            return
        if self._trial.live:
            self.app.notify("Replies are being written. Esc stops them.", markup=False)
            return
        self._prompts.add(literal(event.text))
        self._ask(event.text, self._trial.wanted(event.text))

    def _ask(self, text: str, columns: list[Column]) -> None:
        self._trial.claim(columns)  # before the next key
        self._post(text, columns)

    @work(group="ask")
    async def _post(self, text: str, columns: list[Column]) -> None:
        self.say("")
        asking = asyncio.ensure_future(self._trial.ask(text, columns, self._told))
        await self._show_all()  # "sending…"
        await asking
        await self._show_all()
        self._tell_draft()

    def _told(self, column: Column) -> None:
        """A column was accepted or refused."""
        self._show_column(column)
        self._follow_if_live(column)

    @work
    async def _show_column(self, column: Column) -> None:
        view = self.view_of(column)
        if view is not None:
            await view.show()

    def _follow_if_live(self, column: Column) -> None:
        if column.reply is not None and column.reply.live and column.reply.run is not None:
            self._follow(column, column.reply)

    @work(group="follow")
    async def _follow(self, column: Column, reply: Entry) -> None:
        def changed(_: Entry) -> None:
            view = self.view_of(column)
            if view is not None and column.reply is reply:
                view.touch(reply)

        try:
            await self._trial.follow(reply, changed)
        except ClientError as error:  # no connection to begin with
            reply.fail(error.code, error.message)
            changed(reply)
        view = self.view_of(column)
        if view is not None and column.reply is reply:
            await view.show()
            view.flush()
        if not self._trial.live and not self.app.app_focus:
            self.app.bell()

    @on(Composer.Changed)
    def _typed(self, event: Composer.Changed) -> None:
        event.stop()
        self._tell_draft()

    def _tell_draft(self) -> None:
        text = self.composer.message
        self._on_draft("" if text == self._trial.text else text)

    @on(Composer.Leave)
    def _leave_by_key(self, event: Composer.Leave) -> None:
        event.stop()
        self.action_leave()

    # ---- stopping, leaving, moving ------------------------------------------------------------

    def action_stop_or_leave(self) -> None:
        """Esc: stop what is being written, else leave the column, else the playground."""
        if self._trial.live:
            self._stop()
        elif isinstance(self.focused, ColumnView):
            self.composer.focus()
        else:
            self.action_leave()

    def action_interrupt(self) -> None:
        if self.get_selected_text() or not self._trial.live:
            raise SkipAction  # the app copies, or quits at the second time
        self._stop()

    @work(group="stop")
    async def _stop(self) -> None:
        try:
            await self._trial.stop()
        except ClientError as error:
            self.say(f"Not stopped: {error.message}")

    def action_leave(self) -> None:
        if not self._keeping:
            self.dismiss(None)

    def action_to_column(self) -> None:
        self.current.focus()

    def action_to_prompt(self) -> None:
        self.composer.focus()

    def action_scroll_page(self, direction: int) -> None:
        self.current.action_scroll_page(direction)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        if isinstance(event.widget, ColumnView):
            self._current = self.views.index(event.widget)
            self._show_around()

    def _move(self, view: ColumnView, step: int) -> None:
        views = self.views
        at = (views.index(view) + step) % len(views)
        views[at].display = True  # or it could not take the focus
        views[at].focus()

    # ---- what is done with a column -----------------------------------------------------------

    @on(ColumnView.Wish)
    async def _wish(self, event: ColumnView.Wish) -> None:
        event.stop()
        view, what = event.view, event.what
        if what in ("before", "after"):
            self._move(view, -1 if what == "before" else 1)
        elif what == "leave":
            self.composer.focus()
        elif what in ("copy", "copy_code"):
            if view.message_view is not None:  # the app has the clipboard
                self.post_message(MessageView.Wish(view.message_view, what))
        elif what == "differ":
            self._differ(view)
        elif what == "export":
            self.export()
        elif what == "add":
            await self._add(view)
        elif what in ("keep", "keep_all"):
            self._keep(view.column, with_settings=what == "keep_all")
        elif view.column.live:
            self.app.notify("This reply is being written. Esc stops it.", markup=False)
        elif what == "edit":
            self._edit(view)
        elif what == "remove":
            await self._remove(view)
        elif what == "again":
            self._again(view.column)

    async def _add(self, view: ColumnView) -> None:
        """A column like this one, to be changed."""
        columns = self._trial.columns
        if len(columns) >= MOST:
            self.say(f"There are at most {MOST} columns.")
            return
        made = Column(view.column.instructions, dict(view.column.options))
        columns.append(made)
        await self.query_one("#columns").mount(ColumnView(made))
        self._current = len(columns) - 1
        await self._show_all()
        self.current.focus()

    async def _remove(self, view: ColumnView) -> None:
        """Its reply stays a version of the message."""
        columns = self._trial.columns
        if len(columns) <= FEWEST:
            self.say(f"There are at least {FEWEST} columns.")
            return
        columns.remove(view.column)
        await view.remove()
        for other in self.views:
            other.show_difference("", ())
        await self._show_all()
        self.current.focus()

    @work(group="edit")
    async def _edit(self, view: ColumnView) -> None:
        form = ColumnForm(view.letter, view.column, self._trial.system)
        settings = await self.app.push_screen_wait(form)
        if settings is not None:
            view.column.change(settings.instructions, settings.options)
            await self._show_all()

    def _again(self, column: Column) -> None:
        """Another reply with the same settings; where nothing was asked yet, the first one."""
        if self._trial.message is None:
            self.say("Nothing was asked yet.")
        else:
            self._ask(self._trial.text, [column])

    def _differ(self, view: ColumnView) -> None:
        """From the next of the other columns that have a reply; after the last, no more."""
        if not view.column.text:
            self.say("There is no reply to compare.")
            return
        others = [one for one in self.views if one is not view and one.column.text]
        letters = [one.letter for one in others]
        at = letters.index(view.against) + 1 if view.against in letters else 0
        if view.against and at >= len(others):
            view.show_difference("", ())
        elif others:
            self._show_difference(view, others[at])
        else:
            self.say("There is no other reply to compare it with.")

    @work(exclusive=True, group="differ")
    async def _show_difference(self, view: ColumnView, other: ColumnView) -> None:
        reply = view.column.reply
        texts = other.column.text, view.column.text
        stretches = await asyncio.to_thread(compare.difference, *texts)
        if view.is_attached and view.column.reply is reply:
            view.show_difference(other.letter, stretches)

    def _keep(self, column: Column, *, with_settings: bool) -> None:
        if column.reply is None or not column.reply.id:
            self.say("There is no reply to keep yet. Enter in the input asks.")
        elif not self._keeping:
            self._keeping = True
            self._keep_it(column, with_settings)

    @work(group="keep")
    async def _keep_it(self, column: Column, with_settings: bool) -> None:
        try:
            kept = await self._trial.keep(column, with_settings=with_settings)
        except ClientError as error:
            self.say(f"Not kept: {error.message}")
            return
        finally:
            self._keeping = False
        self.dismiss(kept)

    @work(group="export")
    async def export(self) -> None:
        """Ask where to, and write everything as one page."""
        if not any(column.text for column in self._trial.columns):
            self.say("There is nothing to write down yet.")
            return
        name = f"comparison-{(self._trial.message or 'new')[:8]}.md"
        chosen = await self.app.push_screen_wait(AskScreen("Write Markdown to", name))
        if not chosen:
            return
        page = compare.markdown(self._trial.title, self._trial.text, self._trial.columns)
        path = Path(chosen).expanduser()
        try:
            with open(path, "x", encoding="utf-8") as file:  # nothing is written over
                file.write(page)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            self.say(f"{one_line(str(path))} was not written: {why}.")
            return
        self.say(f"Written to {one_line(str(path.absolute()))}.")
