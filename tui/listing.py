"""The part of the app that has the list of conversations: reading it, what is wished for in it,
and what others change while it is on the screen.

A change of another device comes through the feed. It moves rows and joins the open conversation;
it takes neither the focus nor the place nor what is typed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

from textual import on, work
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Static

from hobnob.server import wire
from hobnob.server.wire import ChangePayload
from hobnob.tui import words
from hobnob.tui.chat import Chat
from hobnob.tui.clean import one_line
from hobnob.tui.copying import CopyingApp
from hobnob.tui.key_names import key_name
from hobnob.tui.library import Library
from hobnob.tui.line import Line
from hobnob.tui.notice import ClientError, Notice, NoticeKind
from hobnob.tui.records import Conversation, build
from hobnob.tui.screens import AskScreen
from hobnob.tui.sidebar import ConversationList, Sidebar, title
from hobnob.tui.talk import Talk

FILTER_PAUSE_SECONDS = 0.12
SHOW_PAUSE_SECONDS = 0.05
"""Changes of others that come within it are drawn at once."""


class ListingApp(CopyingApp):
    line: Line
    talk: Talk
    library: Library
    _keys: Mapping[str, str]
    """Of bindings that have others than their own."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._show_timer: Timer | None = None
        self.connection_words = ""
        self._naming: set[str] = set()  # conversations that get a name from here just now

    @property
    def chat(self) -> Chat:
        return self.query_one(Chat)

    @property
    def sidebar(self) -> Sidebar:
        return self.query_one(Sidebar)

    def say(self, words: str) -> None:
        """The state of the connection, in words."""
        self.connection_words = words
        self.query_one("#connection", Static).update(Content(one_line(words)))

    # ---- reading ------------------------------------------------------------------------------

    @work(exclusive=True, group="list")
    async def refresh_list(self) -> None:
        await self._list_changed(self.library.refresh)

    @work(exclusive=True, group="list")
    async def _filter_list(self, query: str) -> None:
        await asyncio.sleep(FILTER_PAUSE_SECONDS)  # the next key cancels this
        self.library.query = query
        await self._list_changed(self.library.refresh)

    @work(exclusive=True, group="list")
    async def _more_of_list(self) -> None:
        await self._list_changed(self.library.more)

    async def _list_changed(self, load: Callable[[], Awaitable[None]]) -> None:
        try:
            await load()
        except ClientError as error:
            if error.code == "unauthorized":  # nothing will be answered: a line has no room for why
                self.chat.say_trouble(error.message)
            self.say("the key is not accepted" if error.code == "unauthorized" else error.message)
            return
        self._show_list()

    def _show_list(self) -> None:
        self._show_timer = None
        if not self.query(Sidebar):
            return  # the app is about to end
        nothing = "nothing found" if self.library.query else ""
        self.sidebar.show(self.library.shown, nothing=nothing)
        self.sidebar.mark(self.talk.id)

    @on(Sidebar.MoreWanted)
    def _more_wanted(self) -> None:
        if self.library.has_more:
            self._more_of_list()

    @on(Sidebar.Filtered)
    def _filtered(self, event: Sidebar.Filtered) -> None:
        if event.query != self.library.query:
            self._filter_list(event.query)

    @on(Sidebar.Opened)
    def _opened(self, event: Sidebar.Opened) -> None:
        self.hide_overlaid_list()
        self.chat.open(event.conversation)

    @on(Chat.Changed)
    def _chat_changed(self) -> None:
        self.sidebar.mark(self.talk.id)
        if self.line.client is not None:
            self.refresh_list()

    def hide_overlaid_list(self) -> None:
        self.sidebar.remove_class("asked")

    # ---- what others change -------------------------------------------------------------------

    @work(exclusive=True, group="feed")
    async def follow_changes(self) -> None:
        try:
            client = await self.line.get()
            async with aclosing(client.changes()) as items:
                async for item in items:
                    if isinstance(item, Notice):
                        self._hear_of_feed(item)
                    else:
                        await self._take_change(item)
        except ClientError:
            return  # an older server; or one that tells other calls what is wrong

    def _hear_of_feed(self, notice: Notice) -> None:
        if notice.kind is NoticeKind.CONNECTED:
            self.say("")
            self.connected_again()
        elif self.line.client is not None and self.line.client.local:
            then = (
                "the reply goes on when it is back"
                if self.talk.live is not None
                else "your next message starts the server"
            )
            self.say(f"{notice.reason} · {then}")
        else:
            self.say(f"{notice.reason} · reconnecting…")

    def connected_again(self) -> None:
        """Perhaps to another server: what is known of its model may be old."""
        raise NotImplementedError

    async def _take_change(self, change: ChangePayload) -> None:
        match change:
            case wire.Position():
                self.refresh_list()
                await self._look_at_open_one()
            case wire.ConversationChanged(conversation=fields):
                self._changed_elsewhere(build(Conversation, fields))
            case wire.ConversationDeleted(conversation=id):
                self.library.gone(id)
                self._show_list_soon()
                if id == self.talk.id:
                    self.chat.deleted_elsewhere()

    async def _look_at_open_one(self) -> None:
        """What became of it while nobody told us."""
        id = self.talk.id
        if id is None:
            return
        try:
            self._changed_elsewhere(await (await self.line.get()).conversation(id))
        except ClientError as error:
            if error.code == "not_found" and id == self.talk.id:
                self.chat.deleted_elsewhere()

    def _changed_elsewhere(self, one: Conversation) -> None:
        if self.library.changed(one):
            self._show_list_soon()
        else:
            self.refresh_list()
        before = self.talk.conversation
        if self.chat.changed_elsewhere(one) and before is not None and one.id not in self._naming:
            if before.title != one.title and not self._had_first_words(before):
                self.notify(f"Renamed elsewhere: {title(one)}", timeout=4, markup=False)

    def _had_first_words(self, before: Conversation) -> bool:
        """Nobody has renamed it: it had no name, or its first words, and the server has found
        another in its place."""
        first = self.talk.entries[0].text if self.talk.entries and not self.talk.earlier else ""
        return " ".join(first.split()).startswith(before.title.removesuffix("…"))

    def _show_list_soon(self) -> None:
        if self._show_timer is None:
            self._show_timer = self.set_timer(SHOW_PAUSE_SECONDS, self._show_list)

    # ---- what is wished for -------------------------------------------------------------------

    @on(ConversationList.Wish)
    def _list_wish(self, event: ConversationList.Wish) -> None:
        if event.what == "leave":
            self.hide_overlaid_list()
            self.chat.composer.focus()
        elif event.what == "filter":
            self.sidebar.query_one("#filter").focus()
        elif event.what == "undo":
            self._undo()
        elif event.conversation is not None and event.what == "delete":
            self._delete(event.conversation)
        elif event.conversation is not None and event.what == "pin":
            self.pin(event.conversation)
        elif event.conversation is not None:
            self.rename(event.conversation)

    def _delete(self, id: str) -> None:
        """Gone from the list at once, from the disk a little later: u takes it back."""
        self.library.delete_later(id)
        self._show_list()
        if id == self.talk.id:
            self.chat.new()
        self.sidebar.rows.focus()
        key = key_name(self._keys.get("list.undo", "u").partition(",")[0])
        seconds = self.library.UNDO_SECONDS
        self.notify(f"Deleted. {key} undoes it for {seconds:.0f} s.", markup=False)
        self.set_timer(self.library.UNDO_SECONDS, self._delete_due)

    def _undo(self) -> None:
        id = self.library.undo()
        self._show_list()
        if id is None:
            self.notify("There is nothing to undo.", markup=False)
        else:
            self.sidebar.choose(id)

    @work(group="delete")
    async def _delete_due(self) -> None:
        try:
            await self.library.delete_due()
        except ClientError as error:
            self.notify(f"Not deleted: {error.message}", severity="error", markup=False)
            self.refresh_list()

    @work
    async def rename(self, id: str) -> None:
        old = next((one.title for one in self.library.shown if one.id == id), "")
        new = await self.push_screen_wait(AskScreen("New name", one_line(old)))
        if not new:
            return
        self._naming.add(id)
        try:
            renamed = await (await self.line.get()).update_conversation(id, title=new)
        except ClientError as error:
            self.notify(f"Not renamed: {error.message}", severity="error", markup=False)
            return
        finally:
            self._naming.discard(id)
        if self.talk.conversation is not None and self.talk.id == id:
            self.talk.conversation = renamed
            self.chat.show_title()
        self.refresh_list()

    @work(exclusive=True, group="title")
    async def find_title(self, id: str) -> None:
        """By the model, which may take a while."""
        self._naming.add(id)
        try:
            found, titled = await (await self.line.get()).find_title(id)
        except ClientError as error:
            self.notify(f"Not renamed: {error.message}", severity="error", markup=False)
            return
        finally:
            self._naming.discard(id)
        if self.talk.conversation is not None and self.talk.id == id:
            self.talk.conversation = found
            self.chat.show_title()
        said = words.called(title(found), titled)
        self.notify(f"{said[:1].upper()}{said[1:]}", timeout=6, markup=False)
        self.refresh_list()

    @work(exclusive=True, group="pin")
    async def pin(self, id: str) -> None:
        """To the top of the list for good, or back among the others."""
        try:
            client = await self.line.get()
            pinned = not (await client.conversation(id)).pinned
            changed = await client.update_conversation(id, pinned=pinned)
        except ClientError as error:
            self.notify(f"Not pinned: {error.message}", severity="error", markup=False)
            return
        self.talk.adopt(changed)
        words = "Pinned" if pinned else "No longer pinned"
        self.notify(f"{words}: {title(changed)}", timeout=4, markup=False)
        self.refresh_list()
