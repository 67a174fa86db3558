"""The Textual app: paints first, connects then, and leaves the terminal as it found it.

Owns the connection and what concerns the whole screen; the list of conversations is listing.py's.
A reply that is being written when the app ends goes on in the server.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path, PurePath
from typing import Any, ClassVar

from textual import events, on, work
from textual.app import ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.screen import Screen
from textual.theme import Theme
from textual.widgets import Static

from hobnob.tui import code_blocks, looks, themes
from hobnob.tui.chat import Chat
from hobnob.tui.commands import COMMANDS, command_of
from hobnob.tui.comparing import ComparingApp
from hobnob.tui.composer import Composer
from hobnob.tui.drafts import Drafts
from hobnob.tui.early import EarlyKeys
from hobnob.tui.frames import Framed
from hobnob.tui.help import HelpScreen
from hobnob.tui.help_parts import help_parts
from hobnob.tui.key_bar import KeyBar
from hobnob.tui.library import Library
from hobnob.tui.line import Connect, Line
from hobnob.tui.listing import ListingApp
from hobnob.tui.message import MessageView
from hobnob.tui.model_picker import ModelPicker
from hobnob.tui.model_watch import ModelState, watch
from hobnob.tui.notice import ClientError, Notice, NoticeKind
from hobnob.tui.panel import Panel
from hobnob.tui.prompts import Prompts
from hobnob.tui.role_picker import take_role
from hobnob.tui.screens import Chosen, SearchScreen
from hobnob.tui.settings_form import ConversationForm
from hobnob.tui.sidebar import Sidebar
from hobnob.tui.talk import Talk
from hobnob.tui.transcript import USER
from hobnob.tui.tuning import AS_USUAL

QUIT_AGAIN_SECONDS = 1.5
CLOSE_SECONDS = 1.0
LOW_ROWS = 10
"""Below this there is only the text and the input."""
NARROW_COLUMNS = 84
"""Below this the list of conversations is only shown when it is asked for."""
CROWDED_COLUMNS = 130
"""The same while the panel is open."""


class Desk(Framed, Screen[None]):
    """The screen under all others. What is typed at once is for the input, when there is one."""

    AUTO_FOCUS = "#composer"
    COMPONENT_CLASSES: ClassVar[set[str]] = set(looks.COMPONENT_CLASSES)


class HobnobApp(ListingApp, ComparingApp):
    CSS_PATH: ClassVar[str | list[str | PurePath] | None] = "app.tcss"
    CHAT: ClassVar[type[Chat]] = Chat
    RUN: ClassVar[dict[str, Any]] = {}
    """How it takes the terminal."""
    AGAIN: ClassVar[Sequence[str]] = ()
    """What the command that comes back needs."""
    TITLE = "hobnob"
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = "ctrl+p"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "quit", "Quit", id="app.quit", priority=True),
        Binding("ctrl+c", "copy_stop_or_quit", "Copy, stop or quit", id="app.interrupt"),
        Binding("ctrl+n", "new", "New conversation", id="app.new", priority=True),
        Binding("ctrl+s", "list", "Conversations", id="app.list", priority=True),
        Binding("f2", "panel", "What the server does", id="app.panel", priority=True),
        Binding("f3,ctrl+k", "search", "Search everything", id="app.search", priority=True),
        Binding("ctrl+r", "reconnect", "Connect again", id="app.reconnect"),
        Binding("f1", "help", "Keys", id="app.help", priority=True),
        Binding("ctrl+z", "suspend_process", "Back to the shell", id="app.suspend", priority=True),
    ]

    def __init__(
        self,
        connect: Connect,
        state_dir: Path,
        *,
        conversation: str | None = None,
        system: str | None = None,
        options: Mapping[str, Any] | None = None,
        theme: str = themes.DARK.name,
        keymap: Mapping[str, str] | None = None,
        problem: str = "",
        typed: str = "",
        vi: bool = False,
        own_themes: Sequence[Theme] = (),
        temporary: bool = False,
        url: str | None = None,
    ) -> None:
        # Without colours there are none; Textual would make greys of them.
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self._connect_with = connect
        self._conversation = conversation
        self._exits = AsyncExitStack()
        self._quit_asked = 0.0
        self._leaving = False
        self._early = EarlyKeys(typed)
        self.line = Line(url)
        self.talk = Talk(self.line, system=system, options=options)
        self.library = Library(self.line)
        self.talk.clear(temporary=temporary)
        self._drafts = Drafts(state_dir / "drafts", self._keeps, self._warn)
        self.prompts = Prompts(state_dir / "prompts.jsonl", self._keeps)
        self._vi = vi
        for one in (*themes.THEMES, *own_themes):
            self.register_theme(one)
        self.theme = theme if theme in self.available_themes else themes.DARK.name
        self._problem = problem
        self._keys = dict(keymap or {})
        self.set_keymap(self._keys)

    def get_default_screen(self) -> Screen[Any]:
        return Desk(id="_default")

    def compose(self) -> ComposeResult:
        with Horizontal(id="desk"):
            yield Sidebar()
            ours = self.talk, self._drafts, self.prompts, self._early
            yield self.CHAT(*ours, vi=self._vi, first=self._conversation)
            yield Panel(self.line, lambda: self.talk.live, lambda: self.connection_words)
        with Horizontal(id="statusbar"):
            yield KeyBar(self.CHAT.key_hints)
            yield Static("", id="connection", markup=False)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return themes.quiet_colours(self.current_theme)

    def on_mount(self) -> None:
        self.talk.on_gone(self.chat.deleted_elsewhere)
        # After `fg` the terminal has nothing of the screen; Textual draws what it thinks is new.
        self.app_resume_signal.subscribe(self, lambda _: self.screen.refresh())
        self.call_after_refresh(self._after_first_paint)

    def on_key(self, event: events.Key) -> None:
        """Only what nothing has the focus for comes here."""
        if self.focused is None:
            self._early.take(event)

    def _after_first_paint(self) -> None:
        if self._leaving:
            return
        if self._problem:
            self._warn(self._problem)
        self._connect()

    def _warn(self, words: str) -> None:
        self.notify(words, severity="warning", markup=False)

    # ---- connection ---------------------------------------------------------------------------

    @work(exclusive=True, group="connect")
    async def _connect(self) -> None:
        self.line.reset()
        self.say("connecting…")
        try:
            client = await self._exits.enter_async_context(self._connect_with(self._hear))
        except ClientError as error:
            self.line.fail(error)
            self.say("not connected")
            self.chat.say_trouble(f"{error.message}  Ctrl+R tries again.")
            return
        self.line.open(client)
        self.say("")
        self.chat.say_trouble("")
        self._watch_model()
        self.refresh_list()
        self.follow_changes()
        if self.chat.open_first():
            return
        if self.talk.live is not None and self.talk.id is not None:
            self.chat.open(self.talk.id)

    def _hear(self, notice: Notice) -> None:
        """What the client says while one of its calls waits."""
        if notice.kind is NoticeKind.CONNECTED:
            self.say("")
        elif notice.kind is NoticeKind.RESTARTED:
            self.say("")
            self.notify("The server was restarted.", timeout=4, markup=False)
            self._watch_model()
        elif notice.kind is NoticeKind.STARTING:
            self.say("starting the server…")
        else:
            self.say(f"{notice.reason} · reconnecting…")

    def action_reconnect(self) -> None:
        if self.line.client is None:
            self._connect()
        else:
            self.refresh_list()
            self.follow_changes()
            self._watch_model()
            if self.talk.id is not None:
                self.chat.open(self.talk.id)

    def connected_again(self) -> None:
        self._watch_model()

    @work(exclusive=True, group="model")
    async def _watch_model(self) -> None:
        async for state in watch(self.line):
            self._show_model(state)

    def _show_model(self, state: ModelState) -> None:
        self.chat.say_model(state.words, failed=state.failed, starter=state.starter)

    # ---- keys ---------------------------------------------------------------------------------

    def action_new(self) -> None:
        self.hide_overlaid_list()
        self.chat.new()

    def _new_temporary(self) -> None:
        self.hide_overlaid_list()
        self.chat.new(temporary=True)

    def _keeps(self) -> bool:
        return not self.talk.temporary

    @on(Chat.Changed)
    def _forget_left(self) -> None:
        if self.talk.has_left:
            self._forget()

    @work(exclusive=True, group="forget")
    async def _forget(self) -> None:
        try:
            await self.talk.forget()
        except ClientError as error:
            words = f"The temporary conversation is not deleted yet: {error.message}"
            self.notify(f"{words} The server does it by itself.", markup=False)

    def action_list(self) -> None:
        """Show and focus the list; a second press goes back."""
        if self.sidebar.rows.has_focus:
            self.hide_overlaid_list()
            self.chat.composer.focus()
        else:
            self.sidebar.add_class("asked")
            self.sidebar.rows.focus()

    def action_panel(self) -> None:
        for panel in self.screen_stack[0].query(Panel):  # there may be another screen over it
            panel.toggle()

    @on(Panel.Toggled)
    def _panel_toggled(self) -> None:
        self._fit(self.size.width, self.size.height)

    @work
    async def action_search(self) -> None:
        found: Chosen | None = await self.push_screen_wait(SearchScreen(self.line))
        if found is not None:
            self.chat.open(found.conversation, found.message)

    @work
    async def action_model(self) -> None:
        if await self.push_screen_wait(ModelPicker(self.line)):
            self.say("")
            self._watch_model()

    @work(exclusive=True, group="tune")
    async def action_tune(self, prompt_first: bool = False) -> None:
        """System prompt and sampling options of this conversation."""
        if self.talk.id is None and self.talk.entries:
            self.notify("A message is on its way. Try it again after that.", markup=False)
            return
        form = ConversationForm(self.talk, prompt_first=prompt_first)
        if await self.push_screen_wait(form):
            self.chat.tuned()
            words = f"From the next message on: {self.talk.tuning.words or AS_USUAL}"
            self.notify(words, timeout=4, markup=False)

    @work(exclusive=True, group="tune")
    async def action_role(self, name: str = "") -> None:
        """This conversation is asked in a role of the user's."""
        if self.talk.id is None and self.talk.entries:
            self.notify("A message is on its way. Try it again after that.", markup=False)
        elif await take_role(self, self.talk, self.line, name):
            self.chat.tuned()

    def action_help(self) -> None:
        """The keys; those of what has the focus come first."""
        if isinstance(self.screen, HelpScreen):
            self.screen.dismiss()  # the key that opened it
            return
        everywhere = [*ComparingApp.BINDINGS, *HobnobApp.BINDINGS]
        self.push_screen(HelpScreen(help_parts(self.focused, everywhere), self._keys))

    def action_copy_stop_or_quit(self) -> None:
        """Ctrl+C: the selection if there is one, else the reply that runs, else twice to quit."""
        if self.screen.get_selected_text():
            self.screen.action_copy_text()
        elif not self.chat.stop():
            self.ask_to_quit()

    def ask_to_quit(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._quit_asked < QUIT_AGAIN_SECONDS:
            self.end(0)
        else:
            self._quit_asked = now
            self.notify("Ctrl+C again quits.", timeout=QUIT_AGAIN_SECONDS, markup=False)

    @on(Composer.Leave)
    async def _leave(self) -> None:
        await self.action_quit()

    async def action_quit(self) -> None:
        self.end(0)

    def end(self, code: int) -> None:
        """Leave with what was typed kept: the keys before this one reach the input first."""
        self.chat.composer.call_later(self._end, code)

    def _end(self, code: int) -> None:
        self._leaving = True
        self.chat.leave()
        self.workers.cancel_all()  # none may look for a part of the screen that is gone
        self.leave_screen()
        self.exit(code, return_code=code)

    def leave_screen(self) -> None:
        """Before the terminal is given back."""

    @on(Chat.Command)
    async def _command(self, event: Chat.Command) -> None:
        await self.run_command(event.name)

    async def run_command(self, typed: str) -> None:
        """One of COMMANDS, with the word after it."""
        name, given = command_of(typed) or (typed, "")
        actions: dict[str, Callable[[], Any]] = {
            "/new": self.action_new,
            "/temporary": self._new_temporary,
            "/list": self.action_list,
            "/search": self.action_search,
            "/find": self.chat.action_find,
            "/regenerate": self.chat.regenerate_last,
            "/continue": lambda: self.chat.regenerate_last(going_on=True),
            "/compact": self.chat.compact,
            "/edit": self._edit_last,
            "/compare": self.action_compare,
            "/comparisons": self.action_comparisons,
            "/copy": self._copy_last,
            "/code": partial(self._copy_last_code, given),
            "/rename": self._rename_this,
            "/title": self._title_this,
            "/pin": self._pin_this,
            "/system": partial(self.action_tune, True),
            "/settings": self.action_tune,
            "/role": partial(self.action_role, given),
            "/theme": self.action_change_theme,
            "/model": self.action_model,
            "/status": self.action_panel,
            "/help": self.action_help,
        }
        if name == "/quit":
            await self.action_quit()
        else:
            actions[name]()

    def _edit_last(self) -> None:
        mine = [entry for entry in self.talk.entries if entry.role == USER and entry.id]
        if self.chat.busy:
            self.chat.say_busy()
        elif mine:
            self.chat.edit(mine[-1])

    def _rename_this(self) -> None:
        if self.talk.id is not None:
            self.rename(self.talk.id)

    def _title_this(self) -> None:
        if self.talk.id is not None:
            self.find_title(self.talk.id)
        else:
            self.notify("Nothing was sent here yet.", markup=False)

    def _pin_this(self) -> None:
        if self.talk.temporary:
            self.notify("A temporary conversation is in no list.", markup=False)
        elif self.talk.id is not None:
            self.pin(self.talk.id)
        else:
            self.notify("Nothing was sent here yet.", markup=False)

    def chat_commands(self) -> Iterable[SystemCommand]:
        for name, command in COMMANDS.items():
            about = "   ".join(filter(None, (command.about, name, command.key)))
            yield SystemCommand(command.title, about, partial(self.run_command, name))

    # ---- copying ------------------------------------------------------------------------------

    @on(MessageView.Wish)
    def _message_wish(self, event: MessageView.Wish) -> None:
        if event.what == "copy":
            self.copy(event.view.entry.text)
        elif event.what == "copy_code":
            self.copy_code_of(event.view.entry)

    @on(MessageView.CopyCode)
    def _code_clicked(self, event: MessageView.CopyCode) -> None:
        self.copy_code(event.view.entry.code_blocks(), event.number + 1)

    def _copy_last(self) -> None:
        if self.talk.entries:
            self.copy(self.talk.entries[-1].text)

    def _copy_last_code(self, number: str) -> None:
        blocks = code_blocks.of_last(self.talk.entries)
        self.copy_code(blocks, code_blocks.number_of(number))

    # ---- the editor ---------------------------------------------------------------------------

    @on(Composer.EditOutside)
    def _edit_outside(self, event: Composer.EditOutside) -> None:
        from hobnob.tui.editor import edit

        composer = event.composer
        text, trouble = None, ""
        with self.suspend():  # an exception would leave the app suspended
            try:
                text = edit(composer.full_text, os.environ)
            except (OSError, ValueError) as error:
                trouble = f"The editor could not be run: {error}"
        if trouble:
            self.notify(trouble, severity="error", markup=False)
        if text is not None:
            composer.put(text)
        self.refresh()

    # ---- the end ------------------------------------------------------------------------------

    async def on_unmount(self) -> None:
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                with suppress(ClientError):  # then the server sees that we have gone
                    await self.talk.end()
                await self.library.delete_all()
                await self._exits.aclose()
        except (TimeoutError, ClientError):
            return  # the process ends anyway, and the server notices

    def on_resize(self, event: events.Resize) -> None:
        """By the event's size: the app's own is still the one before."""
        self._fit(event.size.width, event.size.height)

    def _fit(self, width: int, height: int) -> None:
        self.set_class(width < NARROW_COLUMNS, "narrow")
        self.set_class(height < LOW_ROWS, "low")
        panels = self.screen_stack[0].query(Panel) if self.screen_stack else ()
        self.set_class(width < CROWDED_COLUMNS and any(p.display for p in panels), "crowded")
