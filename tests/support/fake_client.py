"""A client that answers from memory, and whose streams a test writes event by event."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from hobnob.server import wire
from hobnob.server.wire import ChangePayload, Event
from hobnob.tui.notice import ClientError, Notice
from hobnob.tui.records import (
    Branch,
    Comparison,
    Conversation,
    Hit,
    Message,
    Plan,
    Replies,
    Run,
    Turn,
)

NOW_MS = 1_760_000_000_000


class Script:
    """The stream of one run. A test puts items in; `finish` ends it."""

    def __init__(self) -> None:
        self.items: list[Event | Notice | ClientError] = []
        self.readers = 0
        self._news = asyncio.Event()
        self._seq = 0

    def put(self, item: wire.Payload | Notice | ClientError) -> None:
        if isinstance(item, Notice | ClientError):
            self.items.append(item)
        else:
            self._seq += item.NUMBERED
            self.items.append(Event(self._seq if item.NUMBERED else None, item))
        self._news.set()
        self._news = asyncio.Event()

    def text(self, text: str, *, size: int = 0) -> None:
        """Deltas of `size` characters; one delta for 0."""
        for at in range(0, len(text), size or len(text) or 1):
            self.put(wire.BlockDelta(0, text[at : at + (size or len(text))]))

    def start(self, reply: str = "r", *, left_out: list[str] | None = None) -> None:
        self.put(wire.Context(120, 2048, 3, left_out or []))
        self.put(wire.MessageStart("run", "c", reply, "Test-Model-1B", 7))
        self.put(wire.BlockStart(0))

    def finish(
        self, status: str = "completed", reason: str = "end_turn", *, facts: bool = True
    ) -> None:
        self.put(wire.BlockStop(0))
        usage, timings = wire.Usage(), wire.Timings()
        if facts:
            usage = wire.Usage(1204, 1100, 88)
            timings = wire.Timings(prefill_s=0.3, first_decode_s=0.1, decode_s=2.8)
        self.put(wire.MessageDelta(reason, None, usage, timings))
        self.put(wire.MessageStop(status, reason))

    async def read(self) -> AsyncIterator[Event | Notice]:
        at = 0
        self.readers += 1
        try:
            while True:
                while at >= len(self.items):
                    await self._news.wait()
                item = self.items[at]
                at += 1
                if isinstance(item, ClientError):
                    raise item
                yield item
                if isinstance(item, Event) and isinstance(item.payload, wire.MessageStop):
                    return
        finally:
            self.readers -= 1


class Asked(NamedTuple):
    text: str
    parent: str | None
    options: Mapping[str, Any] | None
    instructions: str | None
    aside: bool
    key: str | None


class FakeClient:
    """The interface of hobnob.tui.client.Client as far as the app uses it."""

    def __init__(self) -> None:
        self.talks: dict[str, Conversation] = {}
        self.stored: dict[str, list[Message]] = {}
        self.siblings: dict[str, list[str]] = {}
        self.branches: dict[str, list[Message]] = {}
        self.scripts: dict[str, Script] = {}
        self.hits: list[Hit] = []
        self.state: dict[str, Any] = {
            "engine": {"state": "ready"},
            "model": {"id": "test", "name": "Test-Model-1B", "starter": False},
        }
        self.refuse: ClientError | None = None
        """What the next call that posts is refused with."""
        self.unknown_options = {"nonsense"}
        self.compared: dict[tuple[str, str], Replies] = {}
        """All replies to a message, by its conversation and it."""
        self.sent: list[dict[str, Any]] = []
        self.asked: list[Asked] = []
        """The same posts, with how they were to be answered."""
        self.pages: list[tuple[str | None, int | None]] = []
        """`before` and `limit` of what was read of conversations."""
        self.cancelled: list[str] = []
        self.title_found = ""
        """What the model calls a conversation; nothing: it finds no name."""
        self.held: list[str] = []
        """Temporary conversations that somebody holds now."""
        self.lost = asyncio.Event()
        """The conversations that are held are gone."""
        self.warmed: list[str] = []
        self.cold: ClientError | None = None
        """What every warm-up is refused with."""
        self.planned: list[dict[str, Any]] = []
        self.plan_made = Plan(prompt_tokens=1204, cached_tokens=1100, n_ctx=4096, included=3)
        self.uncounted: ClientError | None = None
        """What every plan is refused with."""
        self.counting = asyncio.Event()
        """Cleared by a test: plans and counts wait."""
        self.counting.set()
        self.opening = asyncio.Event()
        """Cleared by a test: no conversation is answered."""
        self.opening.set()
        self.found_models: list[dict[str, Any]] = []
        self.chosen_models: list[str] = []
        self.heads: list[str] = []
        self.glances = 0
        self.out_of_sight: ClientError | None = None
        """What every glance is refused with."""
        self.closed = False
        self.local = True
        self._count = 0
        self._change = 0
        self._parents: dict[str | None, str | None] = {}
        """Of the messages that were sent here."""
        self._feeds: list[asyncio.Queue[ChangePayload | Notice | ClientError]] = []

    async def __aenter__(self) -> FakeClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.closed = True

    # ---- for tests ----------------------------------------------------------------------------

    def talk(self, title: str, *texts: str, id: str | None = None) -> Conversation:
        """A stored conversation of alternating messages."""
        self._count += 1
        self._change += 1
        id = id or f"c{self._count:04d}"
        head = None
        messages = []
        for number, text in enumerate(texts):
            message = Message(
                id=f"{id}-m{number}",
                conversation=id,
                parent=head,
                role="assistant" if number % 2 else "user",
                text=text,
                status="completed",
                created_at=NOW_MS,
                model="Test-Model-1B" if number % 2 else None,
            )
            messages.append(message)
            head = message.id
        made = Conversation(
            id, title, head=head, created_at=NOW_MS, updated_at=NOW_MS, change=self._change
        )
        self.talks[id], self.stored[id] = made, messages
        return made

    def tell(self, item: ChangePayload | Notice | ClientError) -> None:
        """Everyone who follows the changes hears this."""
        for feed in self._feeds:
            feed.put_nowait(item)

    def changed_elsewhere(self, id: str, **changes: Any) -> None:
        """Another device wrote this, and it is told."""
        self._write(id, **changes)
        self.tell(wire.ConversationChanged(asdict(self.talks[id])))

    def said_elsewhere(
        self, id: str, text: str, *, run: str = "", reply: str = "", after: int | None = None
    ) -> None:
        """Another device sent a message; with `run` its reply is being written. `after` so many
        messages, if it is another version of what follows them."""
        stored = self.stored[id]
        kept = stored[:after]
        number = len(stored)
        parent = kept[-1].id if kept else None
        status = "running" if run else "completed"
        said = Message(f"{id}-x{number}", id, parent, "user", text, "completed", NOW_MS)
        answer = Message(
            f"{id}-y{number}", id, said.id, "assistant", reply, status, NOW_MS, run=run or None
        )
        if after is not None and after < number:
            self.siblings[said.id] = self.siblings[stored[after].id] = [stored[after].id, said.id]
        self.stored[id] = [*kept, said, answer]
        self.changed_elsewhere(id, head=answer.id)

    def deleted_elsewhere(self, id: str) -> None:
        del self.talks[id]
        self.tell(wire.ConversationDeleted(id))

    def _write(self, id: str, **changes: Any) -> None:
        self._change += 1
        self.talks[id] = replace(self.talks[id], change=self._change, **changes)

    @property
    def script(self) -> Script:
        """The newest run's stream."""
        return list(self.scripts.values())[-1]

    # ---- the interface ------------------------------------------------------------------------

    async def conversations(
        self,
        *,
        limit: int = 50,
        before: int | None = None,
        query: str | None = None,
        pinned: bool | None = None,
    ) -> list[Conversation]:
        found = sorted(self.talks.values(), key=lambda one: -one.change)
        found = [one for one in found if pinned is None or one.pinned == pinned]
        found = [one for one in found if not one.temporary]
        found = [one for one in found if before is None or one.change < before]
        return [one for one in found if not query or query.lower() in one.title.lower()][:limit]

    async def conversation(self, id: str) -> Conversation:
        if id not in self.talks:
            raise ClientError("not_found", "No such conversation.")
        return self.talks[id]

    async def changes(self) -> AsyncIterator[ChangePayload | Notice]:
        feed: asyncio.Queue[ChangePayload | Notice | ClientError] = asyncio.Queue()
        self._feeds.append(feed)
        try:
            yield wire.Position(self._change)
            while True:
                item = await feed.get()
                if isinstance(item, ClientError):
                    raise item
                yield item
        finally:
            self._feeds.remove(feed)

    async def branch(
        self,
        id: str,
        leaf: str | None = None,
        *,
        newest: bool = False,
        before: str | None = None,
        limit: int | None = None,
    ) -> Branch:
        if id not in self.talks:
            raise ClientError("not_found", "No such conversation.")
        self.pages.append((before, limit))
        await self.opening.wait()
        messages = self.branches.get(leaf or "", self.stored[id])
        ids = [one.id for one in messages]
        if leaf in ids and not newest and leaf not in self.branches:
            messages = messages[: ids.index(leaf) + 1]
        if before in self._parents:
            messages = messages[: ids.index(self._parents[before]) + 1]
        elif before is not None:
            for way in (self.stored[id], *self.branches.values()):
                ids = [one.id for one in way]
                if before in ids:
                    messages = way[: ids.index(before)]
        shown = messages if limit is None else messages[-limit:]
        earlier = len(messages) - len(shown)
        return Branch(self.talks[id], list(shown), dict(self.siblings), earlier)

    async def update_conversation(self, id: str, **changes: Any) -> Conversation:
        self._check(changes.get("settings"))
        if "head" in changes:
            self.heads.append(changes["head"])
        self._write(id, **changes)
        return self.talks[id]

    async def find_title(self, id: str) -> tuple[Conversation, bool]:
        if self.refuse is not None:
            raise self.refuse
        if self.title_found:
            self._write(id, title=self.title_found)
        return self.talks[id], bool(self.title_found)

    async def delete_conversation(self, id: str) -> None:
        if self.talks.pop(id, None) is None:
            raise ClientError("not_found", "No such conversation.")

    async def send(
        self,
        conversation: str | None,
        text: str,
        *,
        parent: str | None = None,
        options: Mapping[str, Any] | None = None,
        instructions: str | None = None,
        aside: bool = False,
        system: str | None = None,
        settings: Mapping[str, Any] | None = None,
        temporary: bool = False,
        key: str | None = None,
    ) -> Turn:
        self._refuse({**(settings or {}), **(options or {})})
        self.sent.append({"conversation": conversation, "text": text, "parent": parent, "key": key})
        self.asked.append(Asked(text, parent, options, instructions, aside, key))
        if conversation is None:
            conversation = self.talk(text[:20]).id
            self._write(conversation, system=system, settings=dict(settings or {}))
            self.talks[conversation] = replace(self.talks[conversation], temporary=temporary)
        number = len(self.sent)
        if parent is not None:
            self._parents[f"u{number}"] = parent
        message = Message(
            f"u{number}", conversation, parent, "user", text, "completed", created_at=NOW_MS
        )
        return self._turn(conversation, message)

    async def regenerate(
        self,
        conversation: str,
        parent: str,
        *,
        options: Mapping[str, Any] | None = None,
        instructions: str | None = None,
        aside: bool = False,
        key: str | None = None,
    ) -> Turn:
        self._refuse(options)
        self.sent.append({"regenerate": parent})
        self.asked.append(Asked("", parent, options, instructions, aside, key))
        message = Message(parent, conversation, None, "user", "", "completed")
        return self._turn(conversation, message)

    async def go_on(self, conversation: str, reply: str, *, key: str | None = None) -> Turn:
        self._refuse(None)
        self.sent.append({"continue": reply})
        kept = next(one for one in self.stored[conversation] if one.id == reply)
        asked = Message(kept.parent or "", conversation, None, "user", "", "completed")
        turn = self._turn(conversation, asked)
        return replace(turn, reply=replace(turn.reply, text=kept.text))

    def _turn(self, conversation: str, message: Message) -> Turn:
        number = len(self.sent)
        reply = Message(f"r{number}", conversation, message.id, "assistant", "", "running")
        self.scripts[f"run{number}"] = Script()
        self._write(conversation, head=reply.id)
        run = Run(f"run{number}", conversation, reply.id, params={"seed": number})
        return Turn(self.talks[conversation], message, reply, run)

    async def replies(self, conversation: str, message: str) -> Replies:
        if (conversation, message) not in self.compared:
            raise ClientError("not_found", "No such message.")
        return self.compared[conversation, message]

    async def comparisons(self, *, limit: int = 50) -> list[Comparison]:
        return [
            Comparison(
                place, message, one.conversation.title, one.message.text, len(one.replies), NOW_MS
            )
            for (place, message), one in self.compared.items()
        ][:limit]

    def _check(self, options: Mapping[str, Any] | None) -> None:
        odd = set(options or ()) & self.unknown_options
        if odd:
            raise ClientError("invalid_request", f"There is no option {odd.pop()!r}.")

    def _refuse(self, options: Mapping[str, Any] | None) -> None:
        self._check(options)
        if self.refuse is not None:
            error, self.refuse = self.refuse, None
            raise error

    def stream(self, run: str, after: int = 0) -> AsyncIterator[Event | Notice]:
        return self.scripts.setdefault(run, Script()).read()

    async def cancel(self, run: str) -> None:
        self.cancelled.append(run)

    async def hold(self, conversation: str) -> None:
        self.held.append(conversation)
        try:
            await self.lost.wait()
            raise ClientError("not_found", "This conversation is gone.")
        finally:
            self.held.remove(conversation)

    async def warm(self, conversation: str) -> None:
        self.warmed.append(conversation)
        if self.cold is not None:
            raise self.cold

    async def plan(
        self,
        conversation: str | None,
        text: str,
        *,
        parent: str | None = None,
        options: Mapping[str, Any] | None = None,
        system: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        self._check(settings)
        self.planned.append({"conversation": conversation, "text": text, "parent": parent})
        await self.counting.wait()
        if self.uncounted is not None:
            raise self.uncounted
        return asdict(replace(self.plan_made, text_tokens=len(text.split())))

    async def count(self, text: str) -> int:
        await self.counting.wait()
        return len(text.split())

    async def search(self, query: str, *, limit: int = 20) -> list[Hit]:
        return self.hits[:limit]

    async def status(self) -> dict[str, Any]:
        return self.state

    async def models(self) -> list[dict[str, Any]]:
        return self.found_models

    async def choose_model(self, id: str) -> None:
        self._refuse({})
        self.chosen_models.append(id)

    async def glance(self) -> dict[str, Any]:
        self.glances += 1
        if self.out_of_sight is not None:
            raise self.out_of_sight
        return self.state
